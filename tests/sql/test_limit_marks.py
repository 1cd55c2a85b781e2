"""How many tasks run is counted from a mark: as quickly beside a transaction that is held open, and exactly whatever happens."""

from __future__ import annotations

import contextlib
import random
import time

import psycopg
import pytest

from octop.model.task import Claimed, Success
from tests.sql.crew import Worker, add, add_many, column, do, limit, rows, value
from tests.sql.plans import watched
from tests.sql.test_marks import marks_of

MARK = "select since is not null, earlier::text[] from _octop_gates where lane = '' order by no desc limit 1"
RUN = "select count(*) from octop_tasks where status = 'running'"
COUNTED = "select total from _octop_running('default', false)"


@contextlib.contextmanager
def held_open(database):
    """Hold a snapshot, so that vacuum may take nothing that dies meanwhile."""
    with database.connect("octop_viewer", autocommit=False) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select count(*) from octop_tasks")
        yield


def drained(worker, exchanges, wanted, lanes=None):
    """Claim and complete so many times; return the last task."""
    claimed = worker.claim(wanted)
    marks: dict[str, dict[int, tuple[str, str]]] = {}
    for _ in range(exchanges):
        marks = marks_of(*claimed) if claimed and lanes is None else {}
        answer = worker.exchange(
            wanted, marks=marks, lanes_after=lanes, successes=[Success(each.fence) for each in claimed]
        )
        if lanes is not None:
            lanes.update(answer.lanes)
        claimed = answer.tasks
        assert len(claimed) == wanted
    worker.succeed(*claimed)
    return claimed[-1]


def marked(dba, worker):
    """Claim and complete until there is a mark; what is open in another database of the server may keep it away for a while."""
    end = time.monotonic() + 60
    add_many(dba, 100)
    drained(worker, 50, 1)
    while not rows(dba, MARK)[0][0]:
        assert time.monotonic() < end
        add_many(dba, 20)
        drained(worker, 10, 1)
        time.sleep(0.05)
        worker.beat()


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ({"global_limit": 2}, 1),
        ({"global_limit": 51, "rate": 10_000.0, "burst": 1_000_000}, 5),
        ({"rate": 10_000.0, "burst": 1_000_000}, 5),
    ],
    ids=["one beside a long one", "fifty, with a rate", "a rate"],
)
def test_C072_a_limited_claim_does_not_walk_over_what_a_held_transaction_keeps(database, dba, rules, wanted):
    limit(dba, **rules)
    with database.connect() as connection, held_open(database):
        worker = Worker(connection)
        worker.register()
        long_one = add(dba)
        assert [each.id for each in worker.claim(1)] == [long_one]
        add_many(dba, 1200 * wanted)
        touched = []
        if "global_limit" in rules:
            marked(dba, worker)
        for exchanges in (200, 60, 60, 60, 450, 60, 60, 60):  # some two hundred starts lie between two marks
            worker.beat()
            last = drained(worker, exchanges, wanted)
            with watched(connection) as seen:
                claimed = worker.exchange(wanted, marks=marks_of(last)).tasks
            assert len(claimed) == wanted
            worker.succeed(*claimed)
            touched.append(seen[-1].buffers)
        if "global_limit" in rules:
            assert rows(dba, MARK) == [(True, [long_one])]
            assert len(worker.claim(100)) == rules["global_limit"] - 1
    early, late = touched[:4], touched[4:]
    assert max(late) <= 1.3 * max(early), f"{early} pages at first, {late} later"


def test_C072_where_a_limit_lets_through_less_than_a_worker_wants_a_claim_begins_where_the_last_one_ended(
    database, dba
):
    """The worker forgets its marks each time, because its batch did not come back full; the queue keeps some."""
    limit(dba, global_limit=2)
    with database.connect() as connection, held_open(database):
        worker = Worker(connection)
        worker.register()
        add_many(dba, 2000)
        touched = []
        for exchanges in (50, 800):
            claimed = worker.claim(5)
            for _ in range(exchanges):
                claimed = worker.exchange(5, successes=[Success(each.fence) for each in claimed]).tasks
                assert len(claimed) == 2
            several = []
            for _ in range(10):  # some of them may be looks from the front
                worker.succeed(*claimed)
                with watched(connection) as seen:
                    claimed = worker.claim(5)
                several.append(seen[-1].buffers)
            worker.succeed(*claimed)
            touched.append(min(several))
    early, late = touched
    assert late <= 1.5 * early, f"{early} pages at first, {late} later"


def test_C072_who_frees_a_place_does_not_walk_over_what_a_held_transaction_keeps_to_learn_that_nothing_waits(
    database, dba
):
    limit(dba, global_limit=20)
    with database.connect() as connection, held_open(database):
        worker = Worker(connection)
        worker.register()
        add_many(dba, 2000)
        drained(worker, 99, 20)
        do(dba, "update _octop_gates set front_took = '0'")
        pages = []
        for _ in range(2):
            do(connection, "select _octop_freed('{default}')")
            with watched(connection) as seen:
                do(connection, "select _octop_freed('{default}')")
            pages.append(seen[-1].buffers)
            do(dba, "update _octop_gates set front_took = '11 ms'")
    walked, known = pages
    assert known * 5 < walked, f"{walked} pages to look, {known} not to"


def test_what_lies_before_the_marks_of_a_queue_is_found_after_a_second_or_when_too_little_lies_behind(dba, hire):
    limit(dba, global_limit=1)
    worker = hire()
    first, second, third, fourth = add_many(dba, 4)
    worker.succeed(worker.claim_one())
    do(dba, "update _octop_gates set front_took = '0.19 s'")  # ten seconds, on a busy machine
    late = [add(dba, scheduled_at=f"2020-01-01 00:00:0{n}+00") for n in range(3)]
    got = []
    for _ in range(2):
        got.append(worker.claim_one())
        worker.succeed(got[-1])
    assert [each.id for each in got] == sorted((first, second, third, fourth))[1:3]
    do(dba, "update _octop_gates set front_at = front_at - interval '11 s'")
    worker.succeed(one := worker.claim_one())
    assert one.id == late[0]
    worker.succeed(two := worker.claim_one())
    assert two.id == late[1], "from there on it is the front"
    limit(dba, global_limit=5)
    assert len(worker.claim(4)) == 2
    urgent = add(dba, scheduled_at="2019-01-01 00:00:00+00")
    assert [each.id for each in worker.claim(4)] == [urgent], "nothing lay behind"


def test_a_task_that_starts_in_a_transaction_older_than_the_mark_is_counted(dba, hire):
    limit(dba, global_limit=2)
    add_many(dba, 400)
    old, worker = hire(), hire()
    old.connection.autocommit = False
    do(old.connection, "select 1")  # from now on its time stands still
    marked(dba, worker)
    (claimed,) = old.claim(1)
    old.connection.commit()
    assert value(dba, COUNTED) == 1
    assert rows(dba, MARK) == [(True, [claimed.id])]
    assert len(worker.claim(5)) == 1


def test_there_is_no_mark_while_somebody_may_start_tasks_by_the_rules_of_before(dba, hire):
    add_many(dba, 400)
    old, worker = hire(), hire()
    old.connection.autocommit = False
    (claimed,) = old.claim(1)  # without the lock: there is no limit yet
    limit(dba, global_limit=2)
    drained(worker, 300, 1)
    assert rows(dba, MARK) == [(False, [])]
    old.connection.commit()
    marked(dba, worker)
    assert rows(dba, MARK) == [(True, [claimed.id])]
    assert len(worker.claim(5)) == 1


def test_what_was_started_while_there_was_no_limit_is_counted_when_there_is_one_again(dba, hire):
    limit(dba, global_limit=2)
    add_many(dba, 400)
    old, worker = hire(), hire()
    old.connection.autocommit = False
    do(old.connection, "select 1")
    marked(dba, worker)
    do(dba, "update octop_queues set global_limit = null")
    assert len(old.claim(3)) == 3  # before the mark, and nobody noted them
    old.connection.commit()
    do(dba, "update octop_queues set global_limit = 7")
    assert len(worker.claim(9)) == 4


def test_the_count_is_that_of_the_rows_whatever_the_clock_and_the_tasks_do(database, dba, hire):
    database.clock.advance(0)
    limit(dba, global_limit=6)
    add_many(dba, 800)
    do(dba, "update octop_queues set max_retries = 1000, retry_policy = '{\"delays\": [0.001]}'")
    chance, worker, marks = random.Random(72), hire(), set()
    running: dict[str, Claimed] = {}
    for _ in range(200):
        database.clock.advance(chance.choice((0, 0.001, 1, 60, -0.001, -50)))
        worker.beat()
        do(
            dba,
            "update octop_tasks set scheduled_at = '2020-01-01' where status in ('pending', 'failed') and scheduled_at > _octop_now()",
        )
        got = worker.claim(chance.choice((1, 3, 9)))
        running.update((each.id, each) for each in got)
        assert value(dba, COUNTED) == value(dba, RUN) == len(running) <= 6
        marks.add(value(dba, "select since from _octop_gates"))
        for each in chance.sample(list(running.values()), chance.randint(0, len(running))):
            del running[each.id]
            way = chance.choice(("success", "success", "released", "failure", "by hand"))
            if way == "success":
                worker.succeed(each)
            elif way == "by hand":
                do(dba, "update octop_tasks set status = 'pending' where id = %s", each.id)
            else:
                worker.end(each, way)
            assert value(dba, COUNTED) == value(dba, RUN) == len(running)
    assert len(marks) > 2


def test_who_writes_into_the_leaf_by_hand_that_a_task_runs_is_counted_from_the_next_sweep_on(dba, hire):
    limit(dba, global_limit=2)
    (stray, *_) = add_many(dba, 300)
    worker = hire()
    do(dba, "update octop_tasks_live set scheduled_at = 'tomorrow' where id = %s", stray)
    marked(dba, worker)
    do(dba, "update octop_tasks_live set status = 'running' where id = %s", stray)
    do(dba, "select _octop_adopt_strays(10)")
    assert len(worker.claim(5)) == 1
    assert column(dba, COUNTED) == [2]
