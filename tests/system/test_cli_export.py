"""`octop tasks export`."""

import csv
import io
import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import threading

import pytest

from octop.cli import entry, progress
from octop.cli.output import Output
from octop.model.errors import DatabaseUnreachableError
from tests.system.by_hand import add_frozen, enqueue, fill_shop


@pytest.fixture
def shop(octop, database):
    return fill_shop(octop, database)


def test_all_columns_are_exported_line_by_line(octop, rows, shop):
    lines = [json.loads(line) for line in octop("tasks", "export").splitlines()]
    assert {each["id"] for each in lines} == set(shop.values())
    columns = {
        name
        for (name,) in rows.execute(
            "select column_name::text from information_schema.columns where table_name = 'octop_tasks'"
        )
    }
    assert all(set(each) == columns for each in lines)
    (failed,) = (each for each in lines if each["status"] == "failed")
    assert failed["payload"] == {"user": {"id": 42, "name": "Ann Lee"}, "n": 2.5}
    assert [
        json.loads(line)["id"] for line in octop("tasks", "export", "status:failed", "--queue", "default").splitlines()
    ] == [shop["failed"]]
    assert octop("tasks", "export", "queue:nothing") == ""
    assert "No such task" in octop.err


def test_pages_leave_no_task_out_and_show_none_twice(octop, rows):
    add_frozen(rows, 2500)
    ids = [json.loads(line)["id"] for line in octop("tasks", "export").splitlines()]
    assert len(set(ids)) == len(ids) == 2500
    assert ids == sorted(ids, reverse=True)
    for limit in (1, 1000, 1500, 2000):
        assert [
            json.loads(line)["id"] for line in octop("tasks", "export", "--limit", limit, "-o", "-").splitlines()
        ] == ids[:limit]


def test_a_csv_is_exact_and_safe_for_spreadsheets(octop, rows):
    payload = '{"n": 12345678901234567890.12345678901234567890, "text": "a,\\"b\\"\\n=1"}'
    enqueue(octop, "send", payload, "--tenant", "=1+1", "--lane", "-2", "--queue", "@mail", "--tag", "x,y")
    text = octop("tasks", "export", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["tenant"], row["lane"], row["queue"]) == ("'=1+1", "'-2", "'@mail")
    assert "12345678901234567890.12345678901234567890" in row["payload"]
    assert json.loads(row["payload"])["text"] == 'a,"b"\n=1'
    assert (row["tags"], row["priority"], row["completed_at"], row["result"]) == ('["x,y"]', "5", "", "")
    assert text.startswith("id,task_type,status,queue,")


def test_a_file_appears_when_it_is_complete(octop, rows, tmp_path, monkeypatch):
    add_frozen(rows, 3)
    target = tmp_path / "out.jsonl"
    target.write_text("old")
    octop("tasks", "export", "-o", target)
    assert len(target.read_text().splitlines()) == 3
    assert octop.err == f"3 tasks in {target}\n"

    def breaks(connection, selection, **options):
        yield "{}"
        message = "gone"
        raise DatabaseUnreachableError(message)

    monkeypatch.setattr("octop.engine.filtered.stream_tasks", breaks)
    octop("tasks", "export", "-o", target, code=4)
    assert len(target.read_text().splitlines()) == 3
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]
    octop("tasks", "export", "-o", tmp_path / "no" / "x", code=1)
    assert "No such file" in octop.err


def test_a_link_goes_on_pointing_and_what_it_points_to_gets_the_data(octop, rows, tmp_path):
    add_frozen(rows, 3)
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to("data/real.jsonl")
    for before in (None, "old"):  # also one whose target is not there yet
        if before:
            target.write_text(before)
        octop("tasks", "export", "-o", link)
        assert link.is_symlink()
        assert len(target.read_text().splitlines()) == 3
    assert [each.name for each in target.parent.iterdir()] == ["real.jsonl"]


def test_a_file_keeps_its_mode_and_a_new_one_gets_that_of_any_tool(octop, rows, tmp_path):
    add_frozen(rows, 1)
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.touch()
    kept.chmod(0o600)
    before = os.umask(0o027)
    try:
        for each in (kept, made):
            octop("tasks", "export", "-o", each)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (kept, made)] == [0o600, 0o640]


def test_what_is_no_file_is_written_to_as_it_is(octop, rows, tmp_path):
    add_frozen(rows, 3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()), daemon=True)
    reader.start()
    octop("tasks", "export", "-o", fifo)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    reader.join(10)
    assert len(read[0].splitlines()) == 3
    octop("tasks", "export", "-o", tmp_path, code=2)


def test_dev_stdout_is_standard_output_also_where_the_shell_appends_it_to_a_file(rows, tmp_path, database):
    add_frozen(rows, 3)
    ours = tmp_path / "stdout"
    ours.symlink_to("/proc/self/fd/1")  # what /dev/stdout is; a fault must not put a file in place of the machine's
    command = [sys.executable, "-m", "octop", "--dsn", database.url, "tasks", "export", "-o", str(ours)]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(piped.stdout.splitlines()) == 3
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("a") as end:
        subprocess.run(command, stdout=end, stderr=subprocess.DEVNULL, check=True)
        end.write("after\n")
    lines = log.read_text().splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("before", 5, "after")


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("piped", [False, True])
def test_a_bar_on_the_terminal_leaves_the_data_where_it_was_sent(octop, rows, tmp_path, monkeypatch, form, piped):
    add_frozen(rows, 3)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    terminal, its_end = pty.openpty()
    if piped:
        reading, writing = os.pipe()
    else:
        reading, writing = os.open(tmp_path / "f", os.O_CREAT), os.open(tmp_path / "f", os.O_WRONLY)
    with os.fdopen(terminal, "rb", buffering=0) as seen, os.fdopen(reading, "rb") as got:
        with os.fdopen(its_end, "w") as stderr, os.fdopen(writing, "w") as stdout, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            patch.setattr(sys, "stdout", stdout)
            assert entry.run(["tasks", "export", "status:frozen", "--format", form]) == 0
            stderr.flush()
            drawn = b""
            while b"export" not in drawn or select.select([seen], [], [], 0)[0]:  # a pty hands out pieces
                drawn += seen.read(4096)
        lines = got.read().splitlines()
    assert len(lines) == (4 if form == "csv" else 3)
    assert b"frozen" not in drawn


def test_no_bar_is_drawn_between_the_lines_of_a_terminal(octop, rows, monkeypatch):
    add_frozen(rows, 3)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert len(octop("tasks", "export").splitlines()) == 3
    assert octop.err == ""


def test_work_of_less_than_a_second_or_of_one_task_shows_no_bar(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    output = Output(as_json=False, plain=True, quiet=False)

    def drawn(total, seconds):
        monkeypatch.setattr(progress, "DELAY_SECONDS", seconds)
        with progress.progress(output, "retry", total) as more:
            more(1)
            output.warn("one [red] was refused")
        return capsys.readouterr().err

    with_bar = drawn(2, 0)
    assert "retry" in with_bar
    assert re.search(r"\x1b\[2K(\x1b\[\?25l)?octop: one \[red\] was refused\n", with_bar)  # not behind the bar
    assert drawn(2, 3600) == drawn(1, 0) == drawn(0, 0) == "octop: one [red] was refused\n"
