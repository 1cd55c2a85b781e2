"""What the faults happen to: a PostgreSQL of its own, proxies before it, the workers behind those, and the ledger apart.

Each supervisor has a proxy of its own, as if on a machine of its own: it may be cut off while the others judge it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from octop.engine.install import install
from tests import servers
from tests.processes import birth_of
from tests.servers import Server
from tests.system.faults.ledger import TABLES, Ledger
from tests.system.faults.mutants import mutated
from tests.system.faults.pooler import Pooler
from tests.system.faults.proxy import LOOPBACK, Proxy
from tests.system.faults.settings import LIMITS, SETTINGS
from tests.system.faults.small_disk import server_on_small_disk
from tests.system.faults.standby import PRIMARY_SETTINGS, standing_by
from tests.system.faults.variants import PLAIN, Variant
from tests.system.faults.workers import Supervisor

PRODUCERS = "producers"
APPLICATION_ROLE = "faulted"
CONNECTIONS_MAX = 60
CONNECT_SECONDS_MAX = 60.0
KEPT_LOG = "postgres.log"

DATABASE_SETTINGS = {
    # What was acknowledged must survive each crash of the server. (fsync may stay off: no machine crashes here.)
    "synchronous_commit": "on",
    "wal_level": "replica",
    "max_connections": str(CONNECTIONS_MAX),
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
}
LEDGER_SETTINGS = {"max_connections": "60", "shared_buffers": "16MB", "wal_level": "minimal"}


class Stage:
    """All that a run needs, and what faults may be done to."""

    def __init__(
        self,
        server: Server,
        ledger_dsn: str,
        networks: Mapping[str, Proxy],
        folder: Path,
        variant: Variant,
        *,
        pooler: Pooler | None,
        standby: Server | None,
        processes: int,
    ) -> None:
        self.server = server
        self.networks = networks
        self.folder = folder
        self.ledger_dsn = ledger_dsn
        self.ledger = Ledger(ledger_dsn)
        self.refusal_lock = threading.Lock()
        """Held while a fault lets the database refuse work, and taken first: of two such faults one would never be felt."""
        self.server_lock = threading.Lock()
        self.pooler = pooler
        self.standby = standby
        self.variant = variant
        self.clock = folder / "clock" if variant.clock else None
        if self.clock is not None:
            self.clock.write_text("+0")
        self.supervisors = [
            Supervisor(
                name,
                dsn_through(networks[name]),
                ledger_dsn,
                folder,
                processes,
                listens=pooler is None,
                clock=self.clock,
            )
            for name in networks
            if name != PRODUCERS
        ]
        self.producers_dsn = dsn_through(networks[PRODUCERS])

    @contextlib.contextmanager
    def admin(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect as the superuser, past the proxy; wait for a server that is just starting."""
        with contextlib.closing(self._connected()) as connection:
            yield connection

    def asked(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement as the superuser and return its rows; again, where the server crashes meanwhile."""
        deadline = time.monotonic() + CONNECT_SECONDS_MAX
        while True:
            try:
                with self.admin() as connection:
                    return connection.execute(statement, values).fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise

    def _connected(self) -> psycopg.Connection[Any]:
        deadline = time.monotonic() + CONNECT_SECONDS_MAX
        writes = "-c default_transaction_read_only=off"
        while True:
            try:
                return psycopg.connect(self.server.url(), autocommit=True, application_name="admin", options=writes)
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def wait_for_workers(self) -> None:
        """Wait until all workers that live have registered: before that a fault strikes nobody."""
        deadline = time.monotonic() + CONNECT_SECONDS_MAX
        while time.monotonic() < deadline:
            for each in self.supervisors:
                each.keep()
            ((registered,),) = self.asked("select count(*) from octop_workers where pid = any (%s)", self.victims())
            if registered >= sum(each.processes for each in self.supervisors):
                return
            time.sleep(0.05)
        raise RuntimeError("the workers do not start: the run proves nothing")

    def crashed(self) -> None:
        """Write down that commits which did not wait for the disk may be gone now."""
        self.ledger.execute("insert into crashes default values")

    def went_down(self) -> None:
        """Write down that nobody can reach the database from now on."""
        self.ledger.execute("insert into outages default values")

    def comes_up(self) -> None:
        """Write down that the database may be reached from now on."""
        self.ledger.execute("update outages set ended_at = clock_timestamp() where ended_at is null")

    def fails(self) -> None:
        """Write down that the primary is about to be lost."""
        self.ledger.execute("insert into failovers (kind) values (%s)", self.variant.standby)

    def took_over(self, kept_until: datetime) -> None:
        """Write down up to when the standby knows what was committed."""
        self.ledger.execute("update failovers set kept_until = %s", kept_until)

    def keep_log(self) -> None:
        """Append the server's log to ours: a start empties it."""
        log = self.server.directory / "server.log"
        if log.exists():
            with (self.folder / KEPT_LOG).open("ab") as kept:
                kept.write(log.read_bytes())
            if not birth_of(self.server.running.server_pid):
                log.unlink()  # or it would be counted twice until the start

    def said(self, words: str | re.Pattern[str]) -> int:
        """Count how often the server has written this into its log by now."""
        logs = (self.folder / KEPT_LOG, self.server.directory / "server.log")
        texts = [log.read_text(errors="replace") for log in logs if log.exists()]
        return sum(len(re.findall(words, text)) for text in texts)

    def unfinished(self) -> int:
        """Count the tasks that are not final."""
        with self.admin() as connection:
            row = connection.execute("select count(*) from octop_tasks_live").fetchone()
        return 0 if row is None else int(row[0])

    def victims(self) -> list[int]:
        """List all worker processes, those of one supervisor after those of the other."""
        return [pid for each in self.supervisors for pid in each.children()]

    def children(self) -> list[int]:
        """List all processes in which workers run one task each."""
        return [pid for each in self.supervisors for pid in each.grandchildren()]


def dsn_through(proxy: Proxy) -> str:
    """Return the DSN of all servers behind a proxy: where there are two, of the one that takes writes."""
    hosts = ",".join(f"{LOOPBACK}:{port}" for port in proxy.ports)
    which = "&target_session_attrs=read-write" if len(proxy.ports) > 1 else ""
    return f"postgresql://{APPLICATION_ROLE}@{hosts}/octop?sslmode=disable&gssencmode=disable{which}"


def picked(candidates: Sequence[Any], pick: float) -> Any:
    """Choose by a number from 0 to 1 that the plan has drawn; None = there is nothing to choose from."""
    return candidates[min(int(pick * len(candidates)), len(candidates) - 1)] if candidates else None


@contextlib.contextmanager
def staged(
    version: int,
    folder: Path | None = None,
    *,
    variant: Variant = PLAIN,
    mutant: str | None = None,
    supervisors: int = 2,
    processes: int = 1,
) -> Iterator[Stage]:
    """Set all up for the length of a `with`; the logs stay in the folder if one is named."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="octop-faults-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ledger = stack.enter_context(servers.own_server(version, LEDGER_SETTINGS))
        settings = {**DATABASE_SETTINGS, **(PRIMARY_SETTINGS if variant.standby else {})}
        server = stack.enter_context((server_on_small_disk if variant.disk else servers.own_server)(version, settings))
        with psycopg.connect(ledger.url(), autocommit=True) as connection:
            connection.execute(TABLES)
        _prepare(server)
        if mutant is not None:
            stack.enter_context(mutated(server.url(), mutant))
        second = None if variant.standby is None else stack.enter_context(standing_by(server, variant.standby))
        path = socket_of(server)
        pooler = stack.enter_context(Pooler(path, APPLICATION_ROLE)) if variant.pooler else None
        paths = [path if pooler is None else pooler.socket, *([] if second is None else [socket_of(second)])]
        names = [PRODUCERS, *(f"w{number}" for number in range(1, supervisors + 1))]
        networks = {name: stack.enter_context(Proxy(*paths)) for name in names}
        stage = Stage(
            server, ledger.url(), networks, folder, variant, pooler=pooler, standby=second, processes=processes
        )
        stack.callback(stage.keep_log)
        stack.callback(stage.ledger.close)
        for each in stage.supervisors:
            stack.callback(each.kill)
        yield stage


def socket_of(server: Server) -> Path:
    """Return the socket of a server that runs."""
    return server.running.socket_directory / f".s.PGSQL.{server.running.port}"


def _prepare(server: Server) -> None:
    install(server.url())
    with psycopg.connect(server.url(), autocommit=True) as connection:
        role = sql.Identifier(APPLICATION_ROLE)
        connection.execute(sql.SQL("create role {} login").format(role))
        connection.execute(sql.SQL("grant octop_worker, octop_producer to {}").format(role))
        with connection.transaction():
            for key, value in SETTINGS.items():
                connection.execute("select octop_config_set(%s, %s::jsonb)", (key, value))
            for queue, limits in LIMITS.items():
                connection.execute("select octop_set_queue(%s, %s::jsonb)", (queue, json.dumps(limits)))
