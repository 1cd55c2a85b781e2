"""The database is there, and can not be used: what workers do meanwhile, and that they go on by themselves."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.system.apps.running import Starter, enqueue, one, prepare, status, until

READ_ONLY_SECONDS = 3


@contextlib.contextmanager
def read_only(rows):
    """Let the server refuse to write, as a primary that has become a standby does, and keep all connections."""
    rows.execute("alter system set default_transaction_read_only = on")
    rows.execute("select pg_reload_conf()")
    try:
        yield
    finally:
        rows.execute("set default_transaction_read_only = off")
        rows.execute("alter system reset default_transaction_read_only")
        rows.execute("select pg_reload_conf()")


@pytest.mark.slow
@pytest.mark.long
def test_c060_while_the_server_only_reads_nothing_is_lost_and_nobody_must_be_restarted(own_server, tmp_path):
    server = own_server()
    with server.database(installed=True) as database, database.connect() as rows:
        prepare(database)
        start = Starter(database, tmp_path)
        try:
            worker = start(queues={"q": 4}).ready()
            pids = worker.pids()
            for _ in range(60):
                enqueue(rows, "nap", {"seconds": 0.2})
            some = "select count(*) > 3 from octop_tasks where status = 'success'"
            until(lambda: one(rows, some), "it is under load", worker.log)
            with read_only(rows):
                time.sleep(READ_ONLY_SECONDS)  # two leases
            ended = "select count(*) from octop_tasks where status = 'success'"
            until(lambda: one(rows, ended) == 60, "all have ended", worker.log, seconds=60)
            assert one(rows, "select count(*) from octop_attempts") == 0, "and none began twice"
            assert worker.pids() == pids, "without a restart"
            last = enqueue(rows, "noop")
            until(lambda: status(rows, last) == "success", "it goes on", worker.log)
            assert worker.stop() == 0, worker.text()
        finally:
            start.close()
