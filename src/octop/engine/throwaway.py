"""Databases that live for one test: copies of a template in which Octop is installed, and a clock that a test can bend.

Several processes may do this on one server at once (pytest-xdist, two checkouts): the template has the fingerprint of the
SQL files and the day in its name and is made by whoever comes first. Each process holds a lock while it lives; the databases of a
process whose lock is free are left over, and the next one drops them.
"""

import contextlib
import hashlib
import secrets
from datetime import date
from typing import Any, Final, LiteralString
from urllib.parse import quote, urlencode

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict

from octop.engine import script
from octop.engine.call import Call, first_value
from octop.engine.failures import translated
from octop.engine.install import install
from octop.model.errors import ConfigurationError
from octop.model.version import package_version

NAME: Final = "octop_test_"
KEPT: Final = "octop_kept_"
TEMPLATE: Final = "octop_template_"
TEMPLATES_MAX: Final = 3
"""So many templates stay on a server, one per version of the schema and day; the oldest goes first."""
LOCK_OF_RUNS: Final = 0x0C70
LOCK_OF_TEMPLATES: Final = 0x0C71


def fingerprint(schema: str, day: date) -> str:
    """Return what a template's name says about its content: 16 hex digits of a hash over all SQL files, the schema and the day.

    The day, because the days of history are those of the installation: a copy has what an installation of today has.
    """
    parts = [
        package_version(),
        day.isoformat(),
        schema,
        *(file.checksum for file in script.migrations()),
        script.functions_checksum(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def url_of(dsn: str, database: str) -> str:
    """Return a DSN, in whichever form, as a URL that leads to another database of the same server.

    Args:
        dsn: A URL or key=value words.
        database: Name of the database.

    Example:
        >>> url_of("host=db user=ann dbname=shop", "octop_test_1")
        'postgresql://ann@db/octop_test_1'
        >>> url_of("postgresql:///shop?host=/run/postgresql", "octop_test_1")
        'postgresql:///octop_test_1?host=/run/postgresql'
    """
    words = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    words.pop("dbname", None)
    place = ""
    if (host := words.get("host", "")) and not set("/,:") & set(host):
        user, password, port = words.pop("user", ""), words.pop("password", ""), words.pop("port", "")
        del words["host"]
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        place = (f"{login}@" if login else "") + host + (f":{port}" if port else "")
    query = f"?{urlencode(words, safe='/', quote_via=quote)}" if words else ""
    return f"postgresql://{place}/{quote(database, safe='')}{query}"


class Throwaways:
    """The throw-away databases of this process on one server.

    Args:
        dsn: A login that may create databases, and roles if the server has none of Octop's yet. Its own database is
            only connected to.

    Raises:
        DatabaseUnreachableError: No database answers.
        NotPermittedError: The login may not create databases.
    """

    def __init__(self, dsn: str) -> None:
        """Connect, say that this run lives, and drop what dead ones left."""
        self._dsn = dsn
        self._key = secrets.randbits(31)
        self._ready: set[str] = set()
        try:
            self._connection: Connection[Any] = psycopg.connect(
                dsn, autocommit=True, application_name="octop testing", connect_timeout=10
            )
            self._ask("select pg_advisory_lock(%s, %s)", LOCK_OF_RUNS, self._key)
            # advisory locks belong to a database: runs that connect to another one can not be asked whether they live
            oid = self._ask("select oid from pg_database where datname = current_database()")
            self._house = f"{NAME}{oid:x}_"
            self._strategy = ""
            if self._connection.info.server_version >= 150_000 and self._ask("show fsync") == "off":
                self._strategy = " strategy file_copy"  # 40 ms; copying through the log takes twice as long
            self._drop_leftovers()
        except psycopg.Error as error:
            raise translated(error) from error

    def create(self, schema: str, *, keep: bool = False) -> str:
        """Make a database with Octop in it, in some tens of milliseconds once the template is there.

        Args:
            schema: Where Octop is to be installed.
            keep: Give it a name that nobody cleans up.

        Returns:
            Its name.

        Raises:
            OctopError: The database refused; the class says why.
        """
        name = f"{KEPT}{secrets.token_hex(6)}" if keep else f"{self._house}{self._key:08x}_{secrets.token_hex(4)}"
        try:
            try:
                self._copy(self._template(schema), name)
            except psycopg.errors.InvalidCatalogName:  # another version's run has dropped it as the oldest
                self._ready.clear()
                self._copy(self._template(schema), name)
        except psycopg.Error as error:
            raise translated(error) from error
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected.

        Args:
            name: What ``create`` returned.
        """
        try:
            self._connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        except psycopg.Error as error:
            raise translated(error) from error

    def close(self) -> None:
        """Drop what is left of this run and disconnect."""
        with contextlib.suppress(psycopg.Error):
            self._drop_all(f"{self._house}{self._key:08x}_")
        self._connection.close()

    def url(self, name: str) -> str:
        """Return the URL of one of the databases."""
        return url_of(self._dsn, name)

    def _ask(self, statement: str, *values: object) -> Any:
        return first_value(self._connection.execute(statement.encode(), values or None).fetchall())

    def _copy(self, template: str, name: str) -> None:
        self._connection.execute(
            sql.SQL("create database {} template {}" + self._strategy).format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )

    def _template(self, schema: str) -> str:
        """Return the name of the template; make it, if no other process has or does."""
        today = self._ask("select (now() at time zone 'UTC')::date")
        name = f"{TEMPLATE}{fingerprint(schema, today)}"
        if name in self._ready:
            return name
        # roles belong to the server, so one installer at a time, whatever the schema
        self._ask("select pg_advisory_lock(%s, 0)", LOCK_OF_TEMPLATES)
        try:
            if not self._ask("select exists (select from pg_database where datname = %s)", name):
                self._make_template(name, schema)
                self._drop_old_templates()
        finally:
            self._ask("select pg_advisory_unlock(%s, 0)", LOCK_OF_TEMPLATES)
        self._ready.add(name)
        return name

    def _make_template(self, name: str, schema: str) -> None:
        # While unfinished it is one of this run's own, so it goes with them if its maker dies.
        unfinished = f"{self._house}{self._key:08x}_template"
        self._connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(unfinished)))
        with psycopg.connect(self.url(unfinished), autocommit=True) as connection:
            connection.execute("revoke create on schema public from public")  # the default since 15
        install(self.url(unfinished), schema=schema)
        try:
            self._alter(unfinished, "rename to {}", name)
        except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            # advisory locks belong to a database: a run that connects to another one was faster
            self.drop(unfinished)
        else:
            self._alter(name, "is_template true allow_connections false")

    def _alter(self, name: str, change: LiteralString, *names: str) -> None:
        statement = sql.SQL("alter database {} " + change)
        self._connection.execute(statement.format(sql.Identifier(name), *map(sql.Identifier, names)))

    def _drop_old_templates(self) -> None:
        old = self._connection.execute(
            "select datname from pg_database where datname ~ %s and pg_has_role(datdba, 'member')"
            " order by oid desc offset %s",
            (f"^{TEMPLATE}[0-9a-f]+$", TEMPLATES_MAX),
        ).fetchall()
        for (name,) in old:
            # somebody may copy it at this moment: then it stays for the next one
            with contextlib.suppress(psycopg.Error):
                self._alter(name, "is_template false")
                self._connection.execute(sql.SQL("drop database {}").format(sql.Identifier(name)))

    def _drop_leftovers(self) -> None:
        runs = self._connection.execute(
            "select distinct substr(datname, %s, 8) from pg_database where datname ~ %s and pg_has_role(datdba, 'member')",
            (len(self._house) + 1, f"^{self._house}[0-9a-f]{{8}}_"),
        ).fetchall()
        for (key,) in runs:
            if self._ask("select pg_try_advisory_lock(%s, %s)", LOCK_OF_RUNS, int(key, 16)):
                self._drop_all(f"{self._house}{key}_")
                self._ask("select pg_advisory_unlock(%s, %s)", LOCK_OF_RUNS, int(key, 16))

    def _drop_all(self, prefix: str) -> None:
        found = self._connection.execute("select datname from pg_database where starts_with(datname, %s)", (prefix,))
        for (name,) in found.fetchall():
            self.drop(name)


# --- the clock ----------------------------------------------------------------------------------------------------------


def is_throwaway(name: str) -> bool:
    """Tell by its name whether a database was made for a test."""
    return name.startswith((NAME, KEPT))


def require_throwaway(name: str) -> None:
    """Refuse to bend the clock of a database that somebody else needs.

    Raises:
        ConfigurationError: It is none of ours.
    """
    if not is_throwaway(name):
        message = f"the clock of the database {name!r} can not be moved: it is not one that octop.testing made"
        raise ConfigurationError(message, hint="Use the fixture octop_database, or octop.testing.Server.")


def install_clock() -> Call[None]:
    """Replace ``_octop_now()``, the engine's only clock, in this database alone. Harmless to repeat."""
    return Call(
        """
        begin;
        select set_config('role', pg_get_userbyid(c.relowner), true)
          from pg_class c where c.oid = (select k.tableoid from octop_config k limit 1);
        create table if not exists _octop_test_clock (stands_at timestamptz, ahead interval not null default '0');
        insert into _octop_test_clock select null where not exists (select from _octop_test_clock);
        grant select on _octop_test_clock to public;
        create or replace function _octop_now() returns timestamptz language sql stable parallel safe
        begin atomic
          select coalesce((select c.stands_at from _octop_test_clock c), now() + (select c.ahead from _octop_test_clock c));
        end;
        commit;
        """,
        {},
        lambda _: None,
    )


def read_clock() -> Call[str]:
    """Read the engine's clock, in UTC."""
    return Call(
        "select to_char(_octop_now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US+00:00')",
        {},
        lambda rows: str(first_value(rows)),
    )


def stop_clock(at: str | None) -> Call[None]:
    """Let the clock stand still at a moment, or, with None, where it is."""
    return Call(
        "update _octop_test_clock set stands_at = coalesce(%(at)s::text::timestamptz, _octop_now())",
        {"at": at},
        lambda _: None,
    )


def move_clock(seconds: float) -> Call[None]:
    """Move the clock; one that runs goes on running, one that stands goes on standing."""
    return Call(
        "update _octop_test_clock set stands_at = stands_at + make_interval(secs => %(seconds)s::float8),"
        " ahead = ahead + make_interval(secs => %(seconds)s::float8)",
        {"seconds": seconds},
        lambda _: None,
    )


def reset_clock() -> Call[None]:
    """Let the clock run with the server's again."""
    return Call("update _octop_test_clock set stands_at = null, ahead = '0'", {}, lambda _: None)
