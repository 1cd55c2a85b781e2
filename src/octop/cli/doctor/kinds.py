"""The one table of everything that the doctor can find: ids, severities, reasons. `docs/reference/doctor.md` is made from it."""

# ruff: noqa: E501 - a row of the table is read along, not down

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from octop.cli.findings import Finding, Kind, Severity, Step

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

# Within a subject in the order in which they are cured: functions come after the tables that they need.
KINDS: Final = (
    # --- schema ---
    Kind("schema.missing", ERROR, "Octop is not installed in the schema", "Nothing works without its tables and functions.", "`octop migrate`"),
    Kind("schema.older", ERROR, "the schema is older than the package", "New code calls functions that are not there yet.", "`octop migrate`"),
    Kind("schema.newer", ERROR, "the schema is newer than the package", "This package does not know what has changed; it judges by old rules.", "upgrade the package"),
    Kind("schema.migration_changed", ERROR, "an installed migration differs from the package's", "Two histories under one name: nobody knows what the tables look like.", "use the package that installed it"),
    Kind("schema.table_missing", ERROR, "a table or sequence is missing", "Every function that names it fails. What stood in it is gone: look for a backup first.", "the statements that make it again"),
    Kind("schema.table_differs", ERROR, "a column is missing or another one, or a table is detached", "Functions name each column; a detached part hides its tasks.", "`alter table …`"),
    Kind("schema.constraint_differs", WARNING, "a constraint is missing, another one or not validated", "What it refuses can get in, and stops a worker later.", "`alter table … add constraint …`"),
    Kind("schema.index_missing", WARNING, "an index is missing or another one", "Claims and look-ups read the whole table instead: they grow slow with the backlog.", "`create index concurrently …`"),
    Kind("schema.index_invalid", WARNING, "an index is invalid", "It costs every write and serves no read: its making was broken off.", "`reindex index concurrently …`"),
    Kind("schema.owner_differs", ERROR, "an object does not belong to the owner's role", "Functions run with their owner's rights: those of a superuser may do everything, those of others too little.", "`alter … owner to …`"),
    Kind("schema.trigger_disabled", ERROR, "a trigger is disabled", "It guards what comes in by hand, counts it and writes it to the audit.", "`alter table … enable trigger`"),
    Kind("schema.foreign_trigger", WARNING, "a trigger of others stands on a table of ours", "It runs within every enqueue or exchange: all tasks pay its time, and its errors undo whole batches.", "`drop trigger … on …`"),
    Kind("schema.code_differs", ERROR, "a function, view or trigger is missing or another one", "Every decision is made there: other code decides otherwise, on all workers.", "`octop migrate --again`, or `octop sql upgrade` into psql"),
    Kind("schema.foreign_column", WARNING, "a table of ours has a column of others", "The engine moves tasks from table to table by the names of its own columns: what stands in another one is lost there, and one that may not be null stops every enqueue.", "`alter table … drop column …`"),
    # --- grants ---
    Kind("grants.public_creates", ERROR, "PUBLIC may create objects in the schema", "Anyone could slip a function into the engine's path and act with its rights.", "`revoke create on schema … from public`"),
    Kind("grants.others_create", WARNING, "another role may create objects in the schema", "It could slip a function into the engine's path and act with its rights.", "`revoke create on schema … from …`"),
    Kind("grants.posing", ERROR, "a function or operator of others bears a name of PostgreSQL's", "Our functions may call it instead, with the owner's rights: its owner could do everything to the tasks.", "`drop function …`, or `alter function … set schema …`"),
    Kind("grants.too_wide", WARNING, "a role may write where the functions should", "What is written past the functions is not checked, not counted and not in the audit.", "`revoke …`, and grant octop_producer to who enqueues"),
    Kind("grants.on_leaf", WARNING, "a role has rights on a leaf or a private table", "The guards stand on octop_tasks: who names a leaf goes around them. Private tables may change at any time.", "`revoke …`"),
    Kind("grants.public_execute", WARNING, "PUBLIC may run a function", "Any login of this database could claim, cancel or configure.", "`revoke … from public`"),
    Kind("grants.direct", INFO, "a role has a right directly, not by one of the roles", "It does no harm, but it stays when the role is taken away, and new versions know nothing of it.", "`revoke …`, and grant a role"),
    Kind("grants.missing", WARNING, "a right that a role needs is gone", "Workers, producers or operators fail with 42501; without the owner's CREATE on the schema no day of history can be made.", "`octop migrate --again`, or `octop sql upgrade` into psql; for the schema `grant …`"),
    # --- roles ---
    Kind("roles.owner_is_mighty", ERROR, "the owner's role is a superuser, may bypass row security, create roles or databases, replicate, or can log in", "Functions run with its rights: a fault in one of them would have no limit.", "`alter role …`"),
    Kind("roles.group_is_mighty", WARNING, "another role of Octop's is a superuser, may bypass row security, create roles or databases, or replicate", "Each of its members may take that power: set role.", "`alter role …`"),
    Kind("roles.member_of_owner", WARNING, "the login of an application is a member of the owner's role", "The application could drop tables, change functions and erase the audit.", "`revoke … from …`"),
    Kind("roles.installer", INFO, "a login is a member of the owner's role", "Needed for `octop migrate` by one who is no superuser; between two upgrades it may go.", "`revoke … from …`"),
    Kind("roles.application_is_mighty", WARNING, "the login of an application is a superuser, or may bypass row security or create roles", "Nothing limits it: a task with a fault can do everything to the whole server.", "`alter role …`, or a login of its own"),
    # --- workers ---
    Kind("workers.silent", WARNING, "a worker that holds tasks has been silent for longer than the lease", "Its tasks wait until a living worker gives them to others.", "`select octop_lost(…)`"),
    Kind("workers.left_behind", INFO, "a worker is gone without a word and holds nothing", "It was killed, or its machine was. Its row goes by itself within the hour.", "`select octop_lost(…)`"),
    Kind("workers.older_than_schema", WARNING, "a worker runs an older package than the schema", "It goes on working for one release; then it will call functions that are gone.", "restart it with the new package"),
    Kind("workers.mixed_versions", INFO, "living workers run different versions of the package", "Normal while a new version is rolled out, a forgotten machine afterwards.", "restart those with the older one"),
    # --- queues and types ---
    Kind("queues.unserved", WARNING, "tasks of a queue are due and no living worker serves it", "They wait for ever.", "`octop worker -q …`"),
    Kind("queues.paused", INFO, "a queue has been paused for more than a day", "Somebody may have forgotten it.", "`octop queues resume …`"),
    Kind("queues.stopped", INFO, "tasks of a queue are due and its limit is 0", "They wait until somebody lifts the limit; a queue that is to rest is better paused, with a reason.", "`octop queues scale … reset`"),
    Kind("queues.stuck", WARNING, "tasks of a queue have been due for more than a minute, living workers serve it, and none of them runs", "Its workers hang, are refused by the database, or all their places are taken by tasks of other queues.", "look at `octop workers`, at their logs and at their health probes"),
    Kind("types.unknown", WARNING, "tasks are parked because no living worker of their queue knows their type", "A deploy is missing, or the function was renamed: they wait for ever.", "`octop worker …` with the application that knows it; an alias for a renamed function; or `octop tasks cancel`"),
    Kind("types.frozen", INFO, "a task type has been frozen for more than a day", "Somebody may have forgotten it.", "`octop types thaw …`"),
    Kind("tasks.frozen", INFO, "frozen tasks wait for a person", "They have used up their retries; nothing happens by itself.", "look with `octop failures`, then `octop tasks retry` or `cancel`"),
    Kind("tasks.overdue", WARNING, "running tasks are past their time limit, and neither their worker nor a sweep has ended them", "They hold their places, and the retry that is due to them does not come.", "`select octop_sweep(…)`, and see why no worker does it"),
    Kind("tasks.orphaned", WARNING, "running tasks name no worker, or one that has no row", "Nobody's silence can be judged: they seem to run until a sweep finds them.", "`select octop_sweep(…)`, and see why no worker does it"),
    Kind("tasks.counters_drifted", WARNING, "the counters differ from the tasks, as far as these can be counted (50,000 of a status)", "Views, dashboard and metrics show wrong numbers; nothing is decided by them.", "`select octop_recount()`"),
    # --- schedules ---
    Kind("schedules.unfired", WARNING, "slots of schedules are overdue, though workers live", "Nobody fires: no task of theirs is made until somebody does.", "`select octop_tick()`, and see why no worker does it"),
    Kind("schedules.no_worker", WARNING, "slots of schedules are overdue, because no worker lives", "No task of theirs is made until a worker starts, or pg_cron or somebody calls octop_tick.", "`octop worker`, or `select octop_tick()`"),
    Kind("schedules.failing", WARNING, "the last slot of a schedule made no task", "What the schedule is for does not happen; its next slots will probably fail alike.", "correct the schedule: `octop schedules show …`, then `set`"),
    # --- days ---
    Kind("days.missing", WARNING, "days of history have no partition", "Tasks that finish then go into the stray partition, which retention can not drop.", "`select octop_make_days()`"),
    Kind("days.stray", WARNING, "finished tasks lie in the stray partition", "No worker made days for a while; retention drops days, never strays.", "`select octop_make_days()`"),
    Kind("days.not_dropped", WARNING, "days of history are older than the retention time", "The disk fills. A reader that never ends, or a view on a day, keeps the sweep from dropping it.", "`select octop_drop_days(…)`"),
    Kind("days.no_worker", INFO, "the chores of the sweep are overdue, because no worker lives", "Until one starts, no days are made and dropped, no counters folded.", "`octop worker`, or `select octop_sweep(…)`"),
    Kind("days.nobody_sweeps", WARNING, "the chores of the sweep are overdue, though workers live", "Nobody rescues tasks of dead workers, folds counters, makes and drops days.", "`select octop_sweep(…)`, and see why no worker does it"),
    # --- vacuum ---
    Kind("vacuum.old_transaction", WARNING, "an old transaction holds back vacuum", "Dead rows pile up in front of the claims: a drain of 30,000 tasks/s fell to 2,300.", "`select pg_terminate_backend(…)`"),
    Kind("vacuum.prepared_transaction", WARNING, "a prepared transaction holds back vacuum", "It survives restarts and keeps its locks until somebody ends it.", "`rollback prepared …` or `commit prepared …`"),
    Kind("vacuum.unused_slot", WARNING, "a replication slot is used by nobody", "It keeps WAL until the disk is full, and may keep dead rows.", "`select pg_drop_replication_slot(…)`"),
    Kind("vacuum.standby_feedback", WARNING, "the feedback of a standby holds back vacuum", "A long query there keeps dead rows here.", "end the query there, or `hot_standby_feedback = off`"),
    Kind("vacuum.dead_rows", WARNING, "a hot table has many dead rows", "Autovacuum does not keep up, or is held back.", "`vacuum …`"),
    Kind("vacuum.off_for_table", WARNING, "autovacuum is off for a table", "Dead rows stay for ever, and transaction ids run out.", "`alter table … reset (autovacuum_enabled)`"),
    # --- settings of PostgreSQL ---
    Kind("settings.standby", ERROR, "the DSN leads to a standby", "It is read-only: nothing can be enqueued or claimed there.", "a DSN that leads to the primary"),
    Kind("settings.autovacuum", ERROR, "autovacuum is off", "Dead rows stay for ever, and transaction ids run out.", "`alter system …`"),
    Kind("settings.track_counts", WARNING, "track_counts is off", "Autovacuum does not know where dead rows are.", "`alter system …`"),
    Kind("settings.track_activities", WARNING, "track_activities is off", "Nobody can see who holds back vacuum, nor what runs.", "`alter system …`"),
    Kind("settings.fsync", ERROR, "fsync is off", "A power cut can destroy the whole database.", "`alter system …`"),
    Kind("settings.full_page_writes", ERROR, "full_page_writes is off", "A power cut can destroy pages.", "`alter system …`"),
    Kind("settings.synchronous_commit", INFO, "synchronous_commit is off", "A crash of the server forgets the last enqueues and outcomes, up to 0.6 s; tasks may then run again.", "`alter …`"),
    Kind("settings.jit", INFO, "jit is on", "It costs more than it gives for short statements, above all with stale statistics.", "`alter …`"),
    Kind("settings.idle_session_timeout", WARNING, "idle_session_timeout ends idle sessions", "It ends the listening session of a worker again and again, and sessions of the pools.", "`alter …`"),
    Kind("settings.transaction_timeout", INFO, "transaction_timeout is below a minute", "It ends transactional tasks that take longer.", "`alter …`"),
    Kind("settings.default_transaction_isolation", ERROR, "default_transaction_isolation is not read committed", "The exchange refuses it (OC301): a limit can not be kept on an old snapshot.", "`alter …`"),
    Kind("settings.default_transaction_read_only", ERROR, "default_transaction_read_only is on", "Nothing can be enqueued or claimed.", "`alter …`"),
    Kind("settings.idle_in_transaction_session_timeout", INFO, "idle_in_transaction_session_timeout is below a minute", "It ends transactional tasks that ask the database nothing for longer, and their attempt with them. The engine itself leaves no transaction idle.", "`alter …`"),
    Kind("settings.session_replication_role", ERROR, "session_replication_role is not origin", "No trigger fires: what is inserted or changed by hand is not checked, not counted, not in the audit, and wakes nobody.", "`alter …`"),
    Kind("settings.statement_timeout", WARNING, "statement_timeout is below ten seconds", "It ends sweeps and large enqueues in the middle.", "`alter …`"),
    Kind("settings.lock_timeout", INFO, "lock_timeout is set", "The engine has short limits of its own where it must not wait; yours meets enqueues of your transactions.", "`alter …`"),
    # --- connections ---
    Kind("connections.too_few", WARNING, "workers and their pools may ask for more connections than there are", "At the busiest moment workers and your web servers are refused with 53300.", "`octop config set db.connection_pool_size …`, or more connections"),
    Kind("connections.pooler", INFO, "a connection pooler stands in front", "In transaction mode, as PgBouncer's, LISTEN does not work: nobody would wake an idle worker. All else does.", "`octop worker --poll-only`, or a DSN past the pooler for the workers"),
    # --- statements ---
    Kind("statements.costliest", INFO, "the costliest statements of the engine", "Where the database's time goes.", "nothing to cure"),
    Kind("statements.not_recorded", INFO, "pg_stat_statements is not there", "Nobody can tell where the database's time went.", "`create extension pg_stat_statements`"),
    # --- clocks ---
    Kind("clocks.zones_differ", WARNING, "PostgreSQL and Python have different time zone data", "The same wall time is another instant here and there: a daily task runs an hour off.", "update both: tzdata of the system, of PostgreSQL, of pip"),
    Kind("clocks.skew", INFO, "the clock of this machine is more than a second off the database's", "The database's counts. Times in logs do not agree with those in tables.", "synchronise the clocks"),
    Kind("clocks.far_apart", WARNING, "the clock of this machine is more than a minute off the database's", "Ids made here hold a moment: lists are out of order, and finished tasks are looked for in the wrong days.", "synchronise the clocks"),
    # --- package and environment ---
    Kind("package.clash", ERROR, "the unrelated distribution `octop` is installed beside octop-scheduler", "Both bring a package octop: whichever was installed last has overwritten files of the other.", "`pip uninstall octop`, then octop-scheduler again"),
    Kind("package.elsewhere", WARNING, "octop is imported from elsewhere than the installed distribution", "A folder or an older copy in front of it hides what you installed.", "remove it from the path"),
    Kind("package.twice", WARNING, "several copies of octop-scheduler are on the path", "Which one runs depends on the order of the path.", "uninstall the others"),
    Kind("environment.unknown_variable", WARNING, "a variable OCTOP_… means nothing", "A setting that you believe in does not hold.", "`unset …`"),
    Kind("environment.readable_password", WARNING, "a file with a password can be read by others", "Every login of this machine could read it.", "`chmod 600 …`"),
    # --- about the doctor itself ---
    Kind("doctor.not_looked_at", INFO, "a check had not the right to look", "It says nothing about what it did not see.", "`grant … to …`"),
    Kind("doctor.failed", WARNING, "a check failed or took too long", "It says nothing about what it did not see.", "run it alone: `octop doctor --only …`"),
)  # fmt: skip

BY_ID: Final = {kind.id: kind for kind in KINDS}
RANK: Final = {kind.id: number for number, kind in enumerate(KINDS)}

SUPERUSER: Final = "a superuser"
MEMBERSHIP: Final = "a superuser, or a role with ADMIN OPTION on the granted role"
SCHEMA_OWNER: Final = "the schema's owner, or a superuser"
SIGNAL: Final = "a member of pg_signal_backend, or the same login; for a superuser's session, a superuser"
RUN_BY: Final[Mapping[str, str]] = {
    "schema.owner_differs": "a superuser, or a member of both roles",
    "grants.public_creates": SCHEMA_OWNER,
    "grants.others_create": SCHEMA_OWNER,
    "grants.posing": "its owner, the schema's owner, or a superuser",
    "roles.owner_is_mighty": SUPERUSER,
    "roles.group_is_mighty": SUPERUSER,
    "roles.member_of_owner": MEMBERSHIP,
    "roles.installer": MEMBERSHIP,
    "roles.application_is_mighty": SUPERUSER,
    "vacuum.old_transaction": SIGNAL,
    "vacuum.prepared_transaction": "the role that prepared it, or a superuser, in this database",
    "vacuum.unused_slot": "a login with REPLICATION, or a superuser",
    "vacuum.standby_feedback": SIGNAL,
    "statements.not_recorded": SUPERUSER,
    "doctor.not_looked_at": MEMBERSHIP,
}
"""Who may run the cure in psql, where it is not simply a member of the owner's role; of settings it depends on where they are."""


def found(
    kind_id: str,
    what: str,
    cure: tuple[Step, ...] = (),
    detail: tuple[str, ...] = (),
    *,
    hint: str = "",
    by: str = "",
    task_type: str = "",
    count: int = 0,
    ids: tuple[str, ...] = (),
) -> Finding:
    """Return a finding of a kind of the table; its hint also says who may run the cure.

    Args:
        kind_id: Of the table.
        what: What was found here.
        cure: What to run.
        detail: Lines that show it.
        hint: What else to do.
        by: Who may run the cure, where the table does not say it.
        task_type: The task type that it is about.
        count: How many tasks or workers.
        ids: Of the first ten of them.
    """
    who = by or RUN_BY.get(kind_id, "")
    if who and any(step.place == "psql" for step in cure):
        hint = " ".join(filter(None, (hint, f"In psql as {who}.")))
    return Finding(BY_ID[kind_id], what, cure, hint, detail, task_type, count, ids)


def subjects() -> list[str]:
    """Return what the kinds are about, in the order of the table."""
    return list(dict.fromkeys(kind.subject for kind in KINDS))


def chosen(words: tuple[str, ...]) -> frozenset[str]:
    """Return the ids that words name: ids, or subjects for all of theirs.

    Raises:
        LookupError: A word names nothing; its argument says which one may be meant.
    """
    ids: set[str] = set()
    for word in words:
        these = {kind.id for kind in KINDS if word in {kind.id, kind.subject}}
        if not these:
            near = difflib.get_close_matches(word, [*BY_ID, *subjects()], n=1)
            message = f"{word!r} is no finding" + (
                f"; did you mean {near[0]}?" if near else f". There are, of each all: {', '.join(subjects())}"
            )
            raise LookupError(message)
        ids |= these
    return frozenset(ids)
