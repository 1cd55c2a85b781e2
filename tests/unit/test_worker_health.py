"""What a supervisor takes for health, and when a worker process has served: without a database."""

import math
import time

import pytest

from octop.model.errors import ConfigurationError, DatabaseUnreachableError, NotPermittedError
from octop.model.task import Exchanged
from octop.worker.acceptance import Acceptance
from octop.worker.charge import WorkerProcess
from octop.worker.embedded import run_embedded
from octop.worker.health import UNABLE_SECONDS_MIN, health_of
from octop.worker.lease import Lease
from octop.worker.memory import MB, resident_bytes
from octop.worker.options import WorkerOptions
from octop.worker.turnover import Turnover, spread
from tests.unit.desk import Desk, claimed, loop_test

NOW = 1_000.0


class FakeProcess:
    pid = 0
    returncode = None


def worker(*, beat_age=1.0, able_age=1.0, **more):
    made = WorkerProcess(FakeProcess(), None, None, "w")  # type: ignore[arg-type]
    made.registered = True
    made.beat_at, made.able_at = NOW - beat_age, NOW - able_age
    for name, value in more.items():
        setattr(made, name, value)
    return made


def health(*workers, count=None, **more):
    options = {"lease_seconds": 30.0, "is_stopping": False, "now": NOW, **more}
    return health_of(dict(enumerate(workers)), len(workers) if count is None else count, **options)


def test_a_place_is_red_when_beats_or_claims_are_older_than_two_thirds_of_the_lease():
    assert health(worker(beat_age=19.9, able_age=19.9)).status == "ok"
    for ages in ({"beat_age": 20.1}, {"able_age": 20.1}):
        found = health(worker(), worker(**ages))
        assert (found.status, found.healthy, found.ready) == ("failing", False, False), "one of two is enough"
        assert [row["healthy"] for row in found.processes] == [True, False]
    short = UNABLE_SECONDS_MIN - 0.1
    assert health(worker(beat_age=short, able_age=short), lease_seconds=0.5).healthy, "a pulse comes once a second"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"registered": False}, "has not registered"),
        ({"beat_age": 30}, "no heartbeat for it is accepted"),
        ({"able_age": 30, "unable": "its exchange is refused: x"}, "can not work: its exchange is refused: x"),
        ({"able_age": 30, "culprit": "the task t"}, "its event loop is held by the task t"),
        ({"able_age": 30}, "its event loop does not turn"),
    ],
)
def test_red_says_why(more, words):
    made = worker(**{"beat_age": math.inf if "registered" in more else 1.0, **more})
    (why,) = health(made).why
    assert words in why


def test_it_is_starting_until_each_place_could_work_once():
    assert health(count=1).status == "starting"
    assert health(worker(able_age=math.inf)).status == "starting"
    assert health(worker(), worker(beat_age=math.inf)).status == "starting"
    assert health(worker(beat_age=50), worker(beat_age=math.inf)).status == "failing"


def test_a_process_that_is_replaced_in_time_is_no_illness():
    old = worker(beat_age=15)
    fresh = worker(beat_age=math.inf, able_age=math.inf, registered=False, good_before=old.good_at)
    assert health(fresh).ready
    assert not health(fresh, now=NOW + 6).healthy


def test_a_stopping_worker_is_healthy_while_it_is_beaten_for_and_never_ready():
    for made in (worker(able_age=500), worker(beat_age=500, leaving=True), worker(beat_age=500, registered=False)):
        found = health(made, is_stopping=True)
        assert (found.status, found.healthy, found.ready) == ("stopping", True, False)
    assert not health(worker(beat_age=21), is_stopping=True).healthy


def test_a_worker_could_last_claim_when_a_try_began_that_was_not_accepted():
    lease, acceptance = Lease(), Acceptance()
    lease.beaten(time.monotonic(), unbroken=True)
    assert acceptance.look(lease).at is None, "nothing has been accepted yet"
    acceptance.tries()
    acceptance.refused(NotPermittedError("permission denied"))
    assert acceptance.look(lease) == (None, "its exchange is refused: permission denied")
    acceptance.accepted()
    able = acceptance.look(lease)
    assert able.at == pytest.approx(time.monotonic(), abs=1)
    assert able.why == ""
    acceptance.tries()
    first = acceptance.look(lease)
    assert first.why == "the database has not accepted its exchange"
    acceptance.refused(DatabaseUnreachableError("host 10.0.0.1 user shop"))
    acceptance.tries()
    assert acceptance.look(lease).at == first.at, "a further try is no success"
    assert acceptance.look(lease) == (first.at, "its exchange is refused: no database answers")


def test_a_worker_without_a_lease_can_not_claim_whatever_is_accepted():
    lease, acceptance = Lease(), Acceptance()
    acceptance.accepted()
    assert acceptance.look(lease).at is None
    lease.beaten(time.monotonic(), unbroken=False)
    acceptance.tries()
    assert acceptance.look(lease).at is None
    acceptance.accepted()
    assert "lease was broken" in acceptance.look(lease).why


def test_the_cap_of_a_process_is_at_most_a_tenth_less_and_never_none():
    assert {spread(1, str(n)) for n in range(50)} == {1}
    caps = {spread(100, str(n)) for n in range(500)}
    assert (min(caps), max(caps)) == (90, 100)


@loop_test
async def test_a_process_asks_for_no_more_tasks_than_it_may_still_run_and_ends_when_they_have():
    desk = Desk(limit=8)
    desk.claims.tasks_max = 3
    assert desk.claims.wanted() == {"q": 3}
    desk.claims.ask({"q": 2})
    assert desk.claims.wanted() == {"q": 1}, "two are on their way"
    desk.claims.answered({"q": 2})
    ended = []

    def spent():
        ended.append(list(desk.started))
        desk.exchanger.end()

    desk.exchanger.on_spent = spent
    tasks = [claimed(number) for number in range(5)]

    def answer(_call):
        count = desk.pool.asked
        given, tasks[:] = tasks[:count], tasks[count:]
        return Exchanged(given, [], {}, 0)

    desk.link.answers["octop_exchange"] = answer
    await desk.run_until(lambda: False)
    assert [each.id for each in ended[0]] == ["0", "1", "2"]
    assert not desk.holdings.active


@loop_test
async def test_memory_is_no_reason_before_the_first_task(caplog):
    desk = Desk()
    turnover = Turnover(desk.claims, "w", tasks_max=None, memory_mb_max=1, wake=desk.holdings.urgent.set)
    assert resident_bytes() > MB
    turnover.weigh()
    turnover.weigh()
    assert turnover.why == ""
    assert caplog.text.count("more than the cap of 1 MB") == 1
    desk.claims.delivered = 1
    turnover.weigh()
    assert desk.claims.is_spent
    assert desk.claims.wanted() == {}
    assert desk.holdings.urgent.is_set()
    assert "MB of memory, more than 1" in turnover.why


@pytest.mark.parametrize(
    "options", [{"health_port": 0}, {"health_file": "x"}, {"max_tasks_per_process": 1}, {"max_memory_mb": 100}]
)
@loop_test
async def test_what_needs_a_supervisor_is_refused_where_there_is_none(options):
    (name,) = options
    with pytest.raises(ConfigurationError, match=f"{name} needs a supervisor"):
        await run_embedded(WorkerOptions(dsn="", **options), {}, None)  # type: ignore[arg-type]
