"""Install, upgrade and check the schema."""

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row

from octop.engine import script
from octop.engine.failures import translated
from octop.model import errors
from octop.model.version import package_version

LOCK_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Installed:
    """What is in the database, beside what this package brings.

    Attributes:
        schema: Name of the schema.
        present: Is Octop installed there at all?
        version: Version of the package that last changed it.
        missing: Migrations of this package that have not run.
        changed: Installed migrations whose text differs from this package's.
        newer: Installed migrations that this package does not know.
        functions_current: Are functions, views and grants those of this package, made for the schema's present name?
    """

    schema: str
    present: bool
    version: str | None
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    newer: tuple[str, ...]
    functions_current: bool

    @property
    def current(self) -> bool:
        """Tell whether nothing is to be done."""
        return self.present and self.functions_current and not (self.missing or self.changed or self.newer)


def status(connection: Connection[Any], schema: str = "public") -> Installed:
    """Compare the schema in the database with this package.

    Args:
        connection: Any psycopg connection.
        schema: Name of the schema.

    Raises:
        DatabaseError: The database refused.
    """
    ours = {file.name: file.checksum for file in script.migrations()}
    try:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(
                # a column of ours: the name alone may be somebody else's, which the installer's first part says
                "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                " join pg_attribute a on a.attrelid = c.oid and a.attname = 'checksum'"
                " where n.nspname = %s and c.relname = 'octop_migrations')",
                (schema,),
            )
            row = cursor.fetchone()
            if not (row and row[0]):
                return Installed(
                    schema,
                    present=False,
                    version=None,
                    missing=tuple(ours),
                    changed=(),
                    newer=(),
                    functions_current=False,
                )
            table = f"{script.quoted(schema)}.octop_migrations"
            cursor.execute(f"select name, checksum, version from {table}".encode())  # noqa: S608 - an identifier, quoted above
            theirs = {name: (checksum, version) for name, checksum, version in cursor.fetchall()}
            # the path that was pinned is the schema's name of then: ALTER SCHEMA … RENAME leaves the functions behind
            cursor.execute(
                "select exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
                " where n.nspname = %s and p.proname = 'octop_exchange'"
                " and p.proconfig @> array['search_path=' || pg_catalog.quote_ident(n.nspname::text) || ', pg_temp'])",
                (schema,),
            )
            (pinned,) = cursor.fetchone() or (False,)
    except psycopg.Error as error:
        raise translated(error) from error
    functions = theirs.pop(script.FUNCTIONS, None)
    return Installed(
        schema,
        present=True,
        version=functions[1] if functions else None,
        missing=tuple(name for name in ours if name not in theirs),
        changed=tuple(name for name, checksum in ours.items() if name in theirs and theirs[name][0] != checksum),
        newer=tuple(name for name in theirs if name not in ours),
        functions_current=pinned and functions is not None and functions[0] == script.functions_checksum(),
    )


def require(connection: Connection[Any], schema: str = "public") -> None:
    """Refuse a schema that this package can not work on.

    Raises:
        SchemaMissingError: Octop is not installed there.
        SchemaVersionError: Migrations or functions are older: ``octop migrate``.
        MigrationChangedError: An installed migration differs.
        NewerSchemaError: A newer package installed it.
    """
    found = status(connection, schema)
    if not found.present:
        message = f"Octop is not installed in schema {schema}"
        raise errors.SchemaMissingError(
            message, hint="Run: octop migrate   (or give a DBA the output of: octop sql install)"
        )
    if found.changed:
        message = f"the installed migration {found.changed[0]} differs from this package's"
        raise errors.MigrationChangedError(message, hint="Use the package that installed it, or another schema.")
    if found.newer:
        message = f"the schema knows migration {found.newer[0]}, this package does not"
        raise errors.NewerSchemaError(message, hint="Upgrade the package octop-scheduler.")
    if not found.current:
        message = f"the schema {schema} was installed by version {found.version}, which differs from this package"
        raise errors.SchemaVersionError(message, hint="Run: octop migrate")


def install(
    dsn: str,
    *,
    schema: str = "public",
    role_prefix: str = "octop_",
    version: str | None = None,
    again: bool = False,
) -> Installed:
    """Install or upgrade the schema; do nothing if it is current.

    One transaction. Locks are waited for 3 seconds at a time, so that a running system is never stopped for longer; then it is
    tried again, at most 20 times. Twenty installers at once are harmless: they wait for each other.

    Args:
        dsn: Where; empty = libpq's environment.
        schema: Name of the schema; made if it is missing and this login may.
        role_prefix: Before the names of the roles.
        version: Version to write down; default: this package's.
        again: Put functions, views, triggers and grants in place also when they are current: somebody may have changed them.

    Returns:
        The state afterwards.

    Raises:
        SchemaError: A subclass says what stands in the way and how to remove it.
        DatabaseUnreachableError: No database answers.
        NotPermittedError: This login may not create what is needed.
    """
    place = script.Place(schema, role_prefix)
    found = version or package_version()
    for left in reversed(range(LOCK_TRIES)):
        try:
            with psycopg.connect(dsn, autocommit=True, application_name="octop migrate") as connection:
                return _install_once(connection, place, found, again=again)
        except psycopg.errors.LockNotAvailable as error:
            if not left:
                raise translated(error) from error
        except psycopg.Error as error:
            raise _refusal(error) from error
    message = "the installer neither returned nor raised"
    raise RuntimeError(message)


def _refusal(error: psycopg.Error) -> errors.OctopError:
    """Translate; what our checks say in PostgreSQL's own codes is about the schema: another's names, another prefix, a table gone."""
    if isinstance(
        error,
        psycopg.errors.DuplicateTable | psycopg.errors.DuplicateObject | psycopg.errors.ObjectNotInPrerequisiteState,
    ):
        said = error.diag
        message = (said.message_primary or "").removeprefix("octop: ")
        return errors.SchemaError(message, hint=said.message_hint or "", detail=said.message_detail or "")
    return translated(error)


def _install_once(connection: Connection[Any], place: script.Place, version: str, *, again: bool) -> Installed:
    before = status(connection, place.schema)
    if before.current and not again:
        return before
    if before.changed or before.newer:
        require(connection, place.schema)
    connection.execute(script.opening(place).encode())
    try:
        # another installer may have been at it while we waited
        if again or not status(connection, place.schema).current:
            connection.execute(script.body(place, version).encode())
        connection.execute("commit")
    except psycopg.Error:
        if not connection.closed:
            connection.execute("rollback")
        raise
    return status(connection, place.schema)
