"""The last release works on the schema of this version: workers and clients need not be replaced at the same moment.

The release itself is run, from the wheel in ``tests/releases``, in processes of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import octop
from octop import __version__
from octop.model.version import is_older
from tests.servers import HOUSE
from tests.system.apps.running import EVERYDAY, enqueue, one, status, until

WHEELS = sorted(
    (HOUSE / "tests" / "releases").glob("octop_scheduler-*.whl"),
    key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)],
)
LAST = WHEELS[-1].name.split("-")[1]
TASKS = 300
APP = "octop.cli.demo.tasks:octop"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder in which the package of the last release lies."""
    folder = tmp_path_factory.mktemp("release")
    with zipfile.ZipFile(WHEELS[-1]) as wheel:
        wheel.extractall(folder)
    return folder


class Old:
    """The last release, in processes of its own."""

    def __init__(self, release, url, folder):
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(release), str(HOUSE)]),
            "OCTOP_DSN": url,
            "PYTHONSAFEPATH": "1",
        }
        self._folder = folder
        self._running = []

    def run(self, *words):
        """Run its command; return what it prints."""
        command = [sys.executable, "-m", "octop", *words]
        return subprocess.run(
            command, env=self.environment, cwd=self._folder, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def start(self):
        """Start a worker of it; return its log."""
        log = self._folder / f"old-{len(self._running)}.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "octop", "worker", "-A", EVERYDAY, "-q", "q=8", "--name", "old"]
            process = subprocess.Popen(command, env=self.environment, cwd=self._folder, stdout=output, stderr=output)
        self._running.append(process)
        return log

    def close(self):
        for process in self._running:
            process.terminate()
            process.wait(30)


@pytest.fixture
def old(release, database, tmp_path):
    made = Old(release, database.url, tmp_path)
    yield made
    made.close()


def test_it_is_the_last_release(old):
    assert LAST in old.run("version")
    assert is_older(LAST, __version__), "a release is run on the schema of the version after it"


def test_a_migration_that_was_released_never_changes(release):
    released = {path.name: path.read_bytes() for path in (release / "octop" / "sql" / "migrations").glob("*.sql")}
    here = {path.name: path.read_bytes() for path in (Path(octop.__file__).parent / "sql" / "migrations").glob("*.sql")}
    assert released
    assert {name: here.get(name) for name in released} == released, "what comes anew is a migration of its own"
    assert max(released) <= min(here.keys() - released.keys(), default="9"), "behind those"


def test_a_worker_of_the_last_release_runs_on_this_schema(old, start, rows):
    log = old.start()
    wanted = {
        enqueue(rows, "noop"): "success",
        enqueue(rows, "nap", {"seconds": 0.1}): "success",
        enqueue(rows, "nap_in_thread", {"seconds": 0.1}): "success",
        enqueue(rows, "nap_in_process", {"seconds": 0.1}): "success",
        enqueue(rows, "always_fails", max_retries=1): "frozen",
        enqueue(rows, "nap", {"seconds": 60}, timeout_seconds=1, max_retries=0): "frozen",
        enqueue(rows, "noop", lane="a"): "success",
    }
    until(lambda: all(status(rows, each) == end for each, end in wanted.items()), "all have ended", log)
    cancelled = enqueue(rows, "nap", {"seconds": 60})
    until(lambda: status(rows, cancelled) == "running", "it runs", log)
    rows.execute("select octop_cancel(%s)", (cancelled,))
    until(lambda: status(rows, cancelled) == "cancelled", "it is cancelled", log)
    assert one(rows, "select array_agg(distinct version) from octop_workers") == [LAST]
    assert " ERROR " not in log.read_text()


def test_two_versions_work_side_by_side(old, start, rows):
    log = old.start()
    new = start()
    until(lambda: one(rows, "select count(distinct version) from octop_workers") == 2, "both have registered", log)
    for number in range(TASKS):
        enqueue(rows, "nap", {"seconds": 0.02, "note": str(number)})
    until(
        lambda: one(rows, "select count(*) from octop_tasks where status = 'success'") == TASKS,
        "all have ended",
        new.log,
    )
    notes = "from ledger where job !~ '^worker'"
    assert one(rows, f"select count(*) {notes}") == one(rows, f"select count(distinct job) {notes}") == TASKS, (
        "each once"
    )
    assert one(rows, "select count(distinct worker_id) from octop_tasks where status = 'success'") == 2, "by both"
    assert one(rows, "select count(*) from octop_attempts") == 0


def test_a_worker_of_the_last_release_keeps_to_the_limits_of_this_schema(old, start, rows):
    rows.execute("""select octop_set_queue('q', '{"global_limit": 3, "lane_limit": 1, "lane_weights": {"a": 2}}')""")
    for number in range(90):
        enqueue(rows, "nap", {"seconds": 0.03, "note": str(number)}, lane="abc"[number % 3])
    log = old.start()
    other = old.start()
    running = "select count(*) from octop_tasks where status = 'running'"
    most = 0

    def all_have_ended():
        nonlocal most
        most = max(most, one(rows, running))
        return one(rows, "select count(*) from octop_tasks where status = 'success'") == 90

    until(all_have_ended, "all have ended", log, seconds=40)
    assert 1 <= most <= 3
    # two workers of it stand in for one of each version: whoever claims keeps to the functions of the schema
    assert one(rows, "select array_agg(distinct version) from octop_workers") == [LAST]
    spans = "select lane, started_at, completed_at from octop_tasks"
    assert (
        one(
            rows,
            f"select count(*) from ({spans}) a join ({spans}) b on a.lane = b.lane"
            " and a.started_at < b.started_at and b.started_at < a.completed_at",
        )
        == 0
    ), "one at a time in each lane"
    assert " ERROR " not in log.read_text() + other.read_text()


@pytest.mark.parametrize(
    "target", ["'queue', 'q'", "'task_type', 'noop'", "'tenant', 'acme'", "'lane', 'a', queue => 'q', tenant => 'acme'"]
)
def test_a_worker_of_the_last_release_obeys_every_hold_of_this_schema(old, start, rows, target):
    log = old.start()
    first = enqueue(rows, "noop")
    until(lambda: status(rows, first) == "success", "it runs tasks", log)
    rows.execute(f"select octop_hold({target}, ends_at => now() + interval '4 s')".encode())
    held = enqueue(rows, "noop", tenant="acme", lane="a")
    kind = target.split("'")[1]
    told = {"queue": "pending"}.get(kind, "blocked")
    until(lambda: status(rows, held) == told, "it was looked at", log)
    if kind != "queue":
        free = enqueue(rows, "nap", {"seconds": 0}, tenant="bolt")
        until(lambda: status(rows, free) == "success", "the others start", log)
    assert one(rows, "select attempt from octop_tasks where id = %s", held) == 0
    until(lambda: status(rows, held) == "success", "the hold has ended by itself", log)
    late = "select started_at >= created_at + interval '3 s' from octop_tasks where id = %s"
    assert one(rows, late, held)
    assert " ERROR " not in log.read_text()


def test_the_command_of_the_last_release_enqueues_lists_and_acts_on_this_schema(old, start, rows):
    old.run("enqueue", "noop", "--queue", "q")
    assert "noop" in old.run("tasks", "list")
    old.run("queues", "pause", "q", "--yes")
    worker = start()
    until(lambda: one(rows, "select count(*) from octop_workers") == 1, "it has registered", worker.log)
    assert one(rows, "select status from octop_tasks") == "pending"
    old.run("queues", "resume", "q")
    until(
        lambda: one(rows, "select status from octop_tasks") == "success",
        f"it ran: {old.run('tasks', 'list')}",
        worker.log,
    )


def test_a_worker_of_this_version_refuses_the_schema_of_the_last_release(old, empty_database, tmp_path):
    old.environment["OCTOP_DSN"] = empty_database.url
    old.run("migrate")
    # right after a release the functions are still the same, and no worker need refuse
    with empty_database.connect() as connection:
        connection.execute("update octop_migrations set checksum = 'of other functions' where name = 'functions'")
    command = [sys.executable, "-m", "octop", "--dsn", empty_database.url]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(octop.__file__).parents[1]), str(HOUSE)])}
    answer = subprocess.run(
        [*command, "worker", "-A", APP, "--drain"],
        env=here,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 5, answer.stderr
    assert "Run: octop migrate" in answer.stderr
    # and the command that it names brings the tables over, with what is in them
    old.run("-A", APP, "enqueue", "send_welcome", "user_id=1")
    subprocess.run([*command, "migrate"], env=here, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    subprocess.run(
        [*command, "worker", "-A", APP, "--drain"],
        env=here,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=60,
    )
    with empty_database.connect() as connection:
        assert one(connection, "select status from octop_tasks") == "success"
