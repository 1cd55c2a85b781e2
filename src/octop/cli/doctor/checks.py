"""The checks in their order, each with what it may find and what it says when all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from octop.cli.doctor import (
    clocks,
    connections,
    days,
    grants,
    package,
    schedules,
    schema,
    settings,
    statements,
    vacuum,
    work,
)

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination
    from octop.cli.findings import Finding
    from octop.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Check:
    """One question to the database.

    Attributes:
        fine: What it says when it finds nothing.
        ids: What it may find.
        run: Asks, and yields what it finds.
        always: It needs no schema of this version.
        owned: It judges by the owner's role: it says nothing while objects belong to another one.
        private: Asked on the private development database too.
    """

    fine: str
    ids: tuple[str, ...]
    run: Callable[[Examination], Iterator[Finding]]
    always: bool = False
    owned: bool = False
    private: bool = True

    @property
    def subject(self) -> str:
        """Return what it is about: the part of its ids before the dot."""
        return self.ids[0].partition(".")[0]


@dataclass(frozen=True, slots=True)
class LocalCheck:
    """One look at this machine, for which no database is needed."""

    fine: str
    ids: tuple[str, ...]
    run: Callable[[Settings], Iterator[Finding]]

    @property
    def subject(self) -> str:
        """Return what it is about: the part of its ids before the dot."""
        return self.ids[0].partition(".")[0]


VERSION: Final = Check(
    "migrations and functions are those of this package",
    ("schema.missing", "schema.older", "schema.newer", "schema.migration_changed"),
    schema.version,
    always=True,
)

OWNERSHIP: Final = Check("all objects belong to the owner's role", ("schema.owner_differs",), schema.ownership)

LOCAL: Final = (
    LocalCheck(
        "octop is imported from where octop-scheduler is installed",
        ("package.clash", "package.elsewhere", "package.twice"),
        lambda _: package.distributions(),
    ),
    LocalCheck(
        "every variable OCTOP_… means something", ("environment.unknown_variable",), lambda _: package.variables()
    ),
    LocalCheck("no password lies open in a file", ("environment.readable_password",), package.passwords),
)

CHECKS: Final = (
    VERSION,
    OWNERSHIP,
    Check(
        "tables, indexes, constraints, triggers, functions and views are as installed",
        (
            "schema.code_differs", "schema.trigger_disabled", "schema.table_missing", "schema.table_differs",
            "schema.index_missing", "schema.index_invalid", "schema.constraint_differs", "schema.foreign_trigger",
            "schema.foreign_column",
        ),
        schema.objects,
    ),
    Check("only the owner creates objects in the schema", ("grants.public_creates", "grants.others_create"), grants.creators, owned=True),
    Check("nothing in the schema poses as PostgreSQL's own", ("grants.posing",), grants.posing, owned=True),
    Check(
        "each role has the rights that it needs, and nobody more",
        ("grants.too_wide", "grants.on_leaf", "grants.public_execute", "grants.direct", "grants.missing"),
        grants.objects,
        owned=True,
    ),
    Check(
        "the roles of Octop have no power over the server, and its owner's can not log in",
        ("roles.owner_is_mighty", "roles.group_is_mighty"),
        grants.roles,
        owned=True,
    ),
    Check(
        "no application works as owner or superuser",
        ("roles.member_of_owner", "roles.installer", "roles.application_is_mighty"),
        grants.logins,
        owned=True,
        private=False,
    ),
    Check("every worker beats", ("workers.silent", "workers.left_behind"), work.silent),
    Check("workers fit the schema and each other", ("workers.older_than_schema", "workers.mixed_versions"), work.versions),
    Check("every queue with due tasks is served", ("queues.unserved",), work.unserved),
    Check("no queue with due tasks has the limit 0", ("queues.stopped",), work.stopped),
    Check("no served queue stands still", ("queues.stuck",), work.stuck_queues),
    Check("nothing has been paused or frozen for more than a day", ("queues.paused", "types.frozen"), work.paused),
    Check("every parked task has a worker that knows its type", ("types.unknown",), work.types),
    Check("no task waits for a person", ("tasks.frozen",), work.frozen),
    Check("every running task has a worker, and ends in time", ("tasks.overdue", "tasks.orphaned"), work.stuck),
    Check("the counters agree with the tasks", ("tasks.counters_drifted",), work.counters),
    Check("every schedule fires in time", ("schedules.unfired", "schedules.no_worker", "schedules.failing"), schedules.overdue),
    Check("days of history are made and dropped in time", ("days.missing", "days.stray", "days.not_dropped"), days.partitions),
    Check("somebody sweeps", ("days.no_worker", "days.nobody_sweeps"), days.sweep),
    Check(
        "no old transaction holds back vacuum",
        ("vacuum.old_transaction", "vacuum.prepared_transaction"),
        vacuum.transactions,
        always=True,
    ),
    Check(
        "no replication slot and no standby holds back vacuum",
        ("vacuum.unused_slot", "vacuum.standby_feedback"),
        vacuum.replication,
        always=True,
    ),
    Check("dead rows are removed from every table", ("vacuum.dead_rows", "vacuum.off_for_table"), vacuum.tables),
    Check(
        "no setting of PostgreSQL hurts",
        ("settings.standby", *(f"settings.{name}" for name in settings.RULES)),
        settings.server_and_logins,
        private=False,
    ),
    Check("there are connections for all workers and their pools", ("connections.too_few",), connections.room),
    Check("no pooler stands in front", ("connections.pooler",), connections.pooler, always=True),
    Check(
        "statements are recorded",
        ("statements.costliest", "statements.not_recorded"),
        statements.costliest,
        always=True,
        private=False,
    ),
    Check("PostgreSQL and Python have the same time zones", ("clocks.zones_differ",), clocks.zones, always=True, private=False),
    Check("the clocks agree", ("clocks.skew", "clocks.far_apart"), clocks.skew, always=True),
)  # fmt: skip
