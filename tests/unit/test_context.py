import contextvars
import datetime as dt
import logging
import pickle
import threading

import pytest

import octop
from octop import Cancel, Context, OctopError, Retry, Snooze
from octop.model.context import context_variable
from octop.model.errors import InvalidOptionError, OutsideTaskError
from octop.model.ids import new_id
from octop.model.task import NIL, Claimed


@pytest.fixture
def claimed():
    return Claimed(
        id="0199f3a0-0000-7000-8000-000000000001",
        attempt=2,
        claim_id=NIL,
        tenant="acme",
        queue="mail",
        lane="l",
        task_type="send",
        payload="{}",
        priority=3,
        retry_count=1,
        max_retries=1,
        timeout_seconds=30.0,
        scheduled_at="2030-01-01 10:00:00.5+00",
        due_at="2030-01-01 09:00:00+00",
        isolated=False,
        tags=["a"],
        meta='{"trace": "x"}',
    )


def test_the_context_tells_everything_about_the_attempt(claimed):
    context = Context(claimed)
    assert str(context.task_id) == claimed.id
    assert (context.attempt, context.task_type, context.queue, context.tenant, context.lane) == (
        2,
        "send",
        "mail",
        "acme",
        "l",
    )
    assert (context.priority, context.retry_count, context.max_retries, context.is_last_attempt) == (3, 1, 1, True)
    assert context.scheduled_at == dt.datetime(2030, 1, 1, 10, 0, 0, 500_000, tzinfo=dt.UTC)
    assert context.due_at == dt.datetime(2030, 1, 1, 9, tzinfo=dt.UTC)
    assert (context.tags, context.meta, context.cancelled) == (("a",), {"trace": "x"}, False)


def test_a_long_task_sees_that_it_is_cancelled(claimed):
    stop = threading.Event()
    context = Context(claimed, cancelled=stop.is_set)
    assert not context.cancelled
    stop.set()
    assert context.cancelled


def test_the_logger_adds_the_task_and_keeps_what_the_caller_adds(claimed, caplog):
    with caplog.at_level(logging.INFO, logger="octop.task"):
        Context(claimed).logger.info("sent", extra={"mail": "m"})
    record = caplog.records[0]
    assert (record.task_id, record.task_type, record.attempt, record.mail) == (claimed.id, "send", 2, "m")


def test_current_is_the_task_that_runs_here_and_an_error_elsewhere(claimed):
    with pytest.raises(OutsideTaskError, match="outside of a task"):
        octop.current()
    context = Context(claimed)

    def inside():
        context_variable.set(context)
        return octop.current()

    assert contextvars.copy_context().run(inside) is context


def test_snooze_cancel_and_retry_carry_their_orders():
    assert Snooze(60).seconds == 60
    assert Snooze(dt.timedelta(minutes=1)).seconds == 60
    assert Snooze(0).seconds == 0
    assert Cancel("why").reason == "why"
    assert Cancel(5).reason == "5"  # type: ignore[arg-type] # what a careless author writes
    assert Retry().delay_seconds is None
    assert Retry(delay=0).delay_seconds == 0
    assert Retry(30, reason="busy").reason == "busy"


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "60", True, 1e12])
def test_a_delay_that_is_none_is_refused(delay):
    for order in (Snooze, Retry):
        with pytest.raises(InvalidOptionError):
            order(delay)


def test_orders_survive_the_way_from_a_child_process():
    # multiprocessing's way, not ours: what is tested is that the classes can be rebuilt from their arguments
    assert pickle.loads(pickle.dumps(Cancel("why"))).reason == "why"
    assert pickle.loads(pickle.dumps(Snooze(60))).seconds == 60
    again = pickle.loads(pickle.dumps(Retry(5, reason="busy")))
    assert (again.delay_seconds, str(again)) == (5, "busy")


def test_ids_grow_are_of_version_7_and_never_meet():
    made = [new_id() for _ in range(2_000)]
    assert made == sorted(set(made))
    assert {(one[14], one[19] in "89ab", len(one)) for one in made} == {("7", True, 36)}
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend(new_id() for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 2_000


def test_public_names_are_loaded_when_asked_for():
    assert issubclass(octop.OctopError, Exception)
    assert OctopError is octop.OctopError
    assert set(octop.__all__) <= set(dir(octop))
    for name in octop.__all__:
        assert getattr(octop, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = octop.nothing


def test_a_task_knows_the_schedule_and_the_slot_for_which_it_was_made(claimed):
    made = Context(claimed._replace(meta='{"schedule": "report", "slot": "2030-01-01T00:30:00+00:00"}'))
    assert made.schedule == "report"
    assert made.slot == dt.datetime(2030, 1, 1, 0, 30, tzinfo=dt.UTC)
    assert (Context(claimed).schedule, Context(claimed).slot) == (None, None)
    for rider in ('{"schedule": "x"}', '{"slot": "soon", "schedule": "x"}', '{"slot": "2030-01-01", "schedule": "x"}'):
        own = Context(claimed._replace(meta=rider))
        assert (own.schedule, own.slot) == (None, None), "riders of the same names that somebody enqueued"
