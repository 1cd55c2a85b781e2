"""When a worker asks, and what it does with errors: without a database."""

import asyncio
import dataclasses
import functools
import time
from types import SimpleNamespace

import pytest

from octop.model.definition import define
from octop.model.errors import IsolationLevelError, NotPermittedError, TryAgainError, UnexpectedDatabaseError
from octop.model.hooks import Hooks
from octop.model.task import NIL, Claimed, Exchanged, Fence, Outcome, OutcomeKind, Settled
from octop.model.work import Control, Settings
from octop.worker.claims import Claims
from octop.worker.exchanger import Exchanger
from octop.worker.holdings import Holdings
from octop.worker.lease import Lease
from octop.worker.link import Link
from octop.worker.options import WorkerOptions
from octop.worker.pool import Pool
from octop.worker.rounds import Rounds
from octop.worker.runtime import Runtime
from octop.worker.slot import Slot
from octop.worker.trouble import Trouble, is_about_values

EMPTY = Exchanged([], [], {}, 0)


def claimed(number=0, **more):
    made = Claimed(
        str(number), 1, "c", "", "q", "", "noop", "{}", 5, 0, 3, 30.0, "2030-01-01", "2030-01-01", False, None, None
    )
    return made._replace(**more)


def loop_test(function):
    @functools.wraps(function)
    def run(*arguments, **named):
        async def bounded():
            async with asyncio.timeout(20):
                await function(*arguments, **named)

        asyncio.run(bounded())

    return run


class FakeLink:
    """Answers calls by the name of their function; an exception is raised."""

    def __init__(self, **answers):
        self.answers = answers
        self.names = []
        self.values = []
        self.pauses = []
        self.is_over = False

    async def call(self, call, *, seconds=0.0):
        name = next(name for name in self.names_known() if f"{name}(" in call.text)
        self.names.append(name)
        self.values.append(call.values)
        answer = self.answers.get(name)
        if callable(answer):
            answer = answer(call)
        if isinstance(answer, BaseException):
            raise answer
        await asyncio.sleep(0)
        return answer

    def names_known(self):
        return ("octop_exchange", "octop_sleep", "octop_doubtful", "octop_doubt", "octop_release_unheld", *self.answers)

    async def open(self, *, seconds=0.0):
        self.names.append("open")
        self.values.append({})
        if isinstance(answer := self.answers.get("open"), BaseException):
            raise answer
        await asyncio.sleep(0)

    async def rest(self):
        self.names.append("rest")
        self.values.append({})
        await asyncio.sleep(0)

    def cut(self):
        self.names.append("cut")
        self.values.append({})

    async def pause(self, seconds=None):
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def give_up(self):
        self.is_over = True

    def exchanges(self):
        return [value for name, value in zip(self.names, self.values, strict=True) if name == "octop_exchange"]


class Desk:
    """An exchanger with one queue, and what it needs."""

    def __init__(self, limit=2, **answers):
        defaults = {"octop_exchange": EMPTY, "octop_sleep": 60.0, "octop_doubt": "d", "octop_doubtful": False}
        self.link = FakeLink(**{**defaults, **answers})
        self.holdings = Holdings()
        self.lease = Lease()
        self.lease.beaten(time.monotonic(), unbroken=True)
        self.started = []
        self.pool = Pool(limit, self.lease, self._attempt, self.holdings.urgent)
        self.second = FakeLink(**self.link.answers)
        self.pools = {"q": self.pool}
        self.claims = Claims(self.holdings, self.pools, self.lease)
        links: tuple[Link, Link] = (self.link, self.second)  # type: ignore[assignment]
        self.exchanger = Exchanger(NIL, *links, self.holdings, self.claims, {"noop": 1})

    async def _attempt(self, slot, task):
        self.started.append(task)
        self.holdings.success(self.holdings.active[task.id], None)

    async def run_until(self, look):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.exchanger.run())
            while not look() and not running.done():  # noqa: ASYNC110 - what is looked at has no event
                await asyncio.sleep(0.002)
            running.cancel()
        await self.pool.close(1)


@loop_test
async def test_a_task_claimed_twice_before_its_start_runs_once_under_the_new_fence():
    desk = Desk()
    desk.lease.beaten(time.monotonic(), unbroken=False)
    old, new = claimed(), claimed(attempt=2, claim_id="d")
    for each in (old, new):
        desk.pool.add(desk.holdings.accept([each]))
    assert desk.pool.held == 1
    desk.lease.on_renewed = desk.pool.renew
    desk.lease.confirmed()
    while not desk.holdings.outbox.successes:  # noqa: ASYNC110 - what is looked at has no event
        await asyncio.sleep(0.002)
    assert desk.started == [new]
    assert [success.fence.attempt for success in desk.holdings.outbox.successes] == [2]
    assert desk.pool.held == 0
    await desk.pool.close(1)


@loop_test
async def test_the_next_exchange_is_on_its_way_before_the_tasks_of_the_last_one_run():
    """Otherwise the database is idle as long as they take."""
    goes_on = asyncio.Event()
    started_at_call: list[int] = []

    def answer(call):
        number = len(started_at_call)
        started_at_call.append(len(desk.started))
        if number == 1:
            goes_on.set()  # what ran on ends while this exchange is under way, and makes room
        return Exchanged([claimed(f"{number}.{each}") for each in range(call.values["wanted"][0])], [], {}, 0)

    async def attempt(_slot, task):
        desk.started.append(task)
        desk.pool.wake()
        while len(desk.started) < 4:  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0)
        if task.id in ("0.1", "0.2", "0.3"):
            await goes_on.wait()
        desk.holdings.success(task, None)

    desk = Desk(4, octop_exchange=answer)
    desk.pool._begin = attempt
    await desk.run_until(lambda: len(started_at_call) > 2)
    assert started_at_call[:3] == [0, 4, 4]


def marks_handed_in(desk):
    """Return the id of the mark that each exchange was given; None = it looked from the front."""
    return [next(filter(None, values["marks_id"] or []), None) for values in desk.link.exchanges()]


@loop_test
async def test_full_batches_move_the_mark_and_after_a_short_one_it_looks_from_the_front_at_once():
    batches = iter([["a"], ["b"], [], []])

    def answer(_call):
        return Exchanged([claimed(each) for each in next(batches, [])], [], {}, 0)

    desk = Desk(1, octop_exchange=answer)
    await desk.run_until(lambda: "octop_sleep" in desk.link.names)
    assert marks_handed_in(desk)[:4] == [None, "a", "b", None]
    assert desk.link.names.index("octop_sleep") > 3, "it does not sleep before it has looked from the front"


@loop_test
async def test_a_queue_whose_batch_was_short_leaves_the_marks_of_the_others():
    def answer(call):
        number = len(desk.link.exchanges())
        return Exchanged(
            [
                claimed(f"{number}.{queue}", queue=queue)
                for queue in call.values["queues"]
                if queue == "q" or number == 1
            ],
            [],
            {},
            0,
        )

    desk = Desk(1, octop_exchange=answer)
    desk.pools["r"] = Pool(1, desk.lease, desk._attempt, desk.holdings.urgent)
    await desk.run_until(lambda: len(desk.link.exchanges()) > 5)
    await desk.pools["r"].close(1)
    first, *later = desk.link.exchanges()
    assert first["marks_id"] is None
    asked = [(values["queues"].index("q"), values["marks_id"]) for values in later if "q" in values["queues"]]
    assert len(asked) > 1
    assert all(any(marks[10 * place : 10 * place + 10]) for place, marks in asked), "r was short; q was not"


@loop_test
async def test_a_notification_makes_the_next_look_one_from_the_front():
    def answer(call):
        number = len(desk.link.exchanges())
        if number == 3:
            desk.exchanger.nudge()
        return Exchanged([claimed(f"{number}.{each}") for each in range(call.values["wanted"][0])], [], {}, 0)

    desk = Desk(1, octop_exchange=answer)
    await desk.run_until(lambda: len(desk.link.exchanges()) > 5)
    assert marks_handed_in(desk)[:5] == [None, "1.0", "2.0", None, "4.0"]


@loop_test
async def test_lanes_get_no_marks():
    def answer(call):
        number = len(desk.link.exchanges())
        tasks = [claimed(f"{number}.{each}", lane="l") for each in range(call.values["wanted"][0])]
        return Exchanged(tasks, [], {"q": "l"}, 0)

    desk = Desk(1, octop_exchange=answer)
    await desk.run_until(lambda: len(desk.link.exchanges()) > 3)
    assert set(marks_handed_in(desk)) == {None}


@loop_test
async def test_nothing_is_claimed_while_the_lease_is_over_or_in_doubt():
    desk = Desk()
    assert desk.claims.wanted() == {"q": 2}
    desk.lease.beaten(time.monotonic(), unbroken=False)
    assert desk.claims.wanted() == {}
    desk.lease.confirmed()
    assert desk.claims.wanted() == {"q": 2}
    desk.lease.set_seconds(0.001)
    await asyncio.sleep(0.01)
    assert desk.claims.wanted() == {}


@loop_test
async def test_a_walk_over_lanes_that_has_not_come_round_goes_on_before_the_worker_sleeps():
    lanes = [f"{number:03}" for number in range(1, 60)]  # more than fit into the time in which it looks again anyway
    walk = iter(lanes)

    def answer(call):
        lane = next(walk, None)
        if lane is None:
            return EMPTY
        return Exchanged([], [], {"q": lane}, 0)

    desk = Desk(octop_exchange=answer)
    await desk.run_until(lambda: "octop_sleep" in desk.link.names)
    assert desk.link.names.index("octop_sleep") > len(lanes)
    assert [values["lanes"] for values in desk.link.exchanges()[:3]] == [[None], ["001"], ["002"]]


def test_a_round_is_over_when_it_comes_back_to_its_beginning():
    rounds = Rounds()
    assert rounds.go_on({"q": "m"}, {"q": "z"})
    assert rounds.go_on({"q": "z"}, {"q": "c"}), "turned at the end"
    assert not rounds.go_on({"q": "c"}, {"q": "m"}), "back where it began"
    assert not rounds.go_on({"q": "m"}, {}), "stopped where it began: a round in one look"
    assert rounds.go_on({"q": "m"}, {"q": "z"})
    rounds.found()
    assert rounds.go_on({"q": "z"}, {"q": "n"}), "a new round has begun at z"
    assert rounds.go_on({"q": "n"}, {"q": "y"})
    assert not rounds.go_on({"q": "y"}, {"q": "a"}), "it turned twice: what it began with is gone"


def test_lanes_that_come_and_go_do_not_keep_a_worker_looking_for_ever():
    rounds, lane = Rounds(), ""
    for looks in range(100):
        following = {"": "b", "b": "a", "a": "b"}[lane]
        if not rounds.go_on({"q": lane}, {"q": following}):
            assert looks < 4
            return
        lane = following
    pytest.fail("it never came round")


@pytest.mark.parametrize("limit", [0, 2])
@loop_test
async def test_a_worker_whose_queues_are_all_paused_or_without_places_still_notices_that_it_is_idle(limit):
    desk = Desk(limit)
    if limit:
        desk.claims.held_queues = frozenset({"q"})
    idle = []

    async def on_idle():
        idle.append(1)

    desk.exchanger.on_idle = on_idle
    desk.exchanger.interval_seconds = 0.02
    await desk.run_until(lambda: len(idle) > 2)
    assert not desk.link.names


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


def taken_back(holdings):
    """Let a worker hold an attempt that does not end, and have claimed the same task once more."""
    slot = Slot()
    slot.claimed = holdings.active["1"] = claimed(1)
    holdings.running["1"] = slot
    return claimed(1, attempt=2, claim_id="d")


@loop_test
async def test_what_waits_for_its_older_attempt_is_released_when_the_worker_stops():
    before, meanwhile = runtime(), runtime()
    before._claims.deliver(Exchanged([taken_back(before.holdings)], [], {}, 0), {"default": 1}, 0)
    assert before.holdings.outbox.outcomes == []
    before.shutdown.begin(0)
    meanwhile.shutdown.begin(0)
    meanwhile._claims.deliver(Exchanged([taken_back(meanwhile.holdings)], [], {}, 0), {"default": 1}, 0)
    for each in (before, meanwhile):
        assert [(it.fence, it.kind) for it in each.holdings.outbox.outcomes] == [
            (Fence("1", 2, "d"), OutcomeKind.RELEASED)
        ]
        assert each.holdings.active == {}
        await each._end()


# --- the runtime ------------------------------------------------------------------------------------------------------


def runtime(*functions, hooks=None, lease=None, **options):
    registry = {name: definition for definition in functions for name in (definition.name, *definition.aliases)}
    return Runtime(WorkerOptions(dsn="", **options), registry, hooks or Hooks(), worker_id=NIL, lease=lease or Lease())


@loop_test
async def test_an_alias_declares_the_policy_of_its_task():
    def send() -> None: ...

    definition = define(send, queue="mail", max_retries=7, timeout=30.0, aliases=["post"])
    made = runtime(definition)
    by_name = {policy.name: policy for policy in made.registration._policies()}
    assert sorted(name.rpartition(".")[2] for name in by_name) == ["post", "send"]
    first, second = by_name.values()
    assert dataclasses.replace(first, name="x") == dataclasses.replace(second, name="x")
    assert first.queue == "mail"
    await made._end()


@loop_test
async def test_only_the_first_registration_counts_as_a_beat():
    lease = Lease()
    made = runtime(lease=lease)
    link = FakeLink(octop_register=None)
    await made.registration.register(link, ["default"])
    assert lease.until > time.monotonic()
    lease.set_seconds(0.001)
    await asyncio.sleep(0.01)
    await made.registration.register(link, ["default"])
    assert lease.until < time.monotonic(), "whether the row was stale only a beat can tell"
    made.registration.is_known = False
    await made._end()


@loop_test
async def test_a_new_queue_is_registered_again_until_the_database_has_taken_note_of_it():
    def send() -> None: ...

    refusals, registered = [TryAgainError("locked"), TryAgainError("locked")], []

    def register(call):
        if refusals:
            return refusals.pop()
        registered.append(call.values["queues"])
        return None

    definition = define(send)
    made = runtime(definition)
    made.registration._queue_count = len(made._pools)
    settings = Settings(1, {}, {}, frozenset(), {definition.name: "elsewhere"})
    made._control_link = FakeLink(octop_control=Control(1, [], []), octop_settings=settings, octop_register=register)
    made._control_link.close = lambda: asyncio.sleep(0)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(made._follow())
        while not registered:
            made._control_asked.set()
            await asyncio.sleep(0.002)
        following.cancel()
    assert registered == [["default", "elsewhere"]]
    made.registration.is_known = False
    await made._end()


@pytest.mark.parametrize("verdict", ["lost", "cancelled", "kept", "pending", "failed", "frozen"])
@loop_test
async def test_a_failure_is_not_remembered_beyond_its_verdict(verdict):
    told = []
    made = runtime(hooks=Hooks(retry=[lambda *_: told.append("retry")], freeze=[lambda *_: told.append("freeze")]))
    made.runner._remembered["1"] = (None, ValueError())
    made._on_settled("1", "again")
    assert made.runner._remembered
    made._on_settled("1", verdict)
    while not made._verdicts.empty():
        await made.runner.settled(*made._verdicts.get_nowait())
    assert not made.runner._remembered
    assert told == {"failed": ["retry"], "frozen": ["freeze"]}.get(verdict, [])
    await made._end()
