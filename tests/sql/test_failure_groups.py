"""Failures that are alike: the pattern of an error, the groups, and that nothing reads more than the latest so many."""

from __future__ import annotations

import pytest

from tests.sql.crew import add, column, do, rows, value
from tests.sql.plans import watched

PATTERN = "select octop_error_pattern(%s, %s)"


@pytest.mark.parametrize(
    ("messages", "pattern"),
    [
        (["user 42 not found", "user 7 not found"], "user * not found"),
        (["no user '42'", "no user 'ann'"], "no user *"),
        (['key "a b"', 'key "c"'], "key *"),
        (["took 3.5 s", "took 12 s", "took 1e-3 s"], "took * s"),
        (
            ["id 0199aa3c-0000-7000-8000-000000000000 is gone", "id deadbeef-dead-beef-dead-beefdeadbeef is gone"],
            "id * is gone",
        ),
        (["at 0x7f3a9c", "at 0xFFFF"], "at *"),
        (["token 9f86d081884c7d65 expired", "token a1b2 expired"], "token * expired"),
        (["no file /var/lib/a/b.txt", "no file /tmp/x", "no file ~/x"], "no file *"),
        (["no file C:\\Users\\a", "no file D:\\x"], "no file *"),
        (["GET https://a.example/x?y=1 failed", "GET http://b.example failed"], "GET * failed"),
        (["[1, 2, 3] is odd", "[1, 2] is odd"], "[*] is odd"),
        (["at 2030-01-31T09:00:00.5+08:00", "at 2029-12-01T00:00:00Z"], "at *"),
        (["host 10.0.0.1:5432 refused", "host 192.168.1.7:80 refused"], "host * refused"),
        (["a\n  b\t c"], "a b c"),
        (["can't go on, won't go on"], "can't go on, won't go on"),
        (["été impossible"], "été impossible"),
        ([""], ""),
        ([None], ""),
    ],
)
def test_what_differs_from_task_to_task_is_left_out(dba, messages, pattern):
    for message in messages:
        assert value(dba, PATTERN, "E", message) == (f"E: {pattern}" if pattern else "E")
        assert value(dba, PATTERN, None, message) == pattern


def test_different_errors_stay_apart(dba):
    different = [
        ("KeyError", "user"),
        ("KeyError", "name"),
        ("ValueError", "user"),
        ("", "KeyError user"),
        ("KeyError", ""),
    ]
    assert len({value(dba, PATTERN, *each) for each in different}) == len(different)


def test_a_pattern_is_the_same_in_a_session_where_backslashes_escape(database, dba):
    messages = ["no file C:\\Users\\a  b\t c", "[1, 2, 3] is (4), (5)", "user '42' at /x/y", "a\\b"]
    with database.connect(options="-c standard_conforming_strings=off") as odd:
        for message in messages:
            assert value(odd, PATTERN, "E", message) == value(dba, PATTERN, "E", message)
        assert rows(odd, "select * from octop_failure_groups") == []


def test_a_pattern_is_bounded_however_long_the_message(dba):
    for message in ("x" * 10_000, "a1 " * 3_000, '"' * 10_001, "/" * 10_000, "' " * 5_000):
        assert len(value(dba, PATTERN, "E", message)) <= 204


@pytest.fixture
def failing(database, dba, hire):
    """Let attempts end, one second after the other."""
    worker = hire(types=["a", "b"])

    def fails(task_type, message, error_class="ValueError", kind="failure", task_id=None):
        database.clock.advance(1)
        worker.beat()
        task_id = task_id or add(dba, task_type, retry_policy='{"delays": [0]}', max_retries=1)
        claimed = next(each for each in worker.claim(10) if each.id == task_id)
        worker.end(claimed, kind, error_class=error_class, error_message=message)
        return task_id

    return fails


def test_groups_have_counts_first_and_last_and_the_latest_as_an_example(dba, failing):
    first = failing("a", "user 1 not found")
    failing("a", "user 1 not found", task_id=first)
    last = failing("a", "user 2 not found")
    other = failing("b", "user 3 not found")
    failing("b", "no matter", kind="snoozed")
    found = rows(
        dba,
        "select task_type, pattern, attempts, tasks, extract(epoch from last_at - first_at)::int, example_task_id::text, example_message"
        " from octop_failure_groups",
    )
    assert found == [
        ("b", "ValueError: user * not found", 1, 1, 0, other, "user 3 not found"),
        ("a", "ValueError: user * not found", 3, 2, 2, last, "user 2 not found"),
    ]
    groups = column(dba, "select group_id from octop_failure_groups")
    assert all(len(each) == 8 for each in groups)
    assert len(set(groups)) == 2


def test_the_view_has_the_columns_that_are_contract(dba):
    columns = column(
        dba,
        "select column_name::text from information_schema.columns where table_name = 'octop_failure_groups' order by ordinal_position",
    )
    wanted = "group_id task_type pattern attempts tasks first_at last_at example_task_id example_message"
    assert columns == wanted.split()


def test_a_group_keeps_its_id(dba, failing):
    failing("a", "user 1 not found")
    before = column(dba, "select group_id from octop_failure_groups")
    failing("a", "user 2 not found")
    assert column(dba, "select group_id from octop_failure_groups") == before


def test_an_attempt_without_class_and_message_is_named_by_its_outcome(dba, failing):
    failing("a", None, error_class=None, kind="timeout")
    assert column(dba, "select pattern from octop_failure_groups") == ["timeout"]


def test_a_viewer_reads_the_groups_and_a_producer_does_not(database, dba, failing):
    failing("a", "x")
    with database.connect("octop_viewer") as viewer:
        assert value(viewer, "select count(*) from octop_failure_groups") == 1
        assert value(viewer, "select count(*) from octop_failed_attempts()") == 1
    with database.connect("octop_producer") as producer, pytest.raises(Exception, match="permission denied"):
        do(producer, "select * from octop_failure_groups")


def fill(dba, count):
    do(
        dba,
        "insert into octop_attempts (task_id, attempt, tenant, queue, task_type, ended_at, outcome, error_class, error_message)"
        " select octop_uuid7(), 1, '', 'default', 'a', now() - make_interval(secs => g), case when g %% 10 = 0 then 'snoozed' else 'failure' end,"
        " 'E', 'user ' || g from generate_series(1, %s) g",
        count,
    )


def test_no_more_than_the_latest_so_many_attempts_are_read(dba):
    fill(dba, 30_000)
    do(dba, "analyze octop_attempts")
    with watched(dba) as seen:
        assert column(dba, "select attempts from octop_failure_groups") == [9000]  # a tenth of the 10,000 had snoozed
    read = [scan for statement in seen for scan in statement.scans if scan.relation == "octop_attempts"]
    assert {scan.index for scan in read} == {"octop_attempts_ended_at"}
    assert sum(scan.rows for scan in read) == 10_000
    assert value(dba, "select count(*) from octop_failed_attempts(most => 50)") == 45
    assert value(dba, "select count(*) from octop_failed_attempts(most => -1)") == 0
    since = value(dba, "select ended_at from octop_attempts order by ended_at desc offset 99 limit 1")
    assert value(dba, "select count(*) from octop_failed_attempts(%s)", since) == 90
