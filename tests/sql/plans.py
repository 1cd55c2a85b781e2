"""The plans of the statements inside the engine's functions, read with auto_explain, and what is asked of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import Connection

LIVE = "octop_tasks_live"
PKEY = "octop_tasks_live_pkey"
READY = "octop_tasks_live_ready"
RUNNING = "octop_tasks_live_running"
BLOCKED = "octop_tasks_live_blocked"
FAILED = "octop_tasks_live_failed"

SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_triggers": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
    "client_min_messages": "notice",
    "jit": "off",
}


@dataclass(frozen=True)
class Scan:
    """One scan of one relation; rows are those that it looked at, all loops together."""

    kind: str
    relation: str
    index: str | None
    rows: float


@dataclass
class Statement:
    """One statement that ran, nested or not."""

    text: str
    plan: Mapping[str, Any]
    scans: list[Scan] = field(default_factory=list)
    joins: list[tuple[str, set[str]]] = field(default_factory=list)

    @property
    def buffers(self) -> int:
        """Pages touched by it and by everything that it called."""
        return int(self.plan.get("Shared Hit Blocks", 0)) + int(self.plan.get("Shared Read Blocks", 0))


def _walk(node: Mapping[str, Any], statement: Statement) -> set[str]:
    below: set[str] = set()
    kind = node["Node Type"]
    for child in node.get("Plans", []):
        below |= _walk(child, statement)
    relation = node.get("Relation Name")
    loops = node.get("Actual Loops", 1)
    if relation is not None and kind != "ModifyTable":
        per_loop = sum(
            node.get(key, 0) for key in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        statement.scans.append(Scan(kind, relation, node.get("Index Name"), per_loop * loops))
        below.add(relation)
    if kind in {"Hash Join", "Merge Join"}:
        statement.joins.append((kind, set(below)))
    return below


@contextlib.contextmanager
def watched(connection: Connection[Any]) -> Iterator[list[Statement]]:
    """Collect all statements that run on a superuser's connection meanwhile, nested ones before those that called them."""
    seen: list[Statement] = []

    def take(notice: psycopg.errors.Diagnostic) -> None:
        _, found, text = (notice.message_primary or "").partition(" plan:\n")
        if found:
            explained = json.loads(text)
            statement = Statement(explained["Query Text"], explained["Plan"])
            _walk(explained["Plan"], statement)
            seen.append(statement)

    connection.execute("load 'auto_explain'")
    for name, value in SETTINGS.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
    connection.add_notice_handler(take)
    try:
        yield seen
    finally:
        connection.remove_notice_handler(take)
        connection.execute("select set_config('auto_explain.log_min_duration', '-1', false)")


def problems(
    seen: list[Statement], *, rows: float, buffers: float, allowed: Iterable[str] = (PKEY,), ours: bool = True
) -> list[str]:
    """Say what is wrong with the plans of one call.

    Args:
        seen: What `watched` collected for it.
        rows: Most rows of live that may be looked at.
        buffers: Most pages that the whole call may touch.
        allowed: Indexes on live that may be used; a TID scan always may.
        ours: False = the statement that was sent is a person's: judge only what it called.
    """
    found: list[str] = []
    kept = set(allowed)
    whole = {LIVE, "octop_tasks_frozen"}
    looked = 0.0
    for statement in seen if ours else seen[:-1]:
        for scan in statement.scans:
            if scan.kind in {"Seq Scan", "Bitmap Heap Scan", "Sample Scan"} and (
                scan.relation in whole or scan.relation.startswith("octop_tasks_done_2")
            ):
                found.append(f"{scan.kind} of {scan.relation} in: {_short(statement.text)}")
            if scan.relation == LIVE:
                looked += scan.rows
                if scan.index is not None and scan.index not in kept:
                    found.append(f"{scan.kind} with {scan.index} in: {_short(statement.text)}")
        found += [f"{kind} over {LIVE} in: {_short(statement.text)}" for kind, over in statement.joins if LIVE in over]
    if looked > rows:
        found.append(f"looked at {looked:.0f} rows of {LIVE}, more than {rows:.0f}")
    if (touched := seen[-1].buffers) > buffers:
        found.append(f"touched {touched} pages, more than {buffers:.0f}")
    return found


def _short(text: str) -> str:
    return " ".join(text.split())[:160]


@dataclass
class Judge:
    """Runs calls on one connection, so that plans which a session keeps are judged too, and gathers what was wrong."""

    connection: Connection[Any]
    found: list[str] = field(default_factory=list)

    def __call__(self, name: str, call: Callable[[], Any], **limits: Any) -> Any:
        """Run a call and judge its plans; see `problems` for the limits."""
        with watched(self.connection) as seen:
            answer = call()
        assert seen, f"auto_explain saw nothing of {name}"
        self.found += [f"{name}: {problem}" for problem in problems(seen, **limits)]
        return answer
