"""What a worker makes of an attempt that commits by itself: its start, its COMMIT, and what is told afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

import pytest

from octop.engine.task_transaction import NotBegunError
from octop.model.definition import define
from octop.model.errors import DatabaseUnreachableError, TransactionEndedError
from octop.model.hooks import Hooks
from octop.model.task import NIL, OutcomeKind
from octop.worker.ending import AttemptLostError
from octop.worker.report import failure_of
from octop.worker.slot import Reason
from octop.worker.transactions import Committed, NoPlaceError, Transactions, dsn_of_tasks
from tests.unit.house import House, claimed, house_test, until

TASK = claimed("pay", 1)


class Stub:
    """Transactions without a database: ``end`` says what becomes of each."""

    worker_id = NIL

    def __init__(self, end):
        self.end = end

    @contextlib.asynccontextmanager
    async def place(self, _seconds):
        yield lambda: None

    def run(self, attempt):
        attempt.begins(object(), lambda: None)
        return self.end(attempt, attempt.call())

    async def run_async(self, attempt):
        attempt.begins(object(), lambda: None)
        return self.end(attempt, await attempt.call())

    async def close(self): ...


def paying(function, end, *middleware):
    """Return a house whose task commits by itself, and what its hooks are told."""
    told: list[object] = []
    hooks = Hooks()
    hooks.success.append(lambda _context, value: told.append(("success", value)))
    hooks.failure.append(lambda _context, error: told.append(("failure", error)))
    hooks.middleware.extend(middleware)
    house = House(function, hooks=hooks)
    house.runner._registry["pay"] = define(function, transactional=True)
    house.runner._ways._transactions = Stub(end)  # type: ignore[assignment]
    return house, told


def commits(attempt, value):
    attempt.written(value)
    attempt.commits()
    return Committed(value, None)


@house_test
async def test_a_success_that_the_database_knew_before_the_worker_is_no_loss():
    go = threading.Event()

    def pay() -> None: ...

    def end(attempt, value):
        answer = commits(attempt, value)
        go.wait(10)
        return answer

    house, told = paying(pay, end)
    house.give(TASK)
    await until(lambda: house.holdings.running and house.holdings.running["1"].committing)
    house.recall.lost([TASK], ["1"])
    house.recall.cancel("1")
    assert house.recall.lose(TASK) is None
    go.set()
    await house.idle()
    assert told == [("success", None)]
    assert not house.holdings.active
    assert len(house.holdings.outbox) == 0


@house_test
async def test_a_time_limit_that_passes_while_it_is_committed_is_no_timeout():
    go = threading.Event()

    def pay() -> None: ...

    def end(attempt, value):
        answer = commits(attempt, value)
        go.wait(10)
        return answer

    house, told = paying(pay, end)
    house.give(claimed("pay", 1, timeout=0.02))
    await until(lambda: house.holdings.running and house.holdings.running["1"].reason is Reason.TIMEOUT)
    go.set()
    await house.idle()
    assert (told, len(house.holdings.outbox)) == ([("success", None)], 0)


@house_test
async def test_an_attempt_that_was_lost_before_its_commit_is_told_to_nobody():
    async def pay() -> None: ...

    def end(_attempt, _value):
        raise AttemptLostError

    house, told = paying(pay, end)
    house.give(TASK)
    await house.idle()
    assert (told, len(house.holdings.outbox)) == ([], 0)


def test_a_middleware_that_raises_after_the_commit_is_logged_and_changes_nothing(caplog):
    @house_test
    async def scene():
        async def pay() -> int:
            return 7

        async def broken(_context, call_next):
            await call_next()
            raise ValueError("broken")

        house, told = paying(pay, commits, broken)
        house.give(TASK)
        await house.idle()
        assert (told, len(house.holdings.outbox)) == ([("success", 7)], 0)

    with caplog.at_level(logging.ERROR):
        scene()
    assert "a middleware raised after the commit" in caplog.text


def _recorded(_house, slot):
    slot.recorded = True


def _interrupted(_house, slot):
    slot.reason = Reason.CANCEL


def _closed(house, _slot):
    house.runner._ways.close()


def _not_held(house, _slot):
    house.holdings.active.clear()


def _silent(house, _slot):
    house.lease.until = 0.0


@pytest.mark.parametrize("what", [_recorded, _interrupted, _closed, _not_held, _silent])
@pytest.mark.parametrize("place", ["loop", "thread"])
def test_what_has_ended_while_it_waited_for_a_connection_is_not_begun(what, place):
    ran: list[int] = []

    @house_test
    async def scene():
        if place == "loop":

            async def pay() -> None:
                ran.append(1)
        else:

            def pay() -> None:  # type: ignore[misc]
                ran.append(1)

        house, _ = paying(pay, commits)
        waits = asyncio.Event()
        arrived = asyncio.Event()

        @contextlib.asynccontextmanager
        async def place_later(_seconds):
            arrived.set()
            await waits.wait()
            yield lambda: None

        house.runner._ways._transactions.place = place_later
        house.give(TASK)
        await arrived.wait()
        what(house, house.holdings.running["1"])
        waits.set()
        await house.idle()

    scene()
    assert ran == []


@house_test
async def test_without_a_place_or_a_connection_it_is_put_off_for_longer_and_longer():
    async def pay() -> None: ...

    async def refuse(_attempt):
        raise NotBegunError(DatabaseUnreachableError("no"))

    house, told = paying(pay, commits)
    house.runner._ways._transactions.run_async = refuse
    delays = []
    for number in range(8):
        house.give(claimed("pay", number))
        await house.idle()
        (outcome,) = house.holdings.outbox.take()[1]
        assert outcome.kind is OutcomeKind.SNOOZED
        delays.append(outcome.delay_seconds)
    assert delays[0] < 0.2
    assert delays[-1] > 2
    assert told == []

    @contextlib.asynccontextmanager
    async def full(_seconds):
        if house:
            raise NoPlaceError
        yield

    house.runner._ways._transactions.place = full
    house.give(TASK)
    await house.idle()
    assert [each.kind for each in house.holdings.outbox.take()[1]] == [OutcomeKind.SNOOZED]


@house_test
async def test_its_time_begins_with_its_connection():
    arrived, waits, free = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def pay() -> None:
        await free.wait()

    house, _ = paying(pay, commits)

    @contextlib.asynccontextmanager
    async def place_later(_seconds):
        arrived.set()
        await waits.wait()
        yield lambda: None

    house.runner._ways._transactions.place = place_later
    house.give(claimed("pay", 1, timeout=1000.0))
    await arrived.wait()
    slot = house.holdings.running["1"]
    assert slot.starting
    before = slot.deadline
    waits.set()
    await until(lambda: not slot.starting)
    assert slot.deadline < before - 5, "the time for the start is not part of it"
    free.set()
    await house.idle()


@house_test
async def test_as_many_transactions_at_once_as_connections_and_one_that_was_cut_frees_its_place_once():
    transactions = Transactions(None, "public", NIL)
    transactions.places = 1
    async with transactions.place(1) as let_go:
        with pytest.raises(NoPlaceError):
            async with transactions.place(0.01):
                pass
        let_go()
        let_go()
        async with transactions.place(1):
            with pytest.raises(NoPlaceError):
                async with transactions.place(0.01):
                    pass
    async with transactions.place(1):
        with pytest.raises(NoPlaceError):
            async with transactions.place(0.01):
                pass


def test_a_task_that_ended_its_transaction_is_not_tried_again():
    assert failure_of(TASK.fence, TransactionEndedError("it did")).final
    assert not failure_of(TASK.fence, ValueError()).final


def test_an_empty_task_dsn_means_none():
    assert dsn_of_tasks({}, "a") == "a"
    assert dsn_of_tasks({"OCTOP_TASK_DSN": "b"}, "a") == "b"
    assert dsn_of_tasks({"OCTOP_TASK_DSN": ""}, "a") is None
