"""`octop failures`: what is alike, chosen by filter and time, and one group with its tasks."""

import shlex

import pytest

from tests.system.by_hand import enqueue, freeze


@pytest.fixture
def broken(octop, database):
    """Three failures: two alike, one not."""
    ids: list[str] = []
    for message in ("user 1 not found", "user 2 not found", "disk full"):
        ids.append(enqueue(octop, "fails", "--max-retries", 0, "--tenant", f"t{len(ids)}"))
        freeze(database, ids[-1], "ValueError", message)
    return ids


def test_failures_that_are_alike_are_counted_together(octop, broken):
    first, second, third = broken
    disk, user = octop.json("failures")
    assert (user["pattern"], user["attempts"], user["tasks"]) == ("ValueError: user * not found", 2, 2)
    assert (user["example_task_id"], user["example_message"]) == (second, "user 2 not found")
    assert user["first_at"] < user["last_at"] < disk["last_at"]
    assert (disk["task_type"], disk["pattern"], disk["example_task_id"]) == ("fails", "ValueError: disk full", third)
    lines = octop("failures").splitlines()
    assert lines[0].split() == ["group", "type", "attempts", "tasks", "first", "last", "example", "error"]
    assert lines[2].startswith(user["group_id"])
    assert "octop failures --group" in octop.err
    assert len(octop.json("failures", "--limit", 1)) == 1
    octop("failures", "--limit", 1)
    assert "--limit shows more" in octop.err


def test_failures_are_chosen_by_filter_and_by_time(octop, rows, broken):
    assert [each["attempts"] for each in octop.json("failures", "tenant:t0")] == [1]
    assert [each["pattern"] for each in octop.json("failures", "-tenant:t2")] == ["ValueError: user * not found"]
    octop("tasks", "retry", broken[0])
    assert [each["attempts"] for each in octop.json("failures", "status:frozen")] == [1, 1]
    rows.execute("update octop_attempts set ended_at = ended_at - interval '2 hours' where error_message like 'disk%'")
    assert [each["pattern"] for each in octop.json("failures", "--since", "1h")] == ["ValueError: user * not found"]
    assert octop.json("failures", "--attempts", 1, "queue:default")[0]["attempts"] == 1
    octop("failures", "nonsense", code=2)


def test_a_group_shows_its_tasks_and_the_latest_traceback(octop, broken):
    user = octop.json("failures")[1]
    octop("tasks", "retry", broken[0])
    text = octop("failures", "--group", user["group_id"].upper())
    assert "error  ValueError: user * not found" in text
    assert "count  2 attempts of 2 tasks" in text
    assert "count  1 attempt of 1 task\n" in octop("failures", "--group", octop.json("failures")[0]["group_id"])
    assert text.index(broken[1]) < text.index(broken[0])
    (command,) = (line.split("octop ", 1)[1] for line in text.splitlines() if line.startswith("tasks  octop"))
    assert [each["id"] for each in octop.json(*shlex.split(command))] == [broken[1]]
    assert "Traceback (most recent call last):" in text
    assert "user 2 not found" in text
    found = octop.json("failures", "--group", user["group_id"])
    assert [(each["task_id"], each["status"]) for each in found["failures"]] == [
        (broken[1], "frozen"),
        (broken[0], "pending"),
    ]
    assert found["latest"]["traceback"].startswith("Traceback")
    octop("failures", user["group_id"], code=2)
    assert f"Did you mean --group {user['group_id']}?" in octop.err
    octop("failures", "--group", "00000000", "--attempts", 1, code=3)
    assert "of the latest 1 attempt belongs to the group 00000000" in octop.err
    assert "octop failures lists the groups" in octop.err


def test_nothing_has_failed(octop):
    assert octop.json("failures") == []
    octop("failures")
    assert "Nothing has failed." in octop.err


def test_in_80_columns_the_error_has_the_room_and_json_the_whole_of_it(octop, narrow, database):
    task_id = enqueue(octop, "fails", "--max-retries", 0)
    freeze(database, task_id, "shop.payment.errors.CardDeclined", "the bank says no, ask again later")
    head, line = (each for each in narrow("failures")[:3] if "─" not in each)
    assert "CardDeclined: the bank says no, ask aga" in line
    assert "tries" in head.split()
    assert "shop" not in line
    (listed,) = (each for each in narrow("tasks", "list") if "frozen" in each)
    assert "CardD" in listed
    (group,) = octop.json("failures")
    assert group["pattern"].startswith("shop.payment.errors.CardDeclined: ")
    assert "shop.payment.errors.CardDeclined: the bank" in octop("failures", "--group", group["group_id"])


def test_of_an_error_of_several_lines_tables_show_the_first(octop, database):
    for message in ("a b of 3\nb of it\nhint: c", "'x\ny' gone"):
        freeze(database, enqueue(octop, "fails", "--max-retries", 0), "ValueError", message)
    whole, cut = octop("failures").splitlines()[1:]
    assert cut.endswith("  ValueError: a b of *")
    assert whole.endswith("  ValueError: * gone")  # its end is not to be found in the pattern
    group = octop.json("failures")[1]
    assert group["pattern"] == "ValueError: a b of * b of it hint: c"
    text = octop("failures", "--group", group["group_id"])
    assert "error  ValueError: a b of *\n" in text
    assert "  a b of 3\n" in text
