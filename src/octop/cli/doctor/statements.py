"""Where the database's time goes, if it writes that down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import SCHEMA_OWNER, found
from octop.cli.doctor.vacuum import not_all_sessions
from octop.cli.findings import Finding, Step, psql, shell
from octop.engine.diagnosis import server

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination
    from octop.engine.rows import Row

LIBRARY: Final = "pg_stat_statements"
LIBRARIES: Final = (
    f"First add {LIBRARY} to shared_preload_libraries, beside what stands there (to see it: pg_read_all_settings),"
    " and restart the server."
)


def costliest(examination: Examination) -> Iterator[Finding]:
    """List the statements of the engine that took the most time, or say how to get the list."""
    state = examination.ask(server.statements_state())
    if not (state["installed"] and state["loaded"]):
        unknown = not state["loaded"] and state["available"] and state["libraries"] is None
        yield found(
            "statements.not_recorded",
            "pg_stat_statements is not there",
            _cure(state),
            hint=LIBRARIES if unknown else "",
        )
        return
    if not state["may_enter"]:
        login, schema = (examination.role(each) for each in (examination.place["login"], state["installed"]))
        yield found(
            "doctor.not_looked_at",
            f"the statements not looked at: needs the right to use the schema {state['installed']}, where {LIBRARY} is",
            psql(f"grant usage on schema {schema} to {login};"),
            by=SCHEMA_OWNER,
        )
        return
    if not state["may_read"]:
        yield not_all_sessions(examination, "other logins' statements")
    rows = examination.ask(server.costliest_statements(examination.schema), also=state["installed"])
    if rows:
        lines = tuple(
            f"{row['calls']:,} calls, {row['mean_ms']:,.2f} ms each, {row['total_ms'] / 1000:,.1f} s in all: {row['text']}"
            for row in rows
        )
        yield found("statements.costliest", f"the {len(rows)} costliest statements of the engine", (), lines)


def _cure(state: Row) -> tuple[Step, ...]:
    create = psql(f"create extension if not exists {LIBRARY};")
    if state["loaded"] or (state["available"] and state["libraries"] is None):
        return create
    if not state["available"]:
        return shell("apt-get install postgresql-contrib   # or what your system calls the contrib modules")
    others = [each.strip() for each in (state["libraries"] or "").split(",") if each.strip()]
    libraries = ", ".join(f"'{each}'" for each in dict.fromkeys([*others, LIBRARY]))
    return psql(f"alter system set shared_preload_libraries = {libraries};   -- and restart the server") + create
