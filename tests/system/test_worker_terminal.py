"""A worker in a terminal: Ctrl-C once and twice, and a terminal that is closed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from tests.processes import family_of
from tests.servers import HOUSE
from tests.system.apps.running import EVERYDAY, enqueue, one, status, until

INTERRUPT = b"\x03"


class Terminal:
    """`octop worker` as the foreground of a terminal of its own."""

    def __init__(self, dsn, *arguments, before=()):
        self._master, slave = pty.openpty()
        self._shown = bytearray()
        command = [sys.executable, "-P", "-m", "octop", "worker", "--dsn", dsn, "-A", EVERYDAY, "-q", "q=8", *arguments]
        self.process = subprocess.Popen(
            [*before, *command],
            stdin=slave, stdout=slave, stderr=slave, cwd=HOUSE, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self._closing, self._close = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # the other end has closed
            while self._closing not in select.select([self._master, self._closing], [], [])[0]:
                self._shown += os.read(self._master, 4096)

    def text(self):
        return self._shown.decode(errors="replace")

    def press(self, key):
        os.write(self._master, key)

    def hang_up(self):
        """Close the window: the kernel tells whoever has it as his terminal."""
        if self._master < 0:
            return
        os.close(self._close)
        self._reader.join()  # a terminal that somebody reads is not closed yet
        for each in (self._closing, self._master):
            os.close(each)
        self._master = -1

    def wait(self, seconds=25):
        return self.process.wait(seconds)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


@pytest.fixture
def terminal(start, database):
    """Start a worker in a terminal; with a ledger and short leases as others have them."""
    with contextlib.ExitStack() as stack:

        def started(*arguments, **options):
            made = Terminal(database.url, *arguments, **options)
            stack.callback(made.close)
            return made

        yield started


def are_gone(pids):
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def ran(rows, terminal, *tasks):
    """Enqueue tasks that take longer than anything here, and wait until all of them run."""
    ids = [enqueue(rows, *task) for task in tasks]
    running = "select count(*) from octop_tasks where status = 'running'"
    until(lambda: one(rows, running) == len(ids), "all run")
    assert terminal.process.poll() is None, terminal.text()
    return ids


def test_c056_ctrl_c_lets_tasks_end_and_leaves_in_order(terminal, rows):
    made = terminal("--processes", "2", "--grace", "20s")
    (task_id,) = ran(rows, made, ("nap", {"seconds": 1}))
    pids = family_of(made.process.pid)
    assert len(pids) == 3, "a supervisor and its two processes"
    made.press(INTERRUPT)
    assert made.wait() == 0, made.text()
    assert status(rows, task_id) == "success"
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 1, "it was not cut"
    assert are_gone(pids)
    assert one(rows, "select count(*) from octop_workers") == 0
    assert "Traceback" not in made.text()
    assert "KeyboardInterrupt" not in made.text()


def test_c056_ctrl_c_twice_ends_all_at_once_children_too(terminal, rows):
    made = terminal("--grace", "60s")
    kinds = (
        ("nap", {"seconds": 60}),
        ("nap_in_process", {"seconds": 60}),
        ("nap_in_thread", {"seconds": 60}),
        ("swallow",),
    )
    ids = ran(rows, made, *kinds)
    until(lambda: len(family_of(made.process.pid)) == 3, "a supervisor, its process, and that of a task")
    pids = family_of(made.process.pid)
    made.press(INTERRUPT)
    until(lambda: "running tasks have 60 s" in made.text(), "it says what it waits for")
    made.press(INTERRUPT)
    assert made.wait(10) == 130, made.text()
    until(lambda: are_gone(pids), "nothing is left of it")
    assert {status(rows, each) for each in ids} == {"pending"}
    assert one(rows, "select max(retry_count) from octop_tasks_live") == 0, "no try is used up"
    assert "Traceback" not in made.text()


def test_c056_ctrl_c_while_it_starts_ends_it_without_a_traceback(terminal):
    made = terminal("--processes", "2")
    maps = Path(f"/proc/{made.process.pid}/maps")
    until(lambda: "libpq" in maps.read_text(), "it is on its way")
    made.press(INTERRUPT)
    pids: set[int] = set()

    def has_ended():
        pids.update(family_of(made.process.pid))
        return made.process.poll() is not None

    # An extension module that is being loaded may swallow a KeyboardInterrupt: whoever sits there presses again.
    try:
        until(has_ended, "it has ended", seconds=5)
    except AssertionError:
        made.press(INTERRUPT)
        until(has_ended, "it has ended", seconds=10)
    until(lambda: are_gone(pids), "nothing is left of it")
    made.hang_up()  # what it said is read by now
    assert made.process.returncode in (0, 130), made.text()
    assert "Traceback" not in made.text()


def test_a_closed_terminal_stops_it_as_ctrl_c_does(terminal, rows):
    made = terminal("--grace", "0s")
    (task_id,) = ran(rows, made, ("nap", {"seconds": 60}))
    pids = family_of(made.process.pid)
    made.hang_up()
    assert made.wait() == 0
    assert are_gone(pids)
    assert status(rows, task_id) == "pending"
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 0
    assert one(rows, "select count(*) from octop_workers") == 0, "it has taken its leave"


def test_with_nohup_a_closed_terminal_is_nothing_to_it(terminal, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where nohup.out may go
    made = terminal(before=["sh", "-c", f'exec nohup "$@" > {tmp_path}/log 2>&1', "-"])
    until(lambda: one(rows, "select count(*) from octop_workers") == 1, "it has begun")
    made.hang_up()
    os.kill(made.process.pid, signal.SIGHUP)  # once more, for certain
    task_id = enqueue(rows, "noop")
    until(lambda: status(rows, task_id) == "success", "it goes on")
    made.process.send_signal(signal.SIGTERM)
    assert made.wait() == 0, (tmp_path / "log").read_text()
