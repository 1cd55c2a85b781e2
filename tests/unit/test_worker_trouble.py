"""What a worker does with errors of the exchange: without a database."""

import asyncio
from types import SimpleNamespace

import pytest

from octop.model.errors import IsolationLevelError, NotPermittedError, TryAgainError, UnexpectedDatabaseError
from octop.model.task import Exchanged, Fence, Outcome, OutcomeKind, Settled
from octop.worker.trouble import Trouble, is_about_values
from tests.unit.desk import EMPTY, Desk, claimed, loop_test


class ServerError(Exception):
    def __init__(self, sqlstate):
        self.sqlstate = sqlstate


def unexpected(sqlstate):
    error = UnexpectedDatabaseError(f"no (SQLSTATE {sqlstate})")
    error.__cause__ = ServerError(sqlstate)
    return error


@pytest.mark.parametrize(
    "error", [unexpected("53100"), unexpected("53200"), unexpected("XX000"), TryAgainError("55P03")]
)
@pytest.mark.parametrize("call", ["octop_exchange", "octop_sleep", "octop_doubt"])
@loop_test
async def test_what_passes_on_the_server_is_waited_for_and_not_told_again_and_again(error, call, caplog):
    count = 0
    normal = Desk().link.answers[call]

    def answer(_):
        nonlocal count
        count += 1
        return error if count <= 8 else normal

    desk = Desk(**{call: answer})
    await desk.run_until(lambda: count > 8)
    assert sum("trying again" in record.message for record in caplog.records) <= 1
    assert all(pause is not None and 0 < pause <= 5 for pause in desk.link.pauses)


@loop_test
async def test_a_full_disk_does_not_turn_a_success_into_a_failure():
    refusals = [unexpected("53100")] * 3
    desk = Desk(octop_exchange=lambda _: refusals.pop() if refusals else EMPTY)
    desk.holdings.active["1"] = claimed(1)
    desk.holdings.success(claimed(1), "7")
    await desk.run_until(lambda: not refusals and not len(desk.holdings.outbox))
    assert all(values["done_ids"] == "{1}" for values in desk.link.exchanges()[:4])


@loop_test
async def test_an_outcome_that_can_not_be_kept_fails_alone_and_one_whose_fault_it_is_not_stays():
    def answer(call):
        if "bad" in call.values["done_ids"]:
            return unexpected("22P05")
        return EMPTY

    desk = Desk(octop_exchange=answer)
    for name in ("good", "bad", "fine"):
        desk.holdings.active[name] = claimed(name, id=name)
        desk.holdings.success(claimed(name, id=name), "7")
    desk.claims.claiming = False
    await desk.run_until(lambda: len(desk.link.exchanges()) >= 5)
    alone = [values["done_ids"] for values in desk.link.exchanges()]
    assert alone[:5] == ["{good,bad,fine}", "{good}", "{bad}", "{}", "{fine}"]
    assert "OutcomeRefused" in str(desk.link.exchanges()[3])


def test_errors_are_blamed_on_values_only_when_they_say_so():
    assert is_about_values(unexpected("22P05"))
    assert is_about_values(unexpected("54000"))
    assert is_about_values(UnexpectedDatabaseError("psycopg could not send it"))
    assert not any(is_about_values(unexpected(code)) for code in ("53100", "53200", "XX000", "58030", "57014"))


def test_a_missing_right_is_borne_for_half_a_minute_and_no_longer(monkeypatch):
    moment = [100.0]
    monkeypatch.setattr("octop.worker.trouble.time", SimpleNamespace(monotonic=lambda: moment[0]))
    trouble = Trouble("x", "salt")
    refused = NotPermittedError("no")
    trouble.bear(refused)
    moment[0] += 29
    trouble.bear(refused)
    trouble.over()
    trouble.bear(refused)
    moment[0] += 29
    trouble.bear(refused)
    moment[0] += 2
    with pytest.raises(NotPermittedError):
        trouble.bear(refused)
    for _ in range(10):
        moment[0] += 60
        assert trouble.bear(unexpected("53100")) <= 5


def test_the_log_shows_the_cure_of_what_needs_a_person_and_none_for_a_lock(caplog):
    Trouble("the exchange is refused", "salt").bear(IsolationLevelError("it needs READ COMMITTED", hint="Set it."))
    locked = Trouble("the exchange waits", "salt")
    for _ in range(4):
        locked.bear(TryAgainError("locked", hint="Try the same again."))
    assert [record.message for record in caplog.records] == [
        "the exchange is refused: trying again: it needs READ COMMITTED; hint: Set it.",
        "the exchange waits: trying again: locked",
    ]


@pytest.mark.parametrize(
    "answer", [TryAgainError("locked"), Exchanged([], [Settled("1", "again")], {}, 0)], ids=["TryAgain", "again"]
)
@loop_test
async def test_a_stopping_worker_does_not_wait_for_ever_for_somebody_elses_lock(answer):
    desk = Desk(octop_exchange=lambda _: answer)
    desk.holdings.active["1"] = claimed(1)
    desk.holdings.outcome(Outcome(Fence("1", 1, "c"), OutcomeKind.RELEASED))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.exchanger.run())
        desk.exchanger.end()
        await asyncio.sleep(0.3)
        assert not running.done()
        assert len(desk.link.names) < 20, "each try takes a breath"
        desk.exchanger.give_up()
        async with asyncio.timeout(1):
            await running
    assert desk.holdings.outbox.outcomes
