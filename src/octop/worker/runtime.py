"""One worker: it claims, runs, reports, and follows the settings, until it is told to stop."""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from octop.engine import calls
from octop.model.declared_schedules import DeclaredSchedules
from octop.model.definition import TaskDefinition
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.model.hooks import Hooks
from octop.model.work import Settings
from octop.worker.acceptance import Ability
from octop.worker.alerts import Alerts, to_hooks
from octop.worker.children import Children
from octop.worker.claims import Claims
from octop.worker.ears import Ears
from octop.worker.exchanger import Exchanger
from octop.worker.heart import Culprit
from octop.worker.holdings import Holdings
from octop.worker.hooks import call_hooks
from octop.worker.lease import Lease, patience
from octop.worker.link import Link
from octop.worker.options import WorkerOptions
from octop.worker.pool import Pool
from octop.worker.recall import Recall
from octop.worker.registration import Registration
from octop.worker.runner import Runner
from octop.worker.shutdown import SILENCE_SECONDS, Shutdown
from octop.worker.ticker import Ticker
from octop.worker.transactions import Transactions, dsn_of_tasks
from octop.worker.trouble import Trouble
from octop.worker.turnover import Turnover
from octop.worker.verdicts import Verdicts
from octop.worker.webhook import webhook_of

log = logging.getLogger(__name__)

CONTROL_SECONDS: Final = 0.8
"""So that with the way to the database and back a pause takes effect within a second, also on what was claimed and has not begun."""
CONTROL_SECONDS_MAX: Final = 5.0
SWEEP_SECONDS_MAX: Final = 60.0
PRUNE_SECONDS: Final = 10.0
DRAIN_LOOK_SECONDS: Final = 1.0
DEFAULT_QUEUE: Final = "default"


class Runtime:
    """A worker inside a running event loop. It does not beat for itself: whoever owns it does, through ``lease``.

    Attributes:
        worker_id: New at each start.
        lease: Told of each accepted beat.
        runner: Runs attempts.
        on_settings: Called with the settings, at the start and after each change.
        on_registered: Called once the database knows of this worker.
        on_delivering: Called when all tasks have ended, but their outcomes could not yet be handed in.
        on_leaving: Called when all has ended, before it deregisters: nobody may beat for it any longer.
        on_left: Called when it has deregistered.
        on_change: Called when something but a queue was heard to have changed, such as a schedule.
        registration: What the database knows of it.
        holdings: What it holds.
        shutdown: Leads to the end.
        drained: It stopped because nothing was left.
        turnover: Says when this process has served.
        recycled: Why it stopped to make room for a fresh one; empty = it did not.
    """

    def __init__(
        self,
        options: WorkerOptions,
        registry: dict[str, TaskDefinition],
        hooks: Hooks,
        *,
        worker_id: str,
        lease: Lease,
        supervisor_id: str | None = None,
        version: str = "",
        queue_declarations: Mapping[str, Mapping[str, object]] | None = None,
        declared_schedules: DeclaredSchedules | None = None,
    ) -> None:
        """Put the parts together; nothing runs yet."""
        self.worker_id = worker_id
        self.lease = lease
        self.on_settings: Callable[[Settings], None] = lambda _settings: None
        self.on_registered: Callable[[], None] = lambda: None
        self.on_delivering: Callable[[], None] = lambda: None
        self.on_leaving: Callable[[], None] = lambda: None
        self.on_left: Callable[[], None] = lambda: None
        self.on_change: Callable[[], None] = lambda: None
        self.drained = False
        self.recycled = ""
        self._crashed = False
        self._webhook = webhook_of(os.environ)
        self._retires = False
        self._options = options
        self._registry = registry
        self._hooks = hooks
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._control_asked = asyncio.Event()
        self._settings: Settings | None = None
        self.registration = Registration(
            registry,
            worker_id=worker_id,
            name=options.name,
            lease=lease,
            supervisor_id=supervisor_id,
            version=version,
            queue_declarations=queue_declarations or {},
            declared_schedules=declared_schedules or DeclaredSchedules(),
        )
        self._exchange_link = Link(options, "exchange", worker_id, is_over=lambda: self.shutdown.is_hopeless)
        self._second_link = Link(
            options,
            "exchange",
            f"{worker_id}/2",
            is_over=lambda: self.shutdown.is_hopeless,
            lack="one exchange at a time, for there is no second connection",
        )
        self._control_link = Link(options, "control", worker_id, is_over=self._over.is_set)
        # of a supervisor's processes none fires schedules: it does, whatever their tasks do
        self._ticker = None if supervisor_id else Ticker(Link(options, "ticker", worker_id), worker_id)
        self.holdings = self._holdings = Holdings()
        self._children = Children(options.application, options.import_folder, options.max_memory_mb)
        # what tasks may need more rights for, or other ones, than the worker itself
        self._transactions = Transactions(dsn_of_tasks(os.environ, options.dsn), options.schema, worker_id)
        self.runner = Runner(
            registry, hooks, self._holdings, self._children, self._wake, self._transactions, lease, self._is_full
        )
        self.runner.tells = options.tell_tasks
        self._verdicts = Verdicts(self.runner.settled)
        self._recall = Recall(self._holdings, self.runner)
        self._pools = {name: self._pool() for name in self._queues()}
        self._claims = Claims(self._holdings, self._pools, lease)
        self._exchanger = Exchanger(
            worker_id, self._exchange_link, self._second_link, self._holdings, self._claims, self._versions()
        )
        self._exchanger.on_idle = self._on_idle
        self._exchanger.on_settled = self._on_settled
        self._exchanger.on_spent = self._recycle
        self.turnover = Turnover(
            self._claims,
            worker_id,
            tasks_max=options.max_tasks_per_process,
            memory_mb_max=options.max_memory_mb,
            wake=self._holdings.urgent.set,
        )
        self.shutdown = Shutdown(self._holdings, self._pools, self.runner, self._exchanger, options.grace_seconds)
        self.shutdown.on_delivering = self._delivers
        lease.on_broken = lambda: self._from_any_thread(self._control_asked.set)
        lease.on_renewed = lambda: self._from_any_thread(self._renew)

    def stop(self) -> None:
        """Claim no more, let tasks end for the grace time, release what is left, and return from ``run``."""
        if self._ticker is not None:
            self._ticker.stop()
        if not self.shutdown.has_begun:
            grace = None if self._settings is None else self._settings.values.get("worker.grace_seconds")
            self.shutdown.begin(grace)
            self._control_asked.set()
            if not self.registration.is_known:
                self._loop.call_later(SILENCE_SECONDS, self._give_up_beginning)

    def ability(self) -> Ability:
        """Return when it could last claim, and what keeps it from claiming now."""
        return self._exchanger.acceptance.look(self.lease)

    def culprit(self, since: float) -> Culprit:
        """Return what keeps the loop from turning; may be called from any thread.

        Args:
            since: Monotonic moment at which it turned last.
        """
        claimed = self.runner.stepping
        if claimed is None:
            return Culprit("something else than a task", None)
        name = f"the task {claimed.task_type} {claimed.id}"
        if claimed.id not in self._holdings.active:
            return Culprit(name, None)  # it has ended: a hook, or what it left behind
        slot = self._holdings.running.get(claimed.id)
        known = slot is not None and slot.deadline < math.inf
        return Culprit(name, slot.deadline if known and slot is not None else since + claimed.timeout_seconds)

    def retire(self, why: str) -> None:
        """Claim no more, and return from ``run`` when all tasks have ended, however long that takes.

        Args:
            why: In words, for the log.
        """
        self._retires = True
        self.turnover.retire(why)
        self._control_asked.set()

    def stop_now(self) -> None:
        """Release everything at once, and return from ``run``."""
        self.stop()
        self.shutdown.hurry()

    async def run(self, *, patient: bool = False) -> None:
        """Work until stopped, or drained.

        Args:
            patient: True = wait for a database that is away at the start; otherwise that is an error.

        Raises:
            DatabaseUnreachableError: No database at the start.
            SchemaError: The schema is missing or of another version.
            NotPermittedError: The role lacks a right.
            OctopError: Something that no further try would mend.
        """
        helpers: list[asyncio.Task[None]] = []
        try:
            if not await self._begin(patient=patient):
                return
            async with asyncio.TaskGroup() as group:
                duties: list[Coroutine[Any, Any, None]] = [self._follow(), self._sweep(), self._verdicts.pass_on()]
                if self._options.listen:
                    ears = Ears(self._options, self.worker_id, self._control_link, self._over, self._hear)
                    duties += [ears.listen(), ears.prove()]
                duties += [each.hand_over(self._over) for each in self._alerts()]
                if self._ticker is not None:
                    duties.append(self._ticker.run())
                helpers += [group.create_task(duty) for duty in duties]
                await self._exchanger.run()
                if not self.shutdown.is_hurried:
                    await self._verdicts.passed_on()
                self._over.set()
                await self._control_link.close()
                for helper in helpers:
                    helper.cancel()
        except BaseExceptionGroup as problems:
            self._crashed = not isinstance(_first(problems), OctopError)
            raise _first(problems) from None
        except asyncio.CancelledError:
            # nobody asked for it: a task cancelled all tasks of the loop
            self._crashed = not self.shutdown.has_begun
            raise
        finally:
            self._over.set()
            await self._end()

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _pool(self) -> Pool:
        return Pool(0, self.lease, self.runner.begin, self._holdings.urgent)

    def _is_full(self, queue: str) -> bool:
        pool = self._pools.get(queue)
        return pool is not None and pool.is_full

    def _queues(self) -> list[str]:
        if self._options.queues is not None:
            return list(self._options.queues)
        # a plain INSERT names no queue, so `default` is served by everybody who was not told otherwise
        return sorted({DEFAULT_QUEUE, *(each.policy.queue or DEFAULT_QUEUE for each in self._registry.values())})

    def _alerts(self) -> list[Alerts]:
        """Return who hands alerts over: nobody, where there is no hook for them."""
        found = []
        if self._hooks.alert:
            found.append(Alerts(self.worker_id, self._control_link, "callable", to_hooks(self._hooks.alert)))
        if self._webhook is not None:
            found.append(Alerts(self.worker_id, self._control_link, "webhook", self._webhook.deliver))
        return found

    def _versions(self) -> dict[str, int]:
        return {name: definition.policy.version for name, definition in self._registry.items()}

    async def _begin(self, *, patient: bool) -> bool:
        """Make ready; False = it was told to stop before the database could take note of it."""
        link = self._control_link
        if patient:
            await link.patiently(calls.octop_settings)
        try:
            self._apply(await link.call(calls.octop_settings()))
            await self._transactions.check(self._registry.values(), patient=patient)
            while not (self.registration.is_known or self.shutdown.has_begun):
                if pause := await self.registration.try_to_register(link, self._pools):
                    await _either(self._control_asked, pause)
        except DatabaseUnreachableError:
            if not self.shutdown.has_begun:
                raise
        if not self.registration.is_known:
            return False
        await call_hooks(self._hooks.worker_start)
        log.info(
            "worker %s serves %s",
            self.worker_id,
            ", ".join(f"{name}={pool.limit}" for name, pool in self._pools.items()) or "no queue",
            extra={"worker_id": self.worker_id},
        )
        self.on_registered()
        return True

    def _give_up_beginning(self) -> None:
        if not self.registration.is_known:
            self._control_link.give_up()

    async def _end(self) -> None:
        for pool in self._pools.values():
            pool.take_back()
        self.runner.close()
        for pool in list(self._pools.values()):
            await pool.close(0.2)
        await self._children.close()
        await self._transactions.close()
        if self.registration.is_known:
            await call_hooks(list(reversed(self._hooks.worker_stop)))
            self.on_leaving()
            if self._crashed:
                await self.registration.lose_all(self._exchange_link)
            elif await self._leave():
                self.on_left()
        self.shutdown.close()
        for link in (self._exchange_link, self._second_link, self._control_link):
            await link.close()
        if self._ticker is not None:
            await self._ticker.close()

    def _delivers(self) -> None:
        self._control_asked.set()  # whether the database answers there is good to know if it does not where outcomes go
        self.on_delivering()

    async def _leave(self) -> bool:
        if not self.shutdown.is_hopeless:
            return await self.registration.deregister(self._exchange_link)
        is_answered = self._control_link.answered_at >= self.shutdown.delivering_at
        return await self.registration.deregister(self._control_link, is_answered=is_answered)

    # --- following the database ---------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Look more than once a second for changed settings, tasks to be cancelled, what is no longer ours, what a broken lease cost."""
        pruned_at = time.monotonic()
        told = False
        trouble = Trouble("the look for changed settings is refused", self.worker_id)
        while not self._over.is_set():
            await _either(self._control_asked, CONTROL_SECONDS)
            self._control_asked.clear()
            try:
                if (self.shutdown.has_begun or self._retires) and not told:
                    await self._control_link.call(calls.octop_drain(self.worker_id), seconds=CONTROL_SECONDS_MAX)
                    told = True
                named = self._recall.named()
                control = await self._control_link.call(
                    calls.octop_control(self.worker_id, named), seconds=CONTROL_SECONDS_MAX
                )
                for task_id in control.cancel:
                    self._recall.cancel(task_id)
                self._recall.lost(named, control.lost)
                if self._settings is None or control.version != self._settings.version:
                    self._apply(await self._control_link.call(calls.octop_settings(), seconds=CONTROL_SECONDS_MAX))
                if self.registration.lacks(self._pools):
                    await self.registration.register(self._control_link, self._pools)
                if self.lease.is_doubtful:
                    await self._drop_what_was_lost()
                trouble.over()
            except DatabaseUnreachableError:
                await self._control_link.pause()
            except OctopError as error:
                if self._over.is_set():
                    return
                await self._control_link.pause(trouble.bear(error))
            if time.monotonic() - pruned_at > PRUNE_SECONDS:
                pruned_at = time.monotonic()
                self._children.prune()

    def _apply(self, settings: Settings) -> None:
        self._settings = settings
        values = settings.values
        lease_seconds = _number(values, "worker.lease_seconds", 30.0)
        self.lease.set_seconds(lease_seconds)
        self._exchanger.be_patient(patience(lease_seconds))
        self._exchanger.interval_seconds = _number(values, "scheduler.interval_seconds", 5.0)
        if self._options.drain:
            self._exchanger.interval_seconds = min(self._exchanger.interval_seconds, DRAIN_LOOK_SECONDS)
        self._claims.held_queues = settings.held_queues
        if newly := self._claims.pause(settings.paused_queues):
            self._recall.paused(newly)
        self._transactions.places = int(_number(values, "db.connection_pool_size", 10))
        self.runner.result_bytes_max = int(_number(values, "task.result_bytes_max", 1 << 20))
        if self._options.queues is None:
            # an operator may send the tasks of a type to a queue that the code does not name
            for name in {queue for each, queue in settings.type_queues.items() if each in self._registry}:
                self._pools.setdefault(name, self._pool())
        ordinary = self._options.concurrency or int(_number(values, "worker.concurrency", 10))
        for name, pool in self._pools.items():
            own = (self._options.queues or {}).get(name)
            chosen = settings.worker_limits.get(name)
            if chosen is not None and own not in (None, chosen) and pool.limit != chosen:
                log.info("queue %s: an operator's limit of %s holds, not the %s of -q", name, chosen, own)
            pool.limit = chosen if chosen is not None else ordinary if own is None else own
        if self._ticker is not None:
            self._ticker.interval_seconds = _number(values, "scheduler.interval_seconds", 5.0)
        self.on_settings(settings)
        self._exchanger.nudge()

    async def _drop_what_was_lost(self) -> None:
        """Our lease was broken: ask which tasks are still ours, and stop the others if we can."""
        held = list(self._holdings.active.values())
        owned = await self._control_link.call(
            calls.octop_owned(self.worker_id, [claimed.fence for claimed in held]), seconds=CONTROL_SECONDS_MAX
        )
        lost = [claimed for claimed in held if claimed.id not in owned]
        for claimed in lost:
            self._recall.lose(claimed)
        await self.registration.register(self._control_link, self._pools)
        self.lease.confirmed()
        log.warning(
            "the lease was broken: %d of %d tasks had been given to others",
            len(lost),
            len(held),
            extra={"worker_id": self.worker_id},
        )

    async def _sweep(self) -> None:
        """Do our part of what somebody must do again and again. Tasks run without it; other workers may be able to do it."""
        trouble = Trouble("the sweep fails", self.worker_id, endless=True)
        while not self._over.is_set():
            values = {} if self._settings is None else self._settings.values
            await _either(self._over, _number(values, "worker.rescue_seconds", 5.0))
            try:
                await self._control_link.call(calls.octop_sweep(self.worker_id), seconds=SWEEP_SECONDS_MAX)
                trouble.over()
            except DatabaseUnreachableError:
                await self._control_link.pause()
            except OctopError as error:
                trouble.bear(error)  # the pause between sweeps is long enough

    def _hear(self, word: str) -> None:
        if not word:
            self._control_asked.set()
            self.on_change()
            if self._ticker is not None:
                self._ticker.poke()
        if not word or word in self._pools:
            self._exchanger.nudge()

    # --- small answers ------------------------------------------------------------------------------------------------

    async def _on_idle(self) -> None:
        if self._options.drain and not self.shutdown.has_begun:
            known = self._versions()
            left = await self._exchange_link.call(
                calls.octop_remaining(list(self._pools), list(known), list(known.values()))
            )
            if left == 0:
                self.drained = True
                self.stop()

    def _recycle(self) -> None:
        self.recycled = self.turnover.why
        self.stop()

    def _on_settled(self, task_id: str, verdict: str) -> None:
        if verdict in ("failed", "frozen"):
            self._verdicts.add(task_id, verdict)
        elif verdict != "again":
            self.runner.forget(task_id)

    def _wake(self, queue: str) -> None:
        self._pools[queue].wake()

    def _renew(self) -> None:
        self._exchanger.nudge()
        for pool in self._pools.values():
            pool.renew()

    def _from_any_thread(self, act: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            log.debug("the loop is closed")


def _number(values: Any, key: str, default: float) -> float:
    found = values.get(key)
    return default if found is None else float(found)


def _first(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = problems
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
