"""`octop top`: a frame as text and JSON; keys on a real pseudo-terminal, and the terminal given back on every way out."""

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import psycopg
import pytest
from rich.console import Console

from octop.cli.top.screen import PANES, Screen, rows_of
from octop.cli.top.snapshot import Rates, Snapshot
from octop.cli.top.terminal import keys_in
from octop.cli.top.view import allotted, frame
from tests.system.apps.running import status, until
from tests.system.by_hand import freeze
from tests.system.test_cli_queues import enqueue, hire

LEFT = b"\x1b[?1049l"
"""The other screen is left."""
CURSOR = b"\x1b[?25h"
"""The cursor is shown again."""


def claim(connection, worker, types):
    return connection.execute(
        "select id, attempt, claim_id from octop_exchange(%s::text::uuid, array['mail'], array[10], %s)",
        (worker, types),
    ).fetchall()


@pytest.fixture
def crew(octop, rows):
    """One running and one frozen task, two that wait, and their worker."""
    worker = hire(rows, queues=["mail"], types=["fails", "runs"])
    frozen = enqueue(octop, "fails", "--queue", "mail", "--max-retries", 0)
    ((task_id, attempt, claim_id),) = claim(rows, worker, ["fails"])
    rows.execute(
        "select octop_exchange(%s::text::uuid, outcomes => jsonb_build_array(jsonb_build_object('id', %s::text, 'attempt', %s::int,"
        " 'claim_id', %s::text, 'outcome', 'failure', 'error_class', 'shop.errors.ValueError', 'error_message', 'no way')))",
        (worker, task_id, attempt, claim_id),
    )
    running = enqueue(octop, "runs", "--queue", "mail")
    claim(rows, worker, ["runs"])
    for _ in range(2):
        enqueue(octop, "waits", "--queue", "mail", "--delay", "1h")
    return {"worker": worker, "frozen": frozen, "running": running}


# --- one frame --------------------------------------------------------------------------------------------------------


def test_once_prints_one_frame_as_text(octop, crew):
    text = octop("top", "--once", "--interval", 0.05)
    lines = text.splitlines()
    assert lines[0].startswith("octop top  test_")
    assert lines[1].startswith("waiting 2  running 1  blocked 0  finished 0.0/s")
    assert [each.split(" ─")[0] for each in lines if " ─" in each] == [
        "queues",
        "workers",
        "running tasks",
        "latest failures",
    ]
    (queue,) = (each.split() for each in lines if each.startswith("  mail"))
    assert queue[:4] == ["mail", "2", "0", "1"]
    assert any(each.split()[:2] == ["runs", crew["running"]] for each in lines)
    assert any(
        each.split()[:3] == ["fails", crew["frozen"], "frozen"] and each.endswith("  ValueError: no way")
        for each in lines
    )
    assert "\x1b" not in text
    # without a terminal there is nothing else to do
    assert octop("top", "--interval", 0.05).splitlines()[0] == lines[0]


def test_of_an_error_of_several_lines_the_first_is_shown(octop, database):
    freeze(database, enqueue(octop, "fails", "--max-retries", 0), "ValueError", "no way\nhint: another one")
    text = octop("top", "--once", "--interval", 0.05)
    assert any(each.endswith("  ValueError: no way") for each in text.splitlines())


def test_json_is_one_object_with_the_rates(octop, crew):
    found = octop.json("top", "--interval", 0.05)
    assert set(found) == {"finished_per_second", "queues", "workers", "running", "failures"}
    assert found["finished_per_second"] == 0
    assert [(each["name"], each["waiting"], each["finished_per_second"]) for each in found["queues"]] == [
        ("mail", 2, 0)
    ]
    assert [each["id"] for each in found["running"]] == [crew["running"]]
    assert [each["id"] for each in found["failures"]] == [crew["frozen"]]
    assert [each["id"] for each in found["workers"]] == [crew["worker"]]


def test_an_empty_database_says_so_and_bad_ways_end_as_usual(octop, empty_database):
    text = octop("top", "--once", "--interval", 0.05)
    for words in ("no queue yet", "none lives", "nothing runs", "nothing has failed"):
        assert words in text
    octop("--dsn", empty_database.url, "top", code=5)
    octop("--dsn", "postgresql://127.0.0.1:1/x", "top", code=4)
    octop("top", "--interval", 0, code=2)


def test_the_rate_is_the_difference_of_two_looks_and_never_negative():
    rates = Rates()
    rates.take(Snapshot(ended={"mail": 10, "sms": 5}), 1.0)
    assert not rates.known
    rates.take(Snapshot(ended={"mail": 30, "sms": 5, "new": 2}), 3.0)
    assert (rates.by_queue, rates.all) == ({"mail": 10, "sms": 0, "new": 1}, [11])
    rates.take(Snapshot(ended={"mail": 1}), 4.0)  # retention dropped a day
    assert rates.all[-1] == 0


# --- what the keys mean -----------------------------------------------------------------------------------------------


def some_queues(*names):
    return Snapshot(queues=[{"name": name, "paused": name == "sms"} for name in names])


def test_queues_with_work_stand_before_idle_ones():
    look = Snapshot(queues=[{"name": name, "waiting": 0, "running": int(name in "bd")} for name in "abcd"])
    assert [each["name"] for each in rows_of("queues", look)] == ["b", "d", "a", "c"]


def test_the_selection_follows_its_row_and_stays_in_place_when_the_row_goes():
    screen, look = Screen(), some_queues("a", "b", "c")
    for key in ("down", "j", "j", "k"):
        screen.press(key, look)
    assert screen.selected("queues", look.queues) == 1
    look = some_queues("_new", "a", "b", "c")
    assert screen.selected("queues", look.queues) == 2
    look = some_queues("_new", "a", "c")
    assert screen.selected("queues", look.queues) == 2
    assert screen.selected("queues", []) is None
    for key in ("tab", "backtab", "backtab"):
        screen.press(key, look)
    assert screen.pane == PANES[-1]
    assert screen.press("r", look) is None
    assert screen.note == "Nothing is selected."
    screen.press("p", look)
    assert "Tab goes there" in screen.note


@pytest.mark.parametrize("answer", ["n", "escape", "q", "up", " "])
def test_an_act_is_asked_about_and_only_y_does_it(answer):
    screen, look = Screen(), some_queues("mail", "sms")
    assert screen.press("p", look) is None
    assert getattr(screen.asked, "asks", None) == "Pause the queue mail"
    assert screen.press(answer, look) is None
    assert (screen.over, screen.note) == (False, "Nothing was done.")
    assert screen.asked is None
    screen.press("down", look)
    screen.press("p", look)
    # the question is about what was selected, also when the rows have moved
    act = screen.press("y", some_queues("_new", "other"))
    assert act is not None
    assert act.asks == "Resume the queue sms"
    assert act.call.values == {"queue": "sms"}


def test_keys_are_read_one_by_one():
    assert keys_in("jk\x1b[A\x1bOB\x1b[Z\tq?\x1b") == ["j", "k", "up", "down", "backtab", "tab", "q", "?", "escape"]
    assert keys_in("\x1b[15~\x1b[1;5C") == ["\x1b[15~", "\x1b[1;5C"]  # F5 and Ctrl-right are no letters


@pytest.mark.parametrize("height", [16, 24, 50])
@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (50, 50, 50, 50), (1, 2, 50, 3)])
def test_the_parts_share_the_height(height, counts):
    room = allotted(dict(zip(PANES, counts, strict=True)), height)
    assert sum(room.values()) + 12 <= height
    assert min(room.values()) >= 1
    if counts == (1, 2, 50, 3) and height == 50:
        assert list(room.values()) == [1, 2, 32, 3]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_frame_fits_into_its_width_and_shows_control_characters(width):
    queue = {
        "name": "mail\x1b[31m", "waiting": 12_345, "due": 1, "running": 2, "blocked": 3, "oldest_due_seconds": 1.0,
        "worker_limit": None, "workers": 1, "paused": True, "pause_reason": "x" * 300,
    }  # fmt: skip
    printed = io.StringIO()
    console = Console(file=printed, width=width)
    console.print(frame("here", Snapshot(queues=[queue] * 30), Rates(), width))
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "\x1b" not in printed.getvalue()
    assert "queues (30)" in printed.getvalue()
    assert sum("12,345" in each for each in lines) == 20


# --- on a terminal ----------------------------------------------------------------------------------------------------


class Terminal:
    """`octop top` on a pseudo-terminal of 100 columns and 30 lines."""

    def __init__(self, url, *, script="from octop.cli import main; main()"):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.argv = ['octop', 'top', '--interval', '0.1']\n{script}"],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, "OCTOP_DSN": url, "TERM": "xterm", "NO_COLOR": "1"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read(self):
        ready, _, _ = select.select([self.master], [], [], 0.05)
        if ready:
            self.seen += os.read(self.master, 65536)
        return self.seen

    def sees(self, words):
        """Wait until words stand on the screen, and forget what was seen before."""
        until(lambda: words in self.text(), f"{words!r} is seen in {self.text()[-3000:]}")
        self.seen = b""

    def text(self):
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.read().decode("utf-8", "replace"))

    def types(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        """Wait for the end and return the exit code; what was printed stays in `seen`."""
        end = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read()
        return self.process.wait(1)

    def given_back(self):
        return termios.tcgetattr(self.slave) == self.before and LEFT in self.seen and CURSOR in self.seen

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:

        def opened(url, **options):
            made = Terminal(url, **options)
            stack.callback(made.close)
            return made

        yield opened


def test_keys_pause_resume_retry_and_cancel(crew, database, rows, terminal):
    screen = terminal(database.url)
    screen.sees("› mail")
    assert termios.tcgetattr(screen.slave)[3] & (termios.ECHO | termios.ICANON) == 0
    held = "select kind, target, reason from octop_holds"
    screen.types("p")
    screen.sees("Pause the queue mail?  y yes  n no")
    assert rows.execute(held).fetchall() == []
    screen.types("y")
    screen.sees("Queue mail is paused.")
    assert rows.execute(held).fetchall() == [("queue", "mail", "octop top")]
    screen.types("p")
    screen.sees("Resume the queue mail?")
    screen.types("y")
    screen.sees("Queue mail runs again.")
    assert rows.execute(held).fetchall() == []
    # the running task
    screen.types("\t\t")
    screen.sees("› runs")
    screen.types("c")
    screen.sees(f"Cancel runs {crew['running']}?")
    screen.types("n")
    screen.sees("Nothing was done.")
    screen.types("cy")
    until(
        lambda: rows.execute(
            "select cancel_requested_at from octop_tasks where id = %s", (crew["running"],)
        ).fetchone()[0],
        "it was asked to end",
    )
    # the failure
    screen.types("\x1b[C")
    screen.sees("› fails")
    screen.types("ry")
    screen.sees("is tried again.")
    assert status(rows, crew["frozen"]) == "pending"
    # help, and back
    screen.types("?")
    screen.sees("pause or resume the queue")
    screen.types("?")
    screen.sees("latest failures")
    connections = rows.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and application_name ~ '^octop'"
    ).fetchone()
    screen.types("q")
    assert screen.ended() == 0
    assert screen.given_back()
    actions = [
        row[0] for row in rows.execute("select action from octop_audit where application = 'octop top' order by seq")
    ]
    assert connections == (1,)
    assert actions == ["pause", "resume", "cancel", "retry"]


def test_an_act_that_is_refused_says_why_and_the_view_goes_on(crew, database, rows, terminal):
    viewer = database.url_as(database.make_role("octop_viewer"))
    screen = terminal(viewer)
    screen.sees("› mail")
    screen.types("py")
    screen.sees("not done: permission denied")
    screen.types("q")
    assert screen.ended() == 0
    assert rows.execute("select count(*) from octop_holds").fetchone() == (0,)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (None, 0)]
)
def test_the_terminal_is_given_back_on_every_way_out(database, terminal, number, code):
    screen = terminal(database.url)
    screen.sees("no queue yet")
    if number is None:
        screen.types("\x03")  # Ctrl-C, from the keyboard
    else:
        screen.process.send_signal(number)
    assert screen.ended() == code
    assert screen.given_back()


@pytest.mark.parametrize("where", ["view.View._foot", "reader.Reader._look"])
def test_the_terminal_is_given_back_after_a_fault_of_ours(database, terminal, where):
    fault = f"from octop.cli.top import reader, view; {where} = lambda *a: 1 / 0"
    screen = terminal(database.url, script=f"{fault}\nfrom octop.cli import main; main()")
    assert screen.ended() == 1
    assert termios.tcgetattr(screen.slave) == screen.before
    assert "ZeroDivisionError" in screen.text()
    assert screen.seen.rindex(LEFT) < screen.seen.rindex(b"ZeroDivisionError")


def door(database, *, opened):
    """Let nobody in, or everybody again; who is inside stays."""
    with psycopg.connect(database.server.url(), autocommit=True) as connection:
        connection.execute(f'alter database "{database.name}" allow_connections {opened}'.encode())


@pytest.mark.usefixtures("crew")
def test_it_survives_a_database_that_goes_away(octop, database, terminal, rows):
    screen = terminal(database.url)
    screen.sees("› mail")
    door(database, opened=False)
    rows.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'octop top' and datname = %s",
        (database.name,),
    )
    screen.sees("trying again")
    # what is asked for meanwhile is not done later, when nobody expects it
    screen.types("py")
    screen.sees("not done: ")
    door(database, opened=True)
    enqueue(octop, "later", "--queue", "after_it")
    screen.sees("after_it")
    assert rows.execute("select count(*) from octop_holds").fetchone() == (0,)
    screen.types("q")
    assert screen.ended() == 0
