"""Who is woken when, and that nobody who sleeps misses a task: a notification is a hint, sent no more often than it helps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from octop.engine import calls
from octop.model.task import Outcome, OutcomeKind
from octop.model.work import NewTask
from tests.servers import Database
from tests.sql.sessions import Session, Worker, enqueue, sessions


class Ear:
    """Hears what is sent on `octop_wake`, up to now: a mark of its own tells where "now" is."""

    def __init__(self, database: Database) -> None:
        self.connection = database.connect()
        self.connection.execute("listen octop_wake")
        self.connection.execute("listen octop_test_mark")
        self.mouth = database.connect()

    def heard(self) -> Counter[str]:
        self.mouth.execute("notify octop_test_mark")
        found: Counter[str] = Counter()
        for notice in self.connection.notifies(timeout=15):
            if notice.channel == "octop_test_mark":
                return found
            found[notice.payload] += 1
        message = "the mark never came"
        raise AssertionError(message)


@pytest.fixture
def ear(database: Database) -> Iterator[Ear]:
    made = Ear(database)
    yield made
    made.connection.close()
    made.mouth.close()


@pytest.fixture
def two(database: Database) -> Iterator[list[Session]]:
    with sessions(database, 2) as made:
        yield made


def sleep(worker: Worker, seconds: float = 60) -> float:
    return worker.session.run(calls.octop_sleep(worker.id, worker.queues, seconds))


def assert_no_doubt(session: Session, doubt: str) -> None:
    """Transaction ids are the whole server's: while other tests write in other databases there is a doubt that is not ours."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        (others,) = session.execute(
            "select count(*) from pg_stat_activity where datname <> current_database() and backend_xid is not null"
        )[0]
        if not session.run(calls.octop_doubtful(doubt)):
            return
        assert others > 0, "a doubt that nobody gives reason for"


def insert(session: Session, queue: str = "default", due: str = "now()", count: int = 1) -> None:
    session.execute(
        f"insert into octop_tasks (task_type, queue, scheduled_at) select 'job', %s, {due} from generate_series(1, %s)",
        [queue, count],
    )


def enqueue_here(session: Session, queue: str = "default", due: str = "now()", count: int = 1) -> None:
    session.execute(
        "select octop_enqueue_many(array_fill('job'::text, array[%s::int]), array_fill('{}'::text, array[%s::int]),"
        f" queues => array_fill(%s::text, array[%s::int]), scheduled_at => array_fill({due}, array[%s::int]))",
        [count, count, queue, count, count],
    )


ways = pytest.mark.parametrize("put", [insert, enqueue_here], ids=["insert", "enqueue"])


@ways
def test_nobody_is_told_when_nobody_sleeps(two, ear, put):
    mine, producer = two
    worker = Worker(mine)
    put(producer)
    assert ear.heard() == {}
    sleep(worker)
    mine.run(calls.octop_exchange(worker.id, wanted={"default": 0}, task_types=["job"], awake=True))
    put(producer)
    assert ear.heard() == {}


@ways
def test_a_sleeper_is_told_once_per_queue_and_transaction(two, ear, put):
    mine, producer = two
    sleep(Worker(mine, ("default", "other")))
    producer.execute("begin")
    for _ in range(3):
        put(producer, count=20)
        put(producer, "other", count=20)
        put(producer, "unserved", count=20)
    assert ear.heard() == {}
    producer.execute("commit")
    assert ear.heard() == {"default": 1, "other": 1}


@ways
def test_a_rolled_back_transaction_tells_nobody(two, ear, put):
    mine, producer = two
    sleep(Worker(mine))
    producer.execute("begin")
    put(producer)
    producer.execute("rollback")
    assert ear.heard() == {}


@ways
def test_a_task_that_is_due_after_the_sleeper_wakes_by_itself_tells_nobody(two, ear, put):
    mine, producer = two
    worker = Worker(mine)
    assert sleep(worker, 60) == pytest.approx(60, abs=1)
    put(producer, due="now() + interval '2 min'")
    assert ear.heard() == {}
    put(producer, due="now() + interval '30 s'")
    assert ear.heard() == {"default": 1}
    # who goes to sleep now wakes for that task, and only for it
    assert sleep(worker, 60) == pytest.approx(30, abs=5)
    put(producer, due="now() + interval '50 s'")
    assert ear.heard() == {}


@ways
def test_a_sleep_ends_when_the_next_task_is_due(two, put):
    mine, producer = two
    worker = Worker(mine, ("default", "other"))
    put(producer, due="now() + interval '1 h'")
    assert sleep(worker, 60) == pytest.approx(60, abs=1)
    put(producer, "other", due="now() + interval '20 s'")
    put(producer, "unserved", due="now() + interval '1 s'")
    assert sleep(worker, 60) == pytest.approx(20, abs=3)


def test_laned_and_failed_tasks_end_a_sleep_too(two):
    mine, producer = two
    worker = Worker(mine)
    enqueue(producer, lane="somebody", delay_seconds=20)
    assert sleep(worker, 60) == pytest.approx(20, abs=3)
    enqueue(producer, retry_policy='{"delays": [8], "jitter": 0}')
    (got,) = worker.claim()
    worker.exchange(outcomes=[Outcome(got.fence, OutcomeKind.FAILURE)])
    assert sleep(worker, 60) == pytest.approx(8, abs=3)


def test_a_retry_wakes(two, ear):
    mine, person = two
    worker = Worker(mine)
    enqueue(mine, max_retries=0)
    (got,) = worker.claim()
    worker.exchange(outcomes=[Outcome(got.fence, OutcomeKind.FAILURE)])
    ear.heard()
    person.run(calls.octop_retry(got.fence.id))
    assert ear.heard() == {}
    person.execute("update octop_tasks set scheduled_at = now() + interval '1 h' where id = %s", [got.fence.id])
    sleep(worker)
    person.run(calls.octop_retry(got.fence.id))
    assert ear.heard() == {"default": 1}


def test_repairs_by_hand_wake(two, ear):
    mine, person = two
    worker = Worker(mine)
    enqueue(mine, max_retries=0)
    (got,) = worker.claim()
    worker.exchange(outcomes=[Outcome(got.fence, OutcomeKind.FAILURE)])
    sleep(worker)
    ear.heard()
    person.execute("update octop_tasks set status = 'pending' where id = %s and status = 'frozen'", [got.fence.id])
    assert ear.heard() == {"default": 1}
    person.execute("update octop_tasks set scheduled_at = now() + interval '1 h' where id = %s", [got.fence.id])
    assert ear.heard() == {}
    person.execute("update octop_tasks set scheduled_at = now() where id = %s", [got.fence.id])
    assert ear.heard() == {"default": 1}


def test_a_resume_wakes_once(two, ear):
    mine, person = two
    sleep(Worker(mine))
    person.run(calls.octop_pause("default"))
    ear.heard()
    person.run(calls.octop_resume("default"))
    assert ear.heard() == {"default": 1}
    person.run(calls.octop_resume("default"))
    assert ear.heard() == {}


@ways
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_producer_with_an_old_snapshot_tells_always(two, ear, put, level):
    """It may not see that somebody went to sleep after its first statement."""
    mine, producer = two
    worker = Worker(mine)
    producer.execute(f"begin isolation level {level}")
    producer.execute("select count(*) from octop_config")
    sleep(worker)
    put(producer)
    producer.execute("commit")
    assert ear.heard() == {"default": 1}


@ways
def test_a_producer_who_saw_nobody_asleep_and_commits_after_the_second_look_is_found(two, ear, put):
    mine, producer = two
    worker = Worker(mine)
    assert worker.claim() == []
    producer.execute("begin")
    put(producer)  # reads: nobody sleeps
    sleep(worker)
    doubt = mine.run(calls.octop_doubt())
    assert mine.run(calls.octop_doubtful(doubt))
    assert worker.claim() == []  # the second look
    producer.execute("commit")
    assert ear.heard() == {}  # nobody tells us: only the doubt is left
    assert_no_doubt(mine, doubt)
    assert len(worker.claim()) == 1


@ways
def test_a_producer_who_begins_after_the_doubt_was_taken_sees_the_sleeper(two, ear, put):
    mine, producer = two
    worker = Worker(mine)
    sleep(worker)
    doubt = mine.run(calls.octop_doubt())
    producer.execute("begin")
    put(producer)
    assert_no_doubt(mine, doubt)
    producer.execute("commit")
    assert ear.heard() == {"default": 1}


def test_a_producer_who_commits_between_sleep_and_doubt_is_seen_by_the_second_look(two, ear):
    mine, producer = two
    worker = Worker(mine)
    producer.execute("begin")
    enqueue(producer)
    sleep(worker)
    producer.execute("commit")
    assert ear.heard() == {}
    doubt = mine.run(calls.octop_doubt())
    assert_no_doubt(mine, doubt)
    assert len(worker.claim()) == 1


def test_a_read_only_transaction_leaves_no_doubt(two):
    mine, reader = two
    worker = Worker(mine)
    reader.execute("begin")
    reader.execute("select count(*) from octop_tasks")
    sleep(worker)
    assert_no_doubt(mine, mine.run(calls.octop_doubt()))


def test_sleepers_in_many_queues_do_not_lock_each_other_out(two):
    mine, other = two
    first, second = Worker(mine, ("a", "b")), Worker(other, ("b", "a"))
    mine.execute("begin")
    sleep(first)
    other.execute("set lock_timeout = '50ms'")
    sleep(second)
    mine.execute("commit")
    assert mine.execute("select count(*) from _octop_sleepers") == [(4,)]


def test_a_bulk_of_fresh_tasks_wakes_once(two, ear):
    mine, producer = two
    sleep(Worker(mine))
    producer.run(calls.octop_enqueue_many([NewTask("job", "{}", str(uuid4())) for _ in range(500)]))
    assert ear.heard() == {"default": 1}
