"""`octop queues`: look at queues and steer them, on all workers at once."""

from __future__ import annotations

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.engine import calls, reads


@click.group(short_help="List, pause, resume and scale queues.")
def queues() -> None:
    """List, pause, resume and scale queues.

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
        ["queue", "waiting", "due", "running", "blocked", "oldest due", "limit", "workers", "paused"],
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
        right=["waiting", "due", "running", "blocked", "oldest due", "limit", "workers"],
        empty="No queue yet: a queue appears with its first task or worker.",
    )


@queues.command()
@click.argument("queue")
@click.option("--reason", default="", help="Why: shown to the next person.")
@global_options()
@pass_invocation
def pause(invocation: Invocation, queue: str, reason: str) -> None:
    """Start no more tasks of QUEUE; what runs runs on."""
    changed = invocation.ask(calls.octop_pause(queue, reason))
    text = f"Queue {queue} is paused." if changed else f"Queue {queue} was paused already."
    invocation.output.done({"queue": queue, "paused": True, "changed": changed}, text)


@queues.command()
@click.argument("queue")
@global_options()
@pass_invocation
def resume(invocation: Invocation, queue: str) -> None:
    """Start tasks of QUEUE again."""
    changed = invocation.ask(calls.octop_resume(queue))
    text = f"Queue {queue} runs again." if changed else f"Queue {queue} was not paused."
    invocation.output.done({"queue": queue, "paused": False, "changed": changed}, text)


@queues.command()
@click.argument("queue")
@click.argument("limit", metavar="LIMIT|reset")
@global_options()
@pass_invocation
def scale(invocation: Invocation, queue: str, limit: str) -> None:
    """Let each worker process run at most LIMIT tasks of QUEUE at once; `reset` gives the decision back to its flags.

    An operator's limit wins over -q of running and future workers.
    """
    if limit != "reset" and not limit.isdecimal():
        message = f"LIMIT must be a whole number or the word reset, not {limit!r}"
        raise click.UsageError(message)
    chosen = None if limit == "reset" else int(limit)
    invocation.ask(calls.octop_scale(queue, chosen))
    text = (
        f"Queue {queue}: the workers' own flags hold again."
        if chosen is None
        else f"Queue {queue}: at most {chosen} at once in each worker process."
    )
    invocation.output.done({"queue": queue, "worker_limit": chosen}, text)
