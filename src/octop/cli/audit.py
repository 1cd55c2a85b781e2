"""`octop audit`: who did what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION, shortened
from octop.engine import audit as acts

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS: Final = (
    Column("at", brief=lambda moment: moment[5:19] or moment),
    Column("role", width_min=8),
    Column("application", width_min=8, rank=1),
    Column("action", width_min=8),
    Column("subject", width_min=10),
    Column("what", width_min=10),
)


@click.command(short_help="List who did what.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only acts within this time: 1h, 2d.")
@click.option(
    "--action",
    help="Only these: pause, resume, freeze, thaw, cancel, retry, delete, config, 'set queue', 'set task type' …",
)
@click.option("--subject", help="Only acts on this task id, queue, task type or setting.")
@click.option("--role", help="Only acts of this role.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@global_options(reads=True)
@pass_invocation
def audit(
    invocation: Invocation,
    since: float | None,
    action: str | None,
    subject: str | None,
    role: str | None,
    limit: int,
) -> None:
    """List the acts of people and programs on tasks, queues, task types and settings, the latest first.

    For psql: SELECT * FROM octop_audit ORDER BY seq DESC LIMIT 50.
    """
    rows = invocation.ask(acts.audit(since_seconds=since, action=action, subject=subject, role=role, limit=limit))
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [shortened(row["at"]), _who(row), row["application"], row["action"], row["subject"], _what(row["detail"])]
            for row in rows
        ],
        empty="No such act: nobody changed anything, or history was cut.",
    )
    if len(rows) == limit:
        invocation.output.say(f"The latest {limit}; --limit shows more.")


def _who(row: Mapping[str, Any]) -> str:
    return str(row["role"]) if row["role"] == row["login"] else f"{row['login']} as {row['role']}"


def _what(detail: Mapping[str, Any]) -> str:
    """Return what changed, in one line: `worker_limit 5 → 7`, a reason, or the rest as it is."""
    before, after = detail.get("from"), detail.get("to")
    if isinstance(after, dict) or isinstance(before, dict):
        old, new = before or {}, after or {}
        if "target" in (new or old):
            return str((new or old).get("reason", ""))
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key) and key != "name"]
        return ", ".join(f"{key} {_value(old.get(key))} → {_value(new.get(key))}" for key in changed)
    if "to" in detail or "from" in detail:
        return f"{_value(before)} → {_value(after)}"
    return ", ".join(f"{key} {_value(value)}" for key, value in detail.items() if value != "")


def _value(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
