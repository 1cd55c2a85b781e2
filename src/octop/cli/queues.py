"""`octop queues`: look at queues and steer them, on all workers at once."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

import click

from octop.cli.columns import Column
from octop.cli.completing import queue_names
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.limits import limit_options, limits_given, limits_used, shown_limit, used_told
from octop.cli.moments import spoken
from octop.cli.origin import told
from octop.cli.policy import (
    LIMIT_MAX,
    WORDS,
    OrDefault,
    SetCommand,
    act_on_name,
    changes,
    check_end,
    end_options,
    hold_told,
    nearest,
    policy_options,
    reason_told,
    reset_told,
    shown_value,
    values_told,
    worker_told,
    yes_option,
)
from octop.engine import calls, names, steering
from octop.engine.call import Call, run
from octop.engine.transaction import transaction
from octop.model.errors import UnknownQueueError

R = TypeVar("R")


COLUMNS: Final = (
    Column("queue"),
    Column("waiting", right=True, short="wait"),
    Column("due", right=True, rank=3),
    Column("running", right=True, short="run"),
    Column("blocked", right=True, short="blkd", rank=2),
    Column("oldest due", right=True, short="oldest", rank=1),
    Column("workers", right=True, short="wrk", rank=4),
    Column("limits", width_min=14),
    Column("paused", width_min=8),
)


def queue_argument(function: Any) -> Any:
    """Take the name of a queue, completed by the shell."""
    return click.argument("queue", shell_complete=queue_names)(function)


@click.group(cls=Group, short_help="List, show, set, pause, resume, scale and reset queues.")
def queues() -> None:
    """List, show, set, pause, resume, scale and reset queues.

    Orders are rows: they hold on all workers within a second, also on those that start later. Each is written to the
    audit: octop audit --subject QUEUE
    """


@queues.command("list")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the queues with what waits and runs in each, and their limits with what is used of them now.

    7/20 is 7 used of 20. Of lanes: octop lanes list. Who set them: octop queues show, or --json.
    """
    rows = invocation.ask(steering.list_queues(with_origins=invocation.as_json))
    if invocation.as_json:
        invocation.output.json([steering.with_origins(row) for row in rows])
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
                row["workers"],
                limits_used(row),
                (row["pause_reason"] or "yes") if row["paused"] else "no",
            ]
            for row in rows
        ],
        empty="No queue yet: a queue appears with its first task or worker.",
    )


@queues.command()
@queue_argument
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, queue: str) -> None:
    """Show all about QUEUE: what waits and runs, its values and who set each, its pause, its workers, its task types."""
    row = invocation.ask(steering.queue(queue))
    if row is None:
        raise _unknown(invocation, queue)
    row = steering.with_origins(row)
    if invocation.as_json:
        invocation.output.json(row)
        return
    due = f" ({row['due']:,} due, the oldest for {spoken(row['oldest_due_seconds'])})" if row["due"] else ""
    values = values_told(row, steering.QUEUE_VALUES)
    if row["worker_limit"] is None:
        values[0] = ("limit", "-  (the workers' own flags)")
    invocation.output.pairs(
        [
            ("queue", row["name"]),
            ("waiting", f"{row['waiting']:,}{due}"),
            ("running", row["running"]),
            ("blocked", row["blocked"]),
            ("ended", ", ".join(f"{count:,} {status}" for status, count in sorted(row["ended"].items())) or "-"),
            ("paused", hold_told(row["paused_by"], row["paused_at"], row["pause_reason"], row["pause_ends_at"])),
            *values,
            *_limits_told(row),
            ("workers", "\n".join(worker_told(each, _runs(each, row)) for each in row["served_by"])),
            ("task types", "\n".join(f"{y['name']} ({y['waiting']:,} waiting)" for y in row["task_types"])),
        ]
    )


@queues.command("set", cls=SetCommand)
@queue_argument
@click.option(
    "--limit",
    type=OrDefault(click.IntRange(0, LIMIT_MAX)),
    metavar="N|default",
    help="Tasks at once in each worker process; default = the workers' own flags.",
)
@limit_options
@policy_options
@yes_option
@global_options()
@pass_invocation
def set_(invocation: Invocation, /, queue: str, limit: object, yes: bool, **given: Any) -> None:
    """Set values of QUEUE, for all workers: octop queues set mail --global-limit 20 --rate 100/m.

    Limits hold over all workers together, also when they race and die; --limit is that of each worker process. Retries,
    time limit and delays hold for tasks whose type says nothing. The word `default` takes a value back: what the
    application declared holds again. For psql: SELECT octop_set_queue('mail', '{"global_limit": 20, "rate": 1.5}');
    """
    policy = ("max_retries", "timeout_seconds", "retry_policy", "retry_delays")
    limits = limits_given({name: value for name, value in given.items() if name not in policy})
    wanted = changes({"worker_limit": limit, **{name: given[name] for name in policy}, **limits})
    if "retry_policy" in wanted and wanted["retry_policy"] is not None:
        wanted["retry_policy"] = json.loads(wanted["retry_policy"])
    row = _acted(invocation, queue, calls.octop_set_queue(queue, wanted), None if yes else "set it")
    parts = [f"{WORDS[column]} is {_shown(column, row[column])} now" for column in wanted]
    shown = {column: row[column] for column in steering.QUEUE_VALUES}
    shown |= {column: row[column] for column in steering.LIMITS if row[column] is not None or column in wanted}
    invocation.output.done({"queue": queue, **shown}, f"Queue {queue}: {', '.join(parts)}.")


@queues.command()
@queue_argument
@click.option("--reason", default="", help="Why: shown to the next person.")
@end_options
@yes_option
@global_options()
@pass_invocation
def pause(
    invocation: Invocation, queue: str, reason: str, ends_in: float | None, ends_at: str | None, yes: bool
) -> None:
    """Start no more tasks of QUEUE; what runs runs on.

    Of a queue that is paused already the first reason stays.
    """
    check_end(ends_in, ends_at)
    order = calls.octop_hold("queue", queue, reason=reason, ends_in_seconds=ends_in, ends_at=ends_at)
    changed = _acted(invocation, queue, order, None if yes else "pause it")
    text = f"Queue {queue} is paused."
    if not changed:
        kept = (invocation.ask(steering.queue(queue)) or {}).get("pause_reason")
        text = f"Queue {queue} was paused already.{reason_told(reason, kept, f'octop queues resume {queue}')}"
    invocation.output.done({"queue": queue, "paused": True, "changed": changed}, text)


@queues.command()
@queue_argument
@global_options()
@pass_invocation
def resume(invocation: Invocation, queue: str) -> None:
    """Start tasks of QUEUE again."""
    changed = _acted(invocation, queue, calls.octop_resume(queue), None)
    text = f"Queue {queue} runs again." if changed else f"Queue {queue} was not paused."
    invocation.output.done({"queue": queue, "paused": False, "changed": changed}, text)


class ScaleCommand(click.Command):
    """A command that may be given a limit below 0, which looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say what a limit is, where it is below 0."""
        if negative := next((word for word in args if word[:1] == "-" and word[1:].isdecimal()), None):
            message = f"LIMIT is 0 or more, or the word reset, not {negative}"
            raise click.UsageError(message, ctx)
        return super().parse_args(ctx, args)


@queues.command(cls=ScaleCommand)
@queue_argument
@click.argument("limit", metavar="LIMIT|reset")
@yes_option
@global_options()
@pass_invocation
def scale(invocation: Invocation, queue: str, limit: str, yes: bool) -> None:
    """Limit how many tasks of QUEUE each worker process runs at once.

    An operator's limit wins over `octop worker -q`, on running and future workers; `reset` gives the decision back to
    those flags.
    """
    if limit != "reset" and not limit.isdecimal():
        message = f"LIMIT is a whole number, 0 or more, or the word reset, not {limit!r}"
        raise click.UsageError(message)
    chosen = None if limit == "reset" else int(limit)
    _acted(invocation, queue, calls.octop_scale(queue, chosen), None if yes else "set its limit")
    text = f"Queue {queue}: at most {limit} at once in each worker process."
    if chosen is None:
        text = f"Queue {queue}: the workers' own flags hold again."
    elif not chosen:
        text = f"Queue {queue}: nothing of it starts. To pause it, with a reason: octop queues pause {queue}"
    invocation.output.done({"queue": queue, "worker_limit": chosen}, text)


@queues.command()
@queue_argument
@global_options()
@pass_invocation
def reset(invocation: Invocation, queue: str) -> None:
    """Take back everything that operators set for QUEUE.

    Limit, retries, time limit and retry delays are again those that the application declared. A queue that no task, no
    worker and no pause names is forgotten. A pause stays: octop queues resume.
    """
    with invocation.connection() as connection, transaction(connection):
        changed = run(connection, steering.reset_queue(queue))
        forgotten = run(connection, steering.queue_is_unused(queue)) and run(connection, steering.forget_queue(queue))
    again = "what the application declared and the workers' own flags hold"
    text = reset_told(f"Queue {queue}", again, changed=changed, forgotten=forgotten)
    invocation.output.done({"queue": queue, "changed": changed, "forgotten": forgotten}, text)


def _shown(column: str, value: object) -> str:
    return shown_limit(column, value) if column in steering.LIMITS else shown_value(column, value)


def _limits_told(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the limits that are set, each with who set it, and what is used of them."""
    told_ = [
        (WORDS[column], told(shown_limit(column, row[column]), row["origins"][column]))
        for column in steering.LIMITS
        if row[column] is not None
    ]
    return [*told_, ("used now", used_told(row))] if told_ else []


def _runs(worker: dict[str, Any], row: dict[str, Any]) -> str:
    """Return what is used of the limit of each worker process."""
    return "" if row["worker_limit"] is None else f", runs {worker['running']} of {row['worker_limit']}"


def _unknown(invocation: Invocation, queue: str) -> UnknownQueueError:
    known = invocation.ask(names.queue_names())
    message = f"there is no queue {queue}"
    return UnknownQueueError(message, hint=nearest(queue, known, "octop queues list"))


def _acted(invocation: Invocation, queue: str, call: Call[R], act: str | None) -> R:
    return act_on_name(
        invocation,
        queue,
        call,
        is_known=steering.queue_is_known(queue),
        names=names.queue_names(),
        nobody="no task and no worker uses the queue",
        act=act,
    )
