"""Dead rows: who keeps them, and whether anybody removes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import found
from octop.cli.findings import Finding, psql
from octop.cli.moments import spoken
from octop.cli.output import number
from octop.engine.diagnosis import vacuum
from octop.engine.script import literal

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination
    from octop.engine.rows import Row

FEEDBACK_TRANSACTIONS: Final = 20_000
DEAD_TIMES_THRESHOLD: Final = 5
"""Autovacuum begins at the threshold; five times as many dead rows means that it does not come, or not through."""
HELD_BACK: Final = "No vacuum removes what somebody may still see: end first what holds it back. The other findings about vacuum say how."


def transactions(examination: Examination) -> Iterator[Finding]:
    """Look for old transactions, prepared ones too."""
    for row in examination.ask(vacuum.prepared(examination.longer_than)):
        yield found(
            "vacuum.prepared_transaction",
            f"the prepared transaction {row['gid']} of {row['owner']} is {spoken(row['seconds'])} old",
            psql(f"rollback prepared {literal(row['gid'])};"),
        )
    if not examination.ask(vacuum.may_see_all_sessions()):
        yield not_all_sessions(examination, "other logins' transactions")
        return
    for row in examination.ask(vacuum.transactions(examination.longer_than)):
        application = f" ({row['application']})" if row["application"] else ""
        yield found(
            "vacuum.old_transaction",
            f"a transaction of {row['login']}{application}, {row['state']}, has been open for {spoken(row['seconds'])}",
            psql(f"select pg_terminate_backend({row['pid']}, 5000);"),
        )


def not_all_sessions(examination: Examination, what: str) -> Finding:
    """Return the finding that this login does not see the sessions of others."""
    login = examination.role(examination.place["login"])
    return found(
        "doctor.not_looked_at",
        f"{what} not looked at: needs pg_read_all_stats",
        psql(f"grant pg_read_all_stats to {login};"),
    )


def replication(examination: Examination) -> Iterator[Finding]:
    """Look for slots that nobody uses, and for standbys that keep dead rows."""
    for slot in examination.ask(vacuum.slots()):
        keeps = f" and keeps {slot['bytes'] / 1048576:,.0f} MB of WAL" if slot["bytes"] is not None else ""
        rows = " and dead rows" if slot["holds_rows"] else ""
        yield found(
            "vacuum.unused_slot",
            f"nobody uses the {slot['kind']} replication slot {slot['name']}: it is there{keeps}{rows}",
            psql(f"select pg_drop_replication_slot({literal(slot['name'])});"),
        )
    if not examination.ask(vacuum.may_see_all_sessions()):
        if examination.ask(vacuum.has_standbys()):
            yield not_all_sessions(examination, "the feedback of standbys")
        return
    for standby in examination.ask(vacuum.standbys(FEEDBACK_TRANSACTIONS)):
        by = f", by its replication slot {standby['slot']}," if standby["slot"] else ""
        yield found(
            "vacuum.standby_feedback",
            f"the standby {standby['name'] or standby['address']}{by} keeps the dead rows of {standby['transactions']:,} transactions",
            psql(
                f"select pg_terminate_backend({standby['pid']}, 5000);"
                "   -- it comes back; on the standby: alter system set hot_standby_feedback = off;"
            ),
        )


def tables(examination: Examination) -> Iterator[Finding]:
    """Look for dead rows, for those who keep them, and for tables that autovacuum leaves alone."""
    holders: list[Row] | None = None
    for table in examination.ask(vacuum.tables(examination.schema)):
        name = examination.sql(table["name"])
        if table["off"]:
            yield found(
                "vacuum.off_for_table",
                f"autovacuum is off for {table['name']}",
                psql(f"alter table {name} reset (autovacuum_enabled);"),
            )
        if table["dead"] > DEAD_TIMES_THRESHOLD * table["threshold"]:
            if holders is None:
                holders = examination.ask(vacuum.holders(examination.longer_than))
            when = "never" if table["vacuumed_seconds"] is None else f"{spoken(table['vacuumed_seconds'])} ago"
            yield found(
                "vacuum.dead_rows",
                f"{table['name']} has {table['dead']:,} dead rows beside {table['live']:,} living ones; vacuumed {when}",
                psql(f"vacuum (analyze) {name};"),
                tuple(f"held back by {_holder(each)}" for each in holders),
                hint=HELD_BACK if holders else "",
            )


def _holder(row: Row) -> str:
    """Say who keeps dead rows: the session, the prepared transaction, the replication slot or the standby."""
    since = f", for {spoken(row['seconds'])}" if row["seconds"] is not None else ""
    kept = f"{since}: what died in the last {number(row['transactions'], 'transaction')}"
    if row["kind"] != "session":
        return f"the {row['kind']} {row['name']}{kept}"
    application = f" ({row['application']})" if row["application"] else ""
    return f"the session {row['pid']} of {row['name']}{application}, {row['state']}{kept}"
