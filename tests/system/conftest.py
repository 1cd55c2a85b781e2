"""Real worker processes, and the command in process, for the tests of this folder."""

from __future__ import annotations

import re
import sys

import pytest

from tests.system.apps.running import Starter, prepare
from tests.system.command import Command


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
def octop(database, monkeypatch, tmp_path, capsys):
    """Run the command on the database of the test, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCTOP_DSN", database.url)
    for name in ("DATABASE_URL", "OCTOP_SCHEMA", "OCTOP_APP", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Command(capsys)


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
