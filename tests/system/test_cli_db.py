"""`octop db`, and what happens where nobody named a database: the first steps of a newcomer, typed one by one."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click
import psycopg
import pytest

from octop.cli import entry
from octop.cli.worker_process import worker_process

HIDDEN = ("OCTOP_DSN", "DATABASE_URL", "OCTOP_SCHEMA", "OCTOP_APP", "PGHOST", "PGDATABASE", "PGPORT", "PGSERVICE")


class Answer(NamedTuple):
    stdout: str
    stderr: str


@pytest.fixture
def octop(monkeypatch, capsys):
    # Short, because a socket lies in it, and passable for the server's user, which is another one if we are root.
    home = Path(tempfile.mkdtemp(prefix="octop-home-", dir="/tmp"))
    home.chmod(0o755)
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.chdir(home)

    def run(*arguments, code=0):
        capsys.readouterr()
        ended = entry.run(arguments)
        answer = Answer(*capsys.readouterr())
        assert ended == code, answer.stderr
        return answer

    yield run
    entry.run(["db", "reset", "--yes"])
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.slow
def test_the_first_steps_work_as_the_demo_says(octop, tmp_path):
    assert json.loads(octop("db", "status", "--json").stdout)["running"] is False
    assert "the private database" in octop("tasks", "list", code=5).stderr
    # who only reads makes nothing; who enqueues has it made, as in a program
    said = octop("enqueue", "noop").stderr
    assert "octop: Installed Octop in the schema public of the private database." in said
    assert "Installed" not in octop("enqueue", "noop").stderr
    Path("first_steps.py").write_text("from octop import Octop\n\noctop = Octop()\n")
    assert "All your projects share the private database" in octop("check", "-A", "first_steps", code=1).stderr
    octop("db", "reset", "--yes")
    octop("migrate")
    found = json.loads(octop("db", "status", "--json").stdout)
    assert found["running"] is True
    assert found["directory"].startswith("/tmp/octop-home-")
    assert re.search(r"server_pid +\d+$", octop("db", "status").stdout, re.MULTILINE)
    url = octop("db", "url").stdout.strip()
    assert url.startswith("postgresql:///octop?host=")
    of_a_schema = octop("db", "url", "--schema", "Shop 2").stdout.strip()
    with psycopg.connect(of_a_schema) as connection:
        assert connection.execute("show search_path").fetchone() == ('"Shop 2"',)
    command = [sys.executable, "-m", "octop", "db", "psql", "-At", "-c", "select count(*) from octop_tasks"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"
    # what the settings say of a schema, psql follows; of another database it tells
    named = {**os.environ, "OCTOP_DSN": "host=elsewhere", "OCTOP_SCHEMA": "two"}
    command[-1] = "show search_path"
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=named)
    assert answer.stdout == "two\n"
    assert 'OCTOP_DSN names another: psql "$OCTOP_DSN"' in answer.stderr
    arguments = ["-A", "octop.cli.demo.tasks:octop", "-q", "default=5"]
    with worker_process(arguments, {"OCTOP_DSN": url}, tmp_path / "log") as worker:
        told = octop("enqueue", "greet", "name=you", "--wait", "--wait-timeout", "30").stdout
        assert 'success "hello, you"' in told, worker.last_words()
        (row,) = json.loads(octop("workers", "--json").stdout)
        assert (row["queues"], row["state"]) == (["default"], "alive")
        # the row comes before the connection that is counted has gone idle: both are there
        assert octop("db", "stop").stdout == "Stopped. 1 worker was connected; it waits until octop db start.\n"
        octop("db", "start")
    assert json.loads(octop("db", "stop", "--json").stdout) == {"stopped": True, "workers": 0}
    assert "was not running" in octop("db", "stop").stdout
    octop("db", "start")
    assert json.loads(octop("tasks", "list", "--json").stdout)[0]["status"] == "success"


def test_a_reset_asks_a_person_and_says_what_it_did_not_do(octop, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, err: False)
    assert octop("db", "reset", code=1) == Answer("", "Nothing was done.\n")
    assert octop("db", "reset", "--yes").stdout.startswith("There was no data in /tmp/octop-home-")
    assert json.loads(octop("db", "reset", "--yes", "--json").stdout) == {"deleted": None}
