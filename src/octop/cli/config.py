"""`octop config`: the settings that rule while it runs, rows of octop_config."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from typing import Any, Final

import click

from octop.cli.columns import Column
from octop.cli.completing import config_keys
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened
from octop.cli.origin import running_settings, start_settings
from octop.cli.policy import nearest
from octop.engine import audit, calls
from octop.engine.call import run
from octop.engine.transaction import transaction
from octop.model.errors import InvalidSettingError, SettingsDisagreeError, UnknownSettingError

COLUMNS: Final = (
    Column("setting"),
    Column("value", right=True),
    Column("default", right=True),
    Column("bounds"),
    Column("meaning"),
)

ORIGIN_COLUMNS: Final = (
    Column("setting"),
    Column("value", width_min=12),
    Column("default", width_min=6, rank=1),
    Column("origin", width_min=8),
    Column("by", width_min=8, rank=2),
    Column("since", brief=lambda moment: moment[:16], rank=3),
)


@click.group(cls=Group, short_help="Read and change the settings that rule while it runs.")
def config() -> None:
    """Read and change the settings that rule while it runs.

    Running workers follow within a second. DSN, schema and application are not among them: they start a process.
    """


@config.command("list")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List every setting with its value, default, bounds and meaning."""
    rows = invocation.ask(audit.list_config())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    if not sys.stdout.isatty():
        invocation.output.table(
            COLUMNS,
            [[row["key"], _number(row["value"]), _number(row["default"]), _bounds(row), _meaning(row)] for row in rows],
        )
        return
    # Five columns do not fit into a terminal: two lines for each key, the second one for who does not know it yet.
    from rich.text import Text  # noqa: PLC0415 - rich costs 60 ms, and pipes do not need it

    console = invocation.output.console()
    for row in rows:
        changed = row["value"] != row["default"]
        default = f"default {_number(row['default'])}, " if changed else ""
        console.print(
            Text.assemble(
                (row["key"], "bold"),
                "  ",
                (_number(row["value"]), "bold yellow" if changed else "bold cyan"),
                (f"  {default}{_bounds(row)}", "bright_black"),
            ),
            soft_wrap=True,
        )
        for line in textwrap.wrap(_meaning(row), max(20, console.width - 4)):
            console.print(Text(f"    {line}"), soft_wrap=True)


@config.command()
@click.option("--origin", is_flag=True, help="Say where each value comes from: who set it, and when.")
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, origin: bool) -> None:
    """Show what this process starts with (DSN, schema, application), and all settings that rule while it runs.

    With --origin: the flag, variable or line of a file that says it; for settings in the database the role that changed
    it last, from the audit. Passwords are masked.
    """
    rows = start_settings(invocation.settings)
    try:
        with invocation.connection() as connection:
            settings = run(connection, audit.list_config())
            changed = run(connection, audit.config_origins())
            rows += running_settings(settings, changed)
    finally:
        # without a database too: which one was meant is what one wants to see then
        _print(invocation, rows, origin=origin)


def _print(invocation: Invocation, rows: list[dict[str, Any]], *, origin: bool) -> None:
    kept = ("setting", "value", "default", "origin", "set_by", "set_at") if origin else ("setting", "value")
    if invocation.as_json:
        invocation.output.json([{key: row[key] for key in kept} for row in rows])
        return
    invocation.output.table(
        ORIGIN_COLUMNS if origin else ORIGIN_COLUMNS[:2],
        [
            [
                row["setting"],
                _number(row["value"]),
                *([_number(row["default"]), row["origin"], row["set_by"], shortened(row["set_at"])] if origin else []),
            ]
            for row in rows
        ],
    )


@config.command()
@click.argument("key", shell_complete=config_keys)
@global_options(reads=True)
@pass_invocation
def get(invocation: Invocation, key: str) -> None:
    """Print the value of one setting."""
    row = _found(invocation.ask(audit.list_config()), key)
    if invocation.as_json:
        invocation.output.json(row)
    else:
        invocation.output.line(json.dumps(row["value"]))


@config.command("set")
@click.argument("words", metavar="KEY VALUE | KEY=VALUE...", nargs=-1, required=True, shell_complete=config_keys)
@global_options(reads=True)
@pass_invocation
def set_(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Change settings: octop config set worker.concurrency 20.

    Settings that must agree are changed together: octop config set worker.lease_seconds=9 worker.heartbeat_seconds=3
    """
    changes = _changes(words)
    with invocation.connection() as connection:
        try:
            with transaction(connection):
                for key, value in changes.items():
                    run(connection, calls.octop_config_set(key, json.dumps(value)))
        except UnknownSettingError as error:
            rows = run(connection, audit.list_config())
            for key in changes:
                _found(rows, key)
            raise error from None
        except SettingsDisagreeError as error:
            raise SettingsDisagreeError(error.message, hint=_together(changes)) from error
    text = "; ".join(f"{key} is {_number(value)} now" for key, value in changes.items())
    invocation.output.done(changes, f"{text}.")


@config.command()
@click.argument("key", shell_complete=config_keys)
@global_options()
@pass_invocation
def reset(invocation: Invocation, key: str) -> None:
    """Bring the default of one setting back."""
    invocation.ask(calls.octop_config_reset(key))
    row = _found(invocation.ask(audit.list_config()), key)
    invocation.output.done({"key": key, "value": row["value"]}, f"{key} is {_number(row['value'])} again.")


def _changes(words: tuple[str, ...]) -> dict[str, object]:
    if len(words) == 2 and "=" not in words[0]:
        return {words[0]: _parsed(*words)}
    changes: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            message = f"{word!r} is not KEY=VALUE"
            raise click.UsageError(message)
        changes[key] = _parsed(key, value)
    return changes


def _found(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    for row in rows:
        if row["key"] == key:
            return row
    message = f"there is no setting {key!r}"
    raise UnknownSettingError(message, hint=nearest(key, [row["key"] for row in rows], "octop config list"))


def _together(changes: dict[str, object]) -> str:
    """Say how the two settings that must agree are changed at once."""
    lease, heartbeat = "worker.lease_seconds", "worker.heartbeat_seconds"
    asked = {key: changes.get(key) for key in (lease, heartbeat)}
    match asked[lease], asked[heartbeat]:
        case int() | float() as seconds, None:
            asked[heartbeat] = math.floor(seconds * 100 / 3) / 100
        case None, int() | float() as seconds:
            asked[lease] = round(seconds * 3, 2)
        case _:
            return "A lease is at least three heartbeats: octop config set " + " ".join(
                f"{key}={value}" for key, value in ((lease, 9), (heartbeat, 3))
            )
    words = " ".join(f"{key}={_number(value)}" for key, value in asked.items())
    return f"Change both at once: octop config set {words}"


def _meaning(row: dict[str, Any]) -> str:
    return f"the same as {row['alias_of']}" if row["alias_of"] else str(row["description"])


def _parsed(key: str, text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        value = None if text.lower() == "none" else text
    if isinstance(value, float) and not math.isfinite(value):
        message = f"{key} must be a finite number, not {text}"
        raise InvalidSettingError(message, hint="octop config list shows the bounds.")
    return value


def _number(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(row: dict[str, Any]) -> str:
    if row["minimum"] is None:
        return "-"
    none = ", or none" if str(row["kind"]).endswith("?") else ""
    return f"{float(row['minimum']):.10g} to {float(row['maximum']):.10g}{none}"
