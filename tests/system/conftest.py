"""Real worker processes, workers without a process, and the command in process, for the tests of this folder."""

from __future__ import annotations

import contextlib
import re
import sys

import pytest

from octop.engine.connect import open_connection
from tests.sql.crew import Worker
from tests.system.apps.running import Starter, prepare
from tests.system.command import Command
from tests.system.doctor import Doctor


@pytest.fixture
def start(database, tmp_path):
    """Start workers on the database of the test, with a ledger and short leases; all are stopped afterwards."""
    prepare(database)
    starter = Starter(database, tmp_path)
    yield starter
    starter.close()


@pytest.fixture
def rows(database):
    with database.connect() as connection:
        yield connection


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Stand in an empty folder, with no variable that tells the command what to use."""
    monkeypatch.chdir(tmp_path)
    for name in ("OCTOP_DSN", "DATABASE_URL", "OCTOP_SCHEMA", "OCTOP_APP", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def octop(alone, database, monkeypatch, capsys):
    """Run the command on the database of the test."""
    monkeypatch.setenv("OCTOP_DSN", database.url)
    return Command(capsys)


@pytest.fixture
def doctor(alone, database, monkeypatch, capsys):
    """Run `octop doctor` on the database of the test."""
    monkeypatch.setenv("OCTOP_DSN", database.url)
    return Doctor(database, capsys)


@pytest.fixture
def hire(database):
    """Register workers on connections of their own."""
    with contextlib.ExitStack() as stack:

        def hired(**options):
            worker = Worker(stack.enter_context(open_connection(database.url, application_name="test")), **options)
            worker.register()
            return worker

        yield hired


@pytest.fixture
def narrow(octop, monkeypatch):
    """Run a command as on a terminal of 80 columns, and return its lines."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", octop(*arguments)).splitlines()
        assert max(map(len, lines)) <= 80
        return lines

    return run
