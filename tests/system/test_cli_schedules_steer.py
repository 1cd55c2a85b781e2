"""`octop schedules` on a real database: listed in words, made, changed, run, paused, backfilled, compared with the code."""

from __future__ import annotations

import datetime as dt
import json
import time

import pytest

from tests.system.command import Command

APP = "tests.system.apps.scheduled:octop"


@pytest.fixture
def added(octop):
    octop("schedules", "add", "report", "0 9 * * MON-FRI", "send", "day={{slot.date}}", "-z", "Europe/Berlin")
    return octop


def test_a_schedule_is_added_and_told_in_words(octop, database):
    said = octop(
        "schedules",
        "add",
        "report",
        "0 9 * * MON-FRI",
        "send",
        "day={{slot.date}}",
        "-z",
        "Europe/Berlin",
        "--jitter",
        "30s",
    )
    assert said.startswith("Schedule report: at 09:00")
    assert "Europe/Berlin; next in " in said
    found = octop.json("schedules", "show", "report")
    assert (found["jitter_seconds"], found["payload"]) == (30, {"day": "{{slot.date}}"})
    octop("schedules", "add", "report", "@daily", "send", code=8)
    assert "octop schedules set report" in octop.err
    (row,) = octop.json("schedules", "list")
    assert (row["name"], row["rule"]) == ("report", "0 9 * * MON-FRI")
    assert "Europe/Berlin" in octop("schedules", "list")


def test_what_is_set_stays_and_default_takes_back(added):
    assert "at 08:00" in added("schedules", "set", "report", "--rule", "0 8 * * *", "--priority", 2).lower()
    found = added.json("schedules", "set", "report", "--priority", "default", "--payload", '{"day": 1}')
    assert (found["rule"], found["priority"], found["payload"]) == ("0 8 * * *", None, {"day": 1})
    added("schedules", "set", "report", code=2)
    added("schedules", "set", "report", "--rule", "61 * * * *", code=2)
    assert 'the minute field says "61"' in added.err
    added("schedules", "set", "report", "--payload", '{"day": "{{slot.week}}"}', code=2)
    assert "{{slot.week}}" in added.err
    added("schedules", "set", "report", "--starts", "2030-01-01T09:00", code=2)
    assert "names no zone" in added.err, "C036"
    assert added.json("schedules", "show", "report")["rule"] == "0 8 * * *"


def test_a_name_that_nobody_knows_ends_with_3_and_names_the_nearest(added):
    for words in (("show",), ("history",), ("set", "--rule", "@daily"), ("run",), ("pause",), ("resume",), ("drop",)):
        added("schedules", words[0], "rpeort", *words[1:], code=3)
        assert "there is no schedule rpeort" in added.err
        assert "Did you mean report?" in added.err
    added("schedules", "show", "report", "--tenant", "acme", code=3)


def test_pause_run_resume_history_and_drop(added):
    added("schedules", "pause", "report", "--reason", "moving house")
    assert "paused" in added("schedules", "list")
    assert "moving house" in added("schedules", "show", "report")
    assert "the reason stays: moving house" in added("schedules", "pause", "report", "--reason", "other").lower()
    task_id = added("schedules", "run", "report").strip()
    (slot,) = added.json("schedules", "history", "report")
    assert (slot["origin"], slot["task_id"], slot["task_status"]) == ("run_now", task_id, "pending")
    assert task_id in added("schedules", "history", "report")
    assert "fires again: next in " in added("schedules", "resume", "report")
    assert "was not paused" in added("schedules", "resume", "report")
    assert added.json("tasks", "show", task_id)["meta"]["schedule"] == "report"
    added("schedules", "drop", "report")
    assert added.json("schedules", "list") == []
    assert added.json("tasks", "show", task_id)["id"] == task_id, "its tasks stay"


def test_a_backfill_is_ordered_shown_and_cancelled(added):
    found = added(
        "schedules", "backfill", "report", "--from", "2026-01-05T00:00Z", "--until", "2026-01-10T00:00Z", "--at-once", 2
    ).strip()
    assert f"{found}  running, 0 tasks made" in added("schedules", "show", "report")
    assert added.json("schedules", "backfill", "report", "--cancel", found) == {"id": found, "cancelled": True}
    added("schedules", "backfill", "report", code=2)
    added("schedules", "backfill", "report", "--from", "2026-01-05T00:00Z", code=2)
    added("schedules", "backfill", "report", "--from", "2026-01-10T00:00Z", "--until", "2026-01-05T00:00Z", code=2)


def test_the_next_times_of_a_schedule_are_those_of_its_rule_in_its_zone_until_its_end(added):
    times = added.json("schedules", "next", "report", "-n", 2, "--after", "2026-07-03T12:00Z")
    assert [each["wall"] for each in times] == ["2026-07-06T09:00:00", "2026-07-07T09:00:00"]
    assert {each["offset"] for each in times} == {"+02:00"}
    added("schedules", "set", "report", "--ends", "2099-07-06T12:00Z")
    assert len(added.json("schedules", "next", "report", "--after", "2099-07-06T00:00Z")) == 1


def test_diff_and_apply_compare_the_code_with_the_rows(octop, monkeypatch):
    monkeypatch.setenv("OCTOP_APP", "tests.system.apps.declared_schedules:octop")
    assert {row["name"]: row["what"] for row in octop.json("schedules", "diff")} == {
        "report": "added",
        "often": "added",
    }
    assert octop.json("schedules", "list") == [], "nothing was written"
    octop("schedules", "apply")
    assert "Code and database say the same of 2 schedules." in (octop("schedules", "diff") + octop.err)
    octop("schedules", "set", "report", "--rule", "0 8 * * *")
    said = octop("schedules", "diff")
    assert "changed by hand, stays" in said
    assert (
        'rule: is "0 8 * * *", declared "0 9 * * MON-FRI"' in said
        or 'declared "0 9 * * MON-FRI", is "0 8 * * *"' in said
    )
    octop("schedules", "apply")
    assert octop.json("schedules", "show", "report")["rule"] == "0 8 * * *"


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Kolkata", "UTC"])
def test_C036_C102_times_are_shown_in_the_zone_of_the_schedule_converted_once(
    database, alone, monkeypatch, capsys, zone
):
    with database.connect() as connection:
        connection.execute(f"alter database {database.name} set timezone = 'Asia/Kathmandu'")
    monkeypatch.setenv("OCTOP_DSN", database.url)
    monkeypatch.setenv("TZ", zone)
    monkeypatch.setenv("PGTZ", "Pacific/Auckland")
    time.tzset()
    try:
        octop = Command(capsys)
        octop("schedules", "add", "once", "@at 2040-01-01T21:00:00+09:00", "job", "-z", "America/St_Johns")
        instant = dt.datetime(2040, 1, 1, 12, tzinfo=dt.UTC)
        for found in (octop.json("schedules", "show", "once"), octop.json("schedules", "list")[0]):
            shown = dt.datetime.fromisoformat(found["next_slot"])
            assert (shown, shown.utcoffset() is None) == (instant, False)
            assert found["next_local"] == "2040-01-01T08:30:00-03:30"
        assert "2040-01-01 08:30:00-03:30" in octop("schedules", "list")
        (line,) = (each for each in octop("schedules", "show", "once").splitlines() if each.startswith("next"))
        assert line.split(maxsplit=1)[1] == "2040-01-01 08:30:00-03:30  America/St_Johns"
        octop("schedules", "add", "naive", "@at 2040-01-01T21:00:00", "job", code=2)
        assert [row["name"] for row in octop.json("schedules", "list")] == ["once"], "refused whole"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_list_fits_into_a_terminal_of_80_columns(added, narrow):
    lines = narrow("schedules", "list")
    assert any("report" in line for line in lines)
    added("schedules", "run", "report")
    narrow("schedules", "history", "report")


def test_the_shell_completes_names_of_schedules(added):
    from click.shell_completion import ShellComplete

    from octop.cli.root import root

    found = ShellComplete(root, {}, "octop", "_OCTOP_COMPLETE").get_completions(["schedules", "show"], "re")
    assert [each.value for each in found] == ["report"]
    assert json.loads(added("schedules", "show", "report", "--json"))["name"] == "report"
