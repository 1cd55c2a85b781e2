"""`octop holds`: orders not to start tasks of a queue, a task type, a tenant or a lane."""

from __future__ import annotations

from typing import Any, Final

import click

from octop.cli.columns import Column
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.cli.policy import check_end, end_options
from octop.engine import calls
from octop.engine.calls.holds import list_holds

COLUMNS: Final = (
    Column("holds"),
    Column("name", width_min=8),
    Column("of", rank=1),
    Column("by", width_min=8, rank=2),
    Column("cause", rank=4),
    Column("since", right=True),
    Column("ends in", right=True, rank=3),
    Column("parked", right=True),
    Column("reason", width_min=8),
)
KINDS: Final = {"queue": "queue", "type": "task_type", "tenant": "tenant", "lane": "lane"}
"""What people type, and what the engine calls it."""


def _target(function: Any) -> Any:
    for decorate in (
        click.option("--tenant", default="", help="Of a lane: whose it is; may be left out where there is one tenant."),
        click.option("--queue", default="", help="Of a lane: the queue in which it lies."),
        click.argument("name"),
        click.argument("kind", type=click.Choice(list(KINDS))),
    ):
        function = decorate(function)
    return function


def _check(kind: str, queue: str, tenant: str) -> None:
    if kind == "lane" and not queue:
        message = "a lane is named with its queue: octop holds add lane NAME --queue QUEUE"
        raise click.UsageError(message)
    if kind != "lane" and (queue or tenant):
        message = f"--queue and --tenant belong to a lane, not to a {kind}"
        raise click.UsageError(message)


@click.group(cls=Group, short_help="List, add and lift holds of queues, types, tenants and lanes.")
def holds() -> None:
    """List, add and lift holds: orders not to start tasks of a queue, a task type, a tenant or a lane.

    A hold is a row: from its commit nothing of it starts on any worker; what runs runs on. `octop queues pause` and
    `octop types freeze` write the same rows.
    """


@holds.command("list")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the holds, the oldest first, with how many tasks were set aside for each."""
    rows = invocation.ask(list_holds())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    words = {kind: word for word, kind in KINDS.items()}
    invocation.output.table(
        COLUMNS,
        [
            [
                words[row["kind"]],
                row["target"],
                "/".join(part for part in (row["queue"], row["tenant"]) if part),
                row["author"],
                row["cause"],
                spoken(row["seconds"]),
                spoken(row["ends_in_seconds"]),
                row["parked"],
                row["reason"],
            ]
            for row in rows
        ],
        empty="Nothing is held.",
    )


@holds.command()
@_target
@click.option("--reason", default="", help="Why: shown to the next person.")
@end_options
@global_options()
@pass_invocation
def add(
    invocation: Invocation,
    kind: str,
    name: str,
    queue: str,
    tenant: str,
    reason: str,
    ends_in: float | None,
    ends_at: str | None,
) -> None:
    """Start no more tasks of NAME: octop holds add tenant acme --for 2h --reason unpaid.

    What runs runs on; what waits waits without using a try. Of what is held already the first order stays.
    """
    _check(kind, queue, tenant)
    check_end(ends_in, ends_at)
    order = calls.octop_hold(
        KINDS[kind], name, queue=queue, tenant=tenant, reason=reason, ends_in_seconds=ends_in, ends_at=ends_at
    )
    changed = invocation.ask(order)
    text = f"The {kind} {name} is held." if changed else f"The {kind} {name} was held already: octop holds list"
    invocation.output.done({"kind": KINDS[kind], "target": name, "held": True, "changed": changed}, text)


@holds.command()
@_target
@global_options()
@pass_invocation
def lift(invocation: Invocation, kind: str, name: str, queue: str, tenant: str) -> None:
    """Start tasks of NAME again; those that waited come back, the oldest first."""
    _check(kind, queue, tenant)
    changed = invocation.ask(calls.octop_lift(KINDS[kind], name, queue=queue, tenant=tenant))
    text = f"The {kind} {name} is held no more." if changed else f"The {kind} {name} was not held."
    invocation.output.done({"kind": KINDS[kind], "target": name, "held": False, "changed": changed}, text)
