"""Connections: as many as workers and their pools may ask for, and no pooler that swallows LISTEN."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import SUPERUSER, found
from octop.cli.findings import Finding, Step, psql
from octop.engine.connect import open_connection
from octop.engine.diagnosis import look, server
from octop.model.errors import DatabaseUnreachableError

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination
    from octop.engine.rows import Row

PER_WORKER: Final = 4
"""Two exchanges, control and LISTEN."""
PER_SUPERVISOR: Final = 2
"""Its heartbeat, and the one that fires schedules, whatever the number of its processes."""
SPARE: Final = 10
"""A cure leaves room for whoever connects while it is carried out: a person with psql, this command, a backend that is just ending."""
PASSING: Final = 2
"""Connections that come and go between two looks: this examination's own, of which one is still closing."""

LOOKS: Final = 2
"""In transaction mode a connection has another server process now and then, and two connections have the same one after each other."""
PAST_IT: Final = "Workers gain nothing by a pooler: a DSN that leads past it lets them listen."


def room(examination: Examination) -> Iterator[Finding]:
    """Compare what living workers may ask for with what there is."""
    row = examination.ask(server.connections())
    free = row["max"] - row["reserved"] - max(0, row["used"] - row["ours"])
    narrow = 0 <= row["database_limit"] < free
    if narrow:
        free = min(free, row["database_limit"] - max(0, row["database_used"] - row["ours"]))
    fixed, pools, most = _demand(row, row["pool_size"])
    if row["workers"] and most > free:
        yield found(
            "connections.too_few",
            f"{row['workers']} workers need {_words(row['pool_size'], fixed, most)}; there is room for {max(0, free)}",
            _cure(
                examination, row, fitting=(free - PASSING - fixed) // pools, missing=most - free + SPARE, narrow=narrow
            ),
            by="the database's owner" if narrow else SUPERUSER,
        )
    for each in row["roles"]:
        yield from _limited(examination, each, row["pool_size"])


def _limited(examination: Examination, row: Row, pool: int) -> Iterator[Finding]:
    """Compare what the workers of one login may ask for with the limit of that login."""
    fixed, pools, most = _demand(row, pool)
    free = row["limit"] - row["others"]
    if most <= free:
        return
    fitting = (free - fixed) // pools
    login = examination.role(row["role"])
    yield found(
        "connections.too_few",
        f"workers of the login {row['role']} need {_words(pool, fixed, most)}; its limit leaves room for {max(0, free)}",
        examination.octop(f"config set db.connection_pool_size {fitting}")
        if fitting >= 1
        else psql(f"alter role {login} connection limit {row['limit'] + most - free + SPARE};"),
        by="" if fitting >= 1 else "a superuser, or a role with CREATEROLE and ADMIN OPTION on it",
    )


def _demand(row: Row, pool: int) -> tuple[int, int, int]:
    """Return how many connections workers hold, how many pools they have beside, and how many they hold at most."""
    fixed: int = PER_WORKER * row["workers"] + PER_SUPERVISOR * row["supervisors"]
    # one for what tasks enqueue, one for transactions that are lent to tasks
    pools: int = row["workers"] * (2 if row["lends"] else 1)
    return fixed, pools, fixed + pool * pools


def _words(pool: int, fixed: int, most: int) -> str:
    return f"{fixed} connections, and {most} when their pools of {pool} are full"


def _cure(examination: Examination, row: Row, *, fitting: int, missing: int, narrow: bool) -> tuple[Step, ...]:
    if fitting >= 1:
        return examination.octop(f"config set db.connection_pool_size {fitting}")
    if narrow:
        database = examination.role(row["database"])
        return psql(f"alter database {database} connection limit {row['database_limit'] + missing};")
    return psql(f"alter system set max_connections = {row['max'] + missing};   -- and restart the server")


def pooler(examination: Examination) -> Iterator[Finding]:
    """Look whether somebody stands between us and the server, and whether sessions are kept apart there."""
    mine = {examination.ask(server.process_id())}
    if mine == {examination.connection.info.backend_pid}:
        return
    mine |= {examination.ask(server.process_id()) for _ in range(LOOKS)}
    if len(mine) > 1 or _of_another(examination) in mine:
        yield found(
            "connections.pooler",
            "a connection pooler in transaction mode stands in front of the database: no LISTEN through it",
            examination.worker(" --poll-only"),
            hint=PAST_IT,
        )
    else:
        yield found(
            "connections.pooler",
            "a connection pooler stands in front of the database; as far as can be seen it keeps sessions apart",
            hint="In session mode LISTEN works, and nothing need be done. " + PAST_IT,
        )


def _of_another(examination: Examination) -> int | None:
    """Return which server process another connection is given; None if there is no room for another."""
    try:
        other = open_connection(examination.settings.dsn or "", application_name="octop", schema=examination.schema)
    except DatabaseUnreachableError:
        return None
    with contextlib.closing(other):
        return look(other, server.process_id(), seconds=examination.check_seconds)
