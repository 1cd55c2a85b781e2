"""Times as people type and read them, where client, server, database and session all live in different zones."""

from __future__ import annotations

import datetime as dt
import json
import time

import pytest

from octop.cli.entry import run

ZONES = ["America/Chicago", "Asia/Kolkata", "UTC"]
NOON = dt.datetime(2040, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture(params=ZONES)
def elsewhere(request, database, monkeypatch):
    """Let the client be in one zone, the session in another, the database in a third."""
    with database.connect() as connection:
        connection.execute(f"alter database {database.name} set timezone = 'Asia/Kathmandu'")
    monkeypatch.setenv("OCTOP_DSN", database.url)
    monkeypatch.setenv("TZ", request.param)
    monkeypatch.setenv("PGTZ", "Pacific/Auckland")
    time.tzset()
    yield database
    monkeypatch.undo()
    time.tzset()


def octop(capsys, *arguments):
    code = run(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("text", ["2040-01-01T12:00:00Z", "2040-01-01T17:30:00+05:30", "2040-01-01 06:00-06:00"])
def test_C036_the_same_instant_in_any_notation_is_the_same_instant_anywhere(elsewhere, capsys, text):
    code, out, _ = octop(capsys, "enqueue", "job", "--at", text, "--json")
    assert code == 0
    with elsewhere.connect() as connection:
        stored = connection.execute(
            "select scheduled_at from octop_tasks where id = %s", (json.loads(out)["id"],)
        ).fetchone()
    assert stored == (NOON,)


def test_C036_a_moment_without_a_zone_is_refused_and_nothing_is_enqueued(elsewhere, capsys):
    code, out, err = octop(capsys, "enqueue", "job", "--at", "2040-01-01T12:00:00")
    assert (code, out) == (2, "")
    assert "names no zone" in err
    with elsewhere.connect() as connection:
        assert connection.execute("select count(*) from octop_tasks").fetchone() == (0,)


def test_C102_what_is_shown_is_the_instant_with_its_offset_converted_once(elsewhere, capsys):
    _, out, _ = octop(capsys, "enqueue", "job", "--at", "2040-01-01T21:00:00+09:00", "--json")
    task_id = json.loads(out)["id"]
    for arguments in (["tasks", "show", task_id, "--json"], ["tasks", "list", "--json"]):
        _, out, _ = octop(capsys, *arguments)
        found = json.loads(out)
        shown = (found[0] if isinstance(found, list) else found)["scheduled_at"]
        assert dt.datetime.fromisoformat(shown) == NOON, arguments
        assert dt.datetime.fromisoformat(shown).utcoffset() is not None, arguments
    _, out, _ = octop(capsys, "tasks", "show", task_id)
    (line,) = (line for line in out.splitlines() if line.startswith("scheduled_at"))
    assert dt.datetime.fromisoformat(line.split(maxsplit=1)[1]) == NOON
    _, out, _ = octop(capsys, "tasks", "list")
    (row,) = (line for line in out.splitlines() if line.startswith(task_id))
    assert "2040-01-01 12:00:00+00:00" in row
