"""`octop demo` for real: a private PostgreSQL, a worker with two processes, and everything gone afterwards."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from octop.cli.worker_process import worker_process
from octop.model.errors import OctopError

KINDS_MIN = 12


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("OCTOP_DSN", "DATABASE_URL", "OCTOP_SCHEMA", "OCTOP_APP"):
        monkeypatch.delenv(name, raising=False)

    def start(*arguments, **options):
        # A file of this name in the current folder, and settings of another project, must do no harm.
        (tmp_path / "octop.py").write_text("raise SystemExit('the wrong octop')")
        (tmp_path / "octop.toml").write_text('schema = "other"\ndsn = "postgresql://127.0.0.1:1/x"\n')
        command = [sys.executable, "-P", "-m", "octop", *arguments]
        return subprocess.Popen(command, cwd=tmp_path, text=True, **options)

    return start


def folder_of(text):
    """Return where the demo's database was."""
    found = re.search(r"psql -h (\S+)/socket", text)
    assert found is not None
    return Path(found[1])


@pytest.mark.slow
def test_the_demo_shows_every_kind_and_leaves_nothing(run):
    began = time.monotonic()
    demo = run("demo", "--seconds", "3", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = demo.communicate(timeout=60)
    took = time.monotonic() - began
    assert demo.returncode == 0, err
    assert took >= 3
    summary = json.loads(out)
    assert summary["ok"] is True
    # The clock is that of --seconds; what came before, it does not count.
    assert 3 <= summary["seconds"] < summary["seconds_since_start"]
    assert summary["first_finished_seconds"] is not None
    assert summary["checks"]["rolled_back_appeared"] is False
    kinds = {each["kind"]: each for each in summary["kinds"]}
    assert len(kinds) >= KINDS_MIN
    assert [each for each in kinds.values() if each["ok"] is False] == []
    assert kinds["rolled back"]["status"] == "absent"
    assert summary["counts"]["success"] > 0
    assert "What to type next" in err
    assert "Traceback" not in err
    assert not folder_of(err).exists()


@pytest.mark.long
@pytest.mark.slow
def test_without_a_terminal_it_ends_when_all_has_ended(run):
    demo = run("demo", "--json", "--quiet", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = demo.communicate(timeout=100)
    assert demo.returncode == 0, err
    summary = json.loads(out)
    kinds = {each["kind"]: each for each in summary["kinds"]}
    assert [each for each in kinds.values() if each["ok"] is not True] == []
    for name in ("async", "thread", "process", "recovers", "scheduled", "snoozed", "priorities", "plain SQL", "bulk"):
        assert kinds[name]["status"] == "success"
    assert kinds["cancelled"]["status"] == kinds["gives up"]["status"] == "cancelled"
    assert kinds["freezes"]["status"] == kinds["time limit"]["status"] == kinds["endless loop"]["status"] == "frozen"
    assert kinds["unknown type"]["status"] == "blocked"
    assert summary["checks"]["priorities_in_order"] is True
    assert summary["counts"]["success"] > 20_000
    assert summary["counts"]["blocked"] == 1


@pytest.mark.slow
def test_sigterm_ends_it_in_good_order(run):
    demo = run("demo", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    told = ""
    while "finished" not in told:
        line = demo.stderr.readline()
        assert line, told
        told += line
    demo.send_signal(signal.SIGTERM)
    _, rest = demo.communicate(timeout=40)
    assert demo.returncode == 143, rest
    assert "Traceback" not in rest
    assert not folder_of(told).exists()


@pytest.mark.slow
def test_on_a_terminal_it_draws_and_ctrl_c_ends_it(run):
    terminal, its_end = pty.openpty()
    demo = run("demo", stdin=its_end, stdout=its_end, stderr=its_end, env={**os.environ, "TERM": "xterm-256color"})
    os.close(its_end)
    seen = b""
    deadline = time.monotonic() + 60
    sent = False
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # the other end has closed
            break
        if not chunk:
            break
        seen += chunk
        if not sent and b"send_welcome" in seen:
            os.kill(demo.pid, signal.SIGINT)
            sent = True
    os.close(terminal)
    assert demo.wait(30) == 0
    text = seen.decode(errors="replace")
    assert "kinds of tasks" in text
    assert "What to type next" in text
    assert "Traceback" not in text


def test_a_worker_process_that_ends_by_itself_tells_its_last_words(tmp_path, database):
    log = tmp_path / "log"
    with worker_process(["-A", "no_such_module:octop"], {"OCTOP_DSN": database.url}, log) as worker:
        assert worker.wait(30) != 0
        assert "no_such_module" in worker.last_words()


def test_a_worker_process_ends_with_us(tmp_path, database):
    script = (
        "import pathlib, sys, time\n"
        "from octop.cli.worker_process import worker_process\n"
        "with worker_process(['-A', 'octop.cli.demo.tasks:octop'], {'OCTOP_DSN': sys.argv[1]}, pathlib.Path(sys.argv[2])):\n"
        "    print('running', flush=True)\n"
        "    time.sleep(60)\n"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", script, database.url, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert ours.stdout is not None
    assert ours.stdout.readline() == "running\n"
    with database.connect() as connection:
        wait_for(lambda: connection.execute("select count(*) from octop_workers").fetchone()[0] == 1)
        ours.kill()
        ours.wait()
        wait_for(lambda: connection.execute("select count(*) from octop_workers").fetchone()[0] == 0)


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_waiting_for_a_worker_that_goes_on_is_refused(tmp_path, database):
    log = tmp_path / "log"
    arguments = ["-A", "octop.cli.demo.tasks:octop"]
    with (
        worker_process(arguments, {"OCTOP_DSN": database.url}, log) as worker,
        pytest.raises(OctopError, match="not ended"),
    ):
        worker.wait(0.1)
