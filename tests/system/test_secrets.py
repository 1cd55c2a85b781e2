"""The password of the database is nowhere to be seen: not in logs, health, tables, nor in the list of processes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from psycopg import sql

from octop.model.ids import new_id
from tests.processes import family_of
from tests.system.apps.probing import Probe
from tests.system.apps.running import enqueue, one, status, until

SECRET = "S3cr%40t"
SHOWN = ("S3cr", "S3cr@t")


def command_lines(pid):
    for each in family_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield Path(f"/proc/{each}/cmdline").read_text()


def hides(text):
    return not any(each in text for each in SHOWN)


@pytest.mark.slow
def test_c113_a_worker_that_works_fails_and_loses_its_database_shows_no_password(start, rows, database, tmp_path):
    url = database.url.replace("?", f"?password={SECRET}&")
    assert SECRET in url
    file = tmp_path / "health"
    worker = start(dsn=url, health_port=0, health_file=str(file)).ready()
    probe = Probe(worker).green()
    running = enqueue(rows, "nap_in_process", {"seconds": 3})
    until(lambda: status(rows, running) == "running", "it runs", worker.log)
    until(lambda: len(list(command_lines(worker.process.pid))) >= 3, "supervisor, worker, and the child of the task")
    lines = list(command_lines(worker.process.pid))
    assert all(map(hides, lines)), lines
    failing = [enqueue(rows, "always_fails", max_retries=0), enqueue(rows, "kill_own_process", max_retries=0)]
    until(lambda: {status(rows, each) for each in failing} == {"frozen"}, "they failed", worker.log)
    until(file.exists, "it is well", worker.log)
    assert hides(file.read_text())
    name = sql.Identifier(database.name)
    database.server.execute(sql.SQL("alter database {} allow_connections false").format(name))
    try:
        rows.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert hides(str(probe.red()))
    finally:
        database.server.execute(sql.SQL("alter database {} allow_connections true").format(name))
    probe.green()
    told = "select coalesce(string_agg(to_jsonb(a)::text, ''), '') from octop_attempts a"
    seen = "select string_agg(to_jsonb(w)::text, '') from octop_workers w"
    assert hides(one(rows, told))
    assert hides(one(rows, seen))
    assert worker.stop() == 0
    assert hides(worker.text()), worker.text()


def test_c113_a_worker_that_finds_no_database_shows_no_password(start, database):
    url = database.url.replace("?", f"?password={SECRET}&").replace(database.name, f"nothing_{new_id()[:8]}")
    worker = start(dsn=url)
    assert worker.wait() == 4, worker.text()
    assert hides(worker.text()), worker.text()
