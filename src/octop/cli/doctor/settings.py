"""Settings of PostgreSQL that hurt, of the server, the database and the logins that work with Octop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import SUPERUSER, found
from octop.cli.findings import Finding, Step, psql, shell
from octop.engine.diagnosis import server

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination
    from octop.engine.rows import Row

UNITS: Final = {"": 0.001, "us": 0.000001, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: str) -> float:
    """Return a length of time as PostgreSQL writes it: 500 (milliseconds), 5s, 1min; 0 for what is none.

    Example:
        >>> seconds("500"), seconds("2 min"), seconds("-1")
        (0.5, 120.0, 0.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d|)\s*", value)
    return float(match[1]) * UNITS[match[2]] if match else 0.0


def is_on(value: str) -> bool:
    """Tell whether a value means on, in any of PostgreSQL's spellings."""
    return value.lower() in {"on", "true", "yes", "1", "t", "y", "tru", "tr", "ye"}


def is_set(value: str) -> bool:
    """Tell whether a time limit is set at all."""
    return seconds(value) > 0


def is_below(limit: float) -> Callable[[str], bool]:
    """Return a test for time limits below so many seconds."""
    return lambda value: 0 < seconds(value) < limit


@dataclass(frozen=True, slots=True)
class Rule:
    """When a value hurts, and what to set instead."""

    hurts: Callable[[str], bool]
    good: str


RULES: Final[Mapping[str, Rule]] = {
    "autovacuum": Rule(lambda value: not is_on(value), "on"),
    "track_counts": Rule(lambda value: not is_on(value), "on"),
    "track_activities": Rule(lambda value: not is_on(value), "on"),
    "fsync": Rule(lambda value: not is_on(value), "on"),
    "full_page_writes": Rule(lambda value: not is_on(value), "on"),
    "synchronous_commit": Rule(lambda value: value.lower() in {"off", "false", "no", "0"}, "on"),
    "jit": Rule(is_on, "off"),
    "idle_session_timeout": Rule(is_set, "0"),
    "idle_in_transaction_session_timeout": Rule(is_below(60), "0"),
    "session_replication_role": Rule(lambda value: value.lower() != "origin", "origin"),
    "transaction_timeout": Rule(is_below(60), "0"),
    "default_transaction_isolation": Rule(
        lambda value: value.lower() not in {"read committed", "read uncommitted"}, "'read committed'"
    ),
    "default_transaction_read_only": Rule(is_on, "off"),
    "statement_timeout": Rule(is_below(10), "'60s'"),
    "lock_timeout": Rule(is_set, "0"),
}


def server_and_logins(examination: Examination) -> Iterator[Finding]:
    """Compare settings with the rules above."""
    place = examination.place
    if place["standby"]:
        yield found(
            "settings.standby",
            f"the database {place['database']} is a standby",
            shell("octop doctor --dsn 'postgresql://PRIMARY,STANDBY/DATABASE?target_session_attrs=read-write'"),
        )
    names = list(RULES)
    for row in examination.ask(server.settings(names)):
        rule = RULES[row["name"]]
        if rule.hurts(row["value"]):
            yield found(
                f"settings.{row['name']}",
                f"{row['name']} is {row['value']} on the whole server",
                _global_cure(row, rule),
                by=SUPERUSER,
            )
    for row in examination.ask(server.role_settings(names, examination.role_prefix)):
        if RULES[row["name"]].hurts(row["value"]):
            yield found(
                f"settings.{row['name']}",
                f"{row['name']} is {row['value']} for {_for_whom(row)}",
                _reset(examination, row),
                by=_who_resets(row),
            )


def _global_cure(row: Row, rule: Rule) -> tuple[Step, ...]:
    if row["source"] == "command line":
        return shell(
            f"postgres -c {row['name']}={rule.good}   # it was started with {row['value']}: change its command line and restart it"
        )
    return psql(f"alter system set {row['name']} = {rule.good};", "select pg_reload_conf();")


def _for_whom(row: Row) -> str:
    parts = [
        f"the role {row['role']}" if row["role"] else "every role",
        f"in the database {row['database']}" if row["database"] else "",
    ]
    return " ".join(filter(None, parts))


def _who_resets(row: Row) -> str:
    if row["role"]:
        return "that role, or one that may alter it"
    return "the database's owner" if row["database"] else SUPERUSER


def _reset(examination: Examination, row: Row) -> tuple[Step, ...]:
    role, database = (examination.role(row[key]) if row[key] else "" for key in ("role", "database"))
    if role:
        place = f" in database {database}" if database else ""
        return psql(f"alter role {role}{place} reset {row['name']};")
    return psql(
        f"alter database {database} reset {row['name']};" if database else f"alter role all reset {row['name']};"
    )
