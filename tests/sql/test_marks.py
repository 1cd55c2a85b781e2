"""Low-water marks: a claim that begins where the last one ended."""

from __future__ import annotations

import psycopg

from octop.model.task import Success
from tests.sql.crew import add, add_many, do
from tests.sql.plans import watched

NOBODY = "00000000-0000-0000-0000-000000000000"


def marks_of(*tasks):
    """Return the marks that lie at these tasks."""
    marks: dict[str, dict[int, tuple[str, str]]] = {}
    for task in tasks:
        marks.setdefault(task.queue, {})[task.priority] = (task.scheduled_at, task.id)
    return marks


def test_only_what_lies_behind_the_mark_is_claimed_also_among_tasks_of_one_moment(dba, hire):
    first, second, third, fourth = sorted(add_many(dba, 4))  # one statement, and so one scheduled_at
    worker = hire()
    (one,) = worker.claim(1)
    assert one.id == first
    (two,) = worker.exchange(1, marks=marks_of(one._replace(id=second))).tasks
    assert two.id == third
    assert [each.id for each in worker.exchange(10, marks=marks_of(two)).tasks] == [fourth]
    assert worker.exchange(10, marks=marks_of(two._replace(id=fourth))).tasks == []
    assert [each.id for each in worker.claim(10)] == [second], "without marks from the front"


def test_each_priority_and_each_queue_has_a_mark_of_its_own(dba, hire):
    worker = hire(queues=("a", "b"))
    urgent, late = (add(dba, queue="a", priority=priority) for priority in (0, 9))
    other = add(dba, queue="b", priority=9)
    behind = {9: ("2999-01-01 00:00:00+00", NOBODY)}
    assert [each.id for each in worker.exchange(10, marks={"a": behind}).tasks] == [urgent, other]
    more = add(dba, queue="b", priority=9)
    assert worker.exchange(10, marks={"a": behind, "b": behind}).tasks == []
    assert [each.id for each in worker.exchange(10, marks={"b": behind}).tasks] == [late]
    assert [each.id for each in worker.claim(10)] == [more]


def test_lanes_take_turns_whatever_the_marks_say(dba, hire):
    ids = {add(dba, lane=lane) for lane in ("", "a", "b")}
    behind = {5: ("2999-01-01 00:00:00+00", NOBODY)}
    assert {each.id for each in hire().exchange(10, marks={"default": behind}).tasks} == ids


def test_what_is_held_lies_behind_the_mark_too(dba, hire):
    """Parking looks at what a claim has met, and meets nothing before the mark."""
    add(dba, "t")
    held = add(dba, "held")
    do(dba, "insert into octop_holds (kind, target) values ('task_type', 'held')")
    worker = hire(types=("t", "held"))
    (claimed,) = worker.claim(1)
    answer = worker.exchange(10, marks=marks_of(claimed))
    assert (answer.tasks, answer.parked) == ([], 1)
    assert dba.execute("select status from octop_tasks where id = %s", [held]).fetchone() == ("blocked",)


def test_c072_a_claim_behind_the_mark_does_not_walk_over_what_a_held_transaction_keeps(database, dba, hire):
    add_many(dba, 4000)
    worker = hire()
    with database.connect("octop_viewer", autocommit=False) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select count(*) from octop_tasks")
        claimed = []
        for _ in range(15):
            claimed = worker.claim(200)
            worker.exchange(successes=[Success(each.fence) for each in claimed])
        with database.connect() as watcher:
            crew = type(worker)(watcher, id=worker.id)
            for _ in range(6):  # what a session reads once of the catalog, and of plans made anew, is no part of it
                (last,) = crew.exchange(1, marks=marks_of(claimed[-1])).tasks
            with watched(watcher) as seen:
                (last,) = crew.exchange(1, marks=marks_of(last)).tasks
            behind = max(each.buffers for each in seen)
            with watched(watcher) as seen:
                (_,) = crew.exchange(1).tasks
            front = max(each.buffers for each in seen)
    assert behind * 3 < front, f"{behind} pages behind the mark, {front} from the front"
