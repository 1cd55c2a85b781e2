"""`octop schedules diff` and `apply`: the schedules that the code declares, and those that there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.engine import calls

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS: Final = (
    Column("schedule"),
    Column("tenant", rank=1),
    Column("what", width_min=12),
    Column("values", width_min=12),
)
WORDS: Final = {
    "added": "new",
    "changed": "follows the code",
    "kept": "changed by hand, stays",
    "paused": "paused by hand, stays",
    "same": "same",
    "dropped": "dropped by hand, stays so",
    "past": "has no slot any more, was not made",
    "undeclared": "in no code of this application",
    "pruned": "dropped: in no code of this application",
}


@click.command()
@click.option("--prune", is_flag=True, help="As apply --prune would do it.")
@global_options(reads=True)
@pass_invocation
def diff(invocation: Invocation, *, prune: bool) -> None:
    """Show what the code declares that the database does not have, and what an operator has changed; change nothing.

    The application is the one that -A, OCTOP_APP or the settings file name.
    """
    _declare(invocation, prune=prune, only_look=True)


@click.command()
@click.option("--prune", is_flag=True, help="Drop what code declared and this code does not, if nobody changed it.")
@global_options()
@pass_invocation
def apply(invocation: Invocation, *, prune: bool) -> None:
    """Declare the schedules of the code now, as a worker does when it starts.

    What somebody changed, paused or dropped stays so. What no code declares any more stays too, without --prune.
    """
    _declare(invocation, prune=prune, only_look=False)


def _declare(invocation: Invocation, *, prune: bool, only_look: bool) -> None:
    from octop.worker.load import load_application  # noqa: PLC0415 - loads the user's code

    named = invocation.application
    declared = load_application(named.spec, named.folder).declared_schedules.as_json()
    rows = invocation.ask(calls.octop_declare_schedules(declared, prune=prune, only_look=only_look))
    if invocation.as_json:
        invocation.output.json(rows)
        return
    told = [row for row in rows if row["what"] != "same"]
    invocation.output.table(
        COLUMNS,
        [[row["name"], row["tenant"], WORDS[row["what"]], values_told(row["columns"])] for row in told],
        empty=f"Code and database say the same of {len(declared)} schedules.",
    )


def values_told(columns: Mapping[str, Any] | None) -> str:
    """Return the values that differ, on one line.

    Args:
        columns: By column the new value, or what it is and what is declared.

    Example:
        >>> values_told({"rule": {"is": "@hourly", "declared": "@daily"}, "queue": "mail"})
        'rule: is "@hourly", declared "@daily"; queue: "mail"'
    """
    parts = []
    for column, value in (columns or {}).items():
        if isinstance(value, dict) and value.keys() == {"is", "declared"}:
            text = ", ".join(f"{key} {json.dumps(inner, ensure_ascii=False)}" for key, inner in value.items())
        else:
            text = json.dumps(value, ensure_ascii=False)
        parts.append(f"{column}: {text}")
    return "; ".join(parts)
