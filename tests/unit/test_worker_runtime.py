"""A runtime without a database: its registration, its end, what it remembers."""

import asyncio
import dataclasses
import time

import pytest

from octop.model.definition import define
from octop.model.errors import TryAgainError
from octop.model.hooks import Hooks
from octop.model.task import NIL, Exchanged, Fence, OutcomeKind
from octop.model.work import Control, Settings
from octop.worker.lease import Lease
from octop.worker.options import WorkerOptions
from octop.worker.runtime import Runtime
from octop.worker.slot import Slot
from tests.unit.desk import FakeLink, claimed, loop_test


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
    settings = Settings(1, {}, {}, frozenset(), frozenset(), {definition.name: "elsewhere"})
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
    passing_on = asyncio.get_running_loop().create_task(made._verdicts.pass_on())
    await made._verdicts.passed_on()
    passing_on.cancel()
    assert not made.runner._remembered
    assert told == {"failed": ["retry"], "frozen": ["freeze"]}.get(verdict, [])
    await made._end()
