"""`octop queues`: look at queues and steer them, on all workers at once."""

from __future__ import annotations

from typing import Final, TypeVar

import click

from octop.cli.columns import Column
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.engine import calls, reads
from octop.engine.call import Call, run
from octop.engine.transaction import transaction

R = TypeVar("R")


COLUMNS: Final = (
    Column("queue"),
    Column("waiting", right=True, short="wait"),
    Column("due", right=True, rank=3),
    Column("running", right=True, short="run"),
    Column("blocked", right=True, short="blkd", rank=2),
    Column("oldest due", right=True, short="oldest", rank=1),
    Column("limit", right=True),
    Column("workers", right=True, short="wrk", rank=4),
    Column("paused", width_min=8),
)


@click.group(cls=Group, short_help="List, pause, resume, scale and reset queues.")
def queues() -> None:
    """List, pause, resume, scale and reset queues.

    Orders are rows: they hold on all workers within a second, also on those that start later.
    """


@queues.command("list")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the queues with what waits and runs in each."""
    rows = invocation.ask(reads.list_queues())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["name"],
                row["waiting"],
                row["due"],
                row["running"],
                row["blocked"],
                spoken(row["oldest_due_seconds"]),
                row["worker_limit"],
                row["workers"],
                (row["pause_reason"] or "yes") if row["paused"] else "no",
            ]
            for row in rows
        ],
        empty="No queue yet: a queue appears with its first task or worker.",
    )


@queues.command()
@click.argument("queue")
@click.option("--reason", default="", help="Why: shown to the next person.")
@global_options()
@pass_invocation
def pause(invocation: Invocation, queue: str, reason: str) -> None:
    """Start no more tasks of QUEUE; what runs runs on."""
    changed = _acted(invocation, queue, calls.octop_pause(queue, reason))
    text = f"Queue {queue} is paused." if changed else f"Queue {queue} was paused already."
    invocation.output.done({"queue": queue, "paused": True, "changed": changed}, text)


@queues.command()
@click.argument("queue")
@global_options()
@pass_invocation
def resume(invocation: Invocation, queue: str) -> None:
    """Start tasks of QUEUE again."""
    changed = _acted(invocation, queue, calls.octop_resume(queue))
    text = f"Queue {queue} runs again." if changed else f"Queue {queue} was not paused."
    invocation.output.done({"queue": queue, "paused": False, "changed": changed}, text)


@queues.command()
@click.argument("queue")
@click.argument("limit", metavar="LIMIT|reset")
@global_options()
@pass_invocation
def scale(invocation: Invocation, queue: str, limit: str) -> None:
    """Limit how many tasks of QUEUE each worker process runs at once.

    An operator's limit wins over `octop worker -q`, on running and future workers; `reset` gives the decision back to
    those flags.
    """
    if limit != "reset" and not limit.isdecimal():
        message = f"LIMIT must be a whole number or the word reset, not {limit!r}"
        raise click.UsageError(message)
    chosen = None if limit == "reset" else int(limit)
    _acted(invocation, queue, calls.octop_scale(queue, chosen))
    text = (
        f"Queue {queue}: the workers' own flags hold again."
        if chosen is None
        else f"Queue {queue}: at most {chosen} at once in each worker process."
    )
    invocation.output.done({"queue": queue, "worker_limit": chosen}, text)


@queues.command()
@click.argument("queue")
@global_options()
@pass_invocation
def reset(invocation: Invocation, queue: str) -> None:
    """Take back everything that operators set for QUEUE.

    Limit, retries, time limit and retry delays are again those that the application declared. A queue that no task, no
    worker and no pause names is forgotten. A pause stays: octop queues resume.
    """
    with invocation.connection() as connection, transaction(connection):
        changed = run(connection, reads.reset_queue(queue))
        forgotten = run(connection, reads.queue_is_unused(queue)) and run(connection, reads.forget_queue(queue))
    if forgotten:
        text = f"Queue {queue} is forgotten: nothing uses it."
    elif changed:
        text = f"Queue {queue}: what the application declared and the workers' own flags hold again."
    else:
        text = f"Queue {queue}: nothing was set."
    invocation.output.done({"queue": queue, "changed": changed, "forgotten": forgotten}, text)


def _acted(invocation: Invocation, queue: str, call: Call[R]) -> R:
    """Do it, and say so when nobody knows the queue: its name may be a slip of the fingers."""
    with invocation.connection() as connection:
        known = run(connection, reads.queue_is_known(queue))
        answer = run(connection, call)
    if not known:
        invocation.output.say(f"octop: no task and no worker uses the queue {queue} yet")
    return answer
