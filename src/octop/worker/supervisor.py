"""``octop worker``: starts worker processes, beats for them while they live, starts them again, and is the last to end.

Exit codes: 0 = stopped by one signal, or drained; 129, 130 or 143 = a second signal (SIGHUP, SIGINT, SIGTERM) released everything at once;
otherwise that of the error with which the first start failed.
"""

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from octop.engine import calls
from octop.model.errors import OctopError
from octop.worker.acceptance import told
from octop.worker.charge import WorkerProcess, is_stopped
from octop.worker.children import ended_how
from octop.worker.frames import FRAME_BYTES_MAX, Message, read_message
from octop.worker.health import Health, health_of
from octop.worker.heart import Rhythm, beat
from octop.worker.link import Link, pause_before_try
from octop.worker.load import Loaded, warn_of_queues
from octop.worker.logs import configure_logging
from octop.worker.options import WorkerOptions
from octop.worker.orphans import Orphans
from octop.worker.probes import Probes
from octop.worker.reload import changes
from octop.worker.scaling import Places
from octop.worker.ticker import Ticker

log = logging.getLogger(__name__)

STABLE_SECONDS: Final = 10.0
UNWIND_SECONDS: Final = 1.4
DELIVERY_SECONDS: Final = 12.0
HURRY_SECONDS: Final = 3.0
GRACE_SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.1
SETTLE_SECONDS_MAX: Final = 2.0
SETTLE_SECONDS_MIN: Final = 0.4
LAST_WORDS_SECONDS: Final = 0.5


class Supervisor:
    """Keeps N worker processes running."""

    def __init__(self, options: WorkerOptions, on_loaded: Callable[[Loaded], None] = lambda _loaded: None) -> None:
        """Be ready to start them.

        Args:
            options: What they serve.
            on_loaded: Called once, when the first of them has loaded the application.
        """
        self._options = options
        self._on_loaded = on_loaded
        self._loaded: Loaded | None = None
        self._supervisor_id = str(uuid.uuid4())
        self._workers: dict[int, WorkerProcess] = {}
        self._signals: list[signal.Signals] = []
        self._stopping = asyncio.Event()
        self._rhythm = Rhythm()
        self._has_run = False
        self._folder: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self._exit_code = 0
        self._stopping_at = float("inf")
        self._settling = asyncio.Lock()
        self._settles = True
        self._deadline_grace_seconds = 10.0
        self._lease_seconds = 30.0
        self._beat_trouble = ""
        self._places = Places(options, self._workers, self._stopping)
        self._link = Link(options, "heart", self._supervisor_id, is_over=lambda: self._rhythm.is_over)
        self._ticker = Ticker(Link(options, "ticker", self._supervisor_id), self._supervisor_id)

    async def run(self) -> int:
        """Supervise until told to stop, or until all have drained. Return the exit code.

        Raises:
            ConfigurationError: The health port or file can not be had. Nothing has been started.
        """
        async with Probes(self._options, self._health) as probes:
            return await self._run(probes)

    async def _run(self, probes: Probes) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the last when the terminal is closed
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # `nohup` wants it to go on
                loop.add_signal_handler(number, functools.partial(self._signalled, number))
        async with asyncio.TaskGroup() as group:
            hearts = group.create_task(beat(self._link, self._rhythm, self._living, self._beaten, self._unbeaten))
            helpers = [group.create_task(self._watch()), group.create_task(probes.watch())]
            helpers.append(group.create_task(self._ticker.run(lambda: self._has_run)))
            if self._options.reload:
                helpers.append(group.create_task(self._reload()))
            if self._places.may_change:
                helpers.append(group.create_task(self._places.follow(self._supervisor_id, lambda: self._loaded)))
            keepers = [group.create_task(self._keep(index)) for index in range(self._options.processes)]
            await asyncio.wait(keepers)
            self._rhythm.stop()  # the last thing to stop
            await self._link.close()
            await self._places.close()
            await self._ticker.close()
            for helper in (*helpers, hearts):
                helper.cancel()
        if len(self._signals) > 1:
            return 128 + self._signals[-1]
        return self._exit_code

    # --- signals ------------------------------------------------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            log.info("%s: stopping; once more releases all tasks at once", number.name)
            self._stopping_at = time.monotonic()
            self._rhythm.poke()  # whether it is answered tells what can still be given back
        for worker in self._workers.values():
            self._stop(worker)
        self._stopping.set()
        self._changed.set()
        self._places.wake()
        self._ticker.stop()

    def _stop(self, worker: WorkerProcess) -> None:
        hurried = len(self._signals) > 1
        if not worker.registered:
            worker.killed = True
            worker.signal(signal.SIGKILL)  # it has not begun: there is nothing to end
            return
        grace = GRACE_SECONDS_MAX if self._options.grace_seconds is None else self._options.grace_seconds
        wait = HURRY_SECONDS if hurried else grace + UNWIND_SECONDS
        worker.kill_at = time.monotonic() + wait
        worker.signal(signal.SIGTERM)

    async def _watch(self) -> None:
        """End what does not end, and what is blocked for good: a task that holds the loop keeps a worker from hearing anything."""
        looked_at = time.monotonic()
        orphans = Orphans() if Orphans.are_ours() else None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if orphans is not None:
                orphans.reap({worker.process.pid for worker in self._workers.values()})
            now = time.monotonic()
            late, looked_at = now - looked_at - LOOK_SECONDS, now
            for worker in self._workers.values():
                if worker.process.returncode is not None:
                    continue
                if late > 1.0:
                    worker.forgive(late)  # it was us who stood still: what they said meanwhile is not read yet
                if now >= worker.kill_at:
                    worker.kill_at = float("inf")
                    worker.killed = True
                    log.warning("worker process %d does not end in time: killed", worker.process.pid)
                    worker.signal(signal.SIGKILL)
                elif now >= (silent_until := worker.silent_until(self._deadline_grace_seconds)):
                    if is_stopped(worker.process.pid):
                        worker.forgive(now - silent_until + 1.0)
                    else:
                        self._kill_the_blocked(worker)

    def _kill_the_blocked(self, worker: WorkerProcess) -> None:
        worker.unwatch()
        log.error(
            "worker process %d is blocked for good by %s: killed",
            worker.process.pid,
            worker.culprit or "code that keeps even the interpreter's other threads from running",
        )
        worker.signal(signal.SIGKILL)

    # --- heartbeat ----------------------------------------------------------------------------------------------------

    def _living(self) -> list[str]:
        return [
            worker.worker_id
            for worker in self._workers.values()
            if worker.registered and not worker.leaving and worker.is_alive
        ]

    def _unbeaten(self, error: OctopError) -> None:
        self._beat_trouble = told(error)

    def _beaten(self, worker_id: str, at: float, unbroken: bool) -> None:
        for worker in self._workers.values():
            if worker.worker_id == worker_id:
                self._beat_trouble = ""
                worker.beat_at = at
                worker.tell({"beat": at, "unbroken": unbroken})

    def _health(self) -> Health:
        settled = self._places.settled()
        found = health_of(
            settled,
            len(settled),
            lease_seconds=self._lease_seconds,
            beat_trouble=self._beat_trouble,
            is_stopping=self._stopping.is_set(),
        )
        return replace(found, scaling=self._places.as_json()) if self._places.may_change else found

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _keep(self, index: int) -> None:
        """Have one process running, again and again."""
        failures = 0
        patient = False
        while await self._places.is_wanted(index):
            try:
                worker = await self._start(patient=patient)
            except OSError as error:
                failures += 1
                log.error("no worker process can be started, trying again: %s", error)
                await self._sleep(pause_before_try(failures, f"{self._supervisor_id}/{index}"))
                continue
            if (before := self._workers.get(index)) is not None:
                worker.good_before = before.good_at
            self._workers[index] = worker
            if self._stopping.is_set():
                self._stop(worker)
            code = await self._follow(worker)
            if not worker.left and (worker.registered or worker.fatal is None):
                await self._settle(worker)
            if worker.drained or self._stopping.is_set():
                self._places.drained()
                return
            if worker.fatal is not None and not worker.registered and (not patient or self._options.reload):
                if not worker.replaced and not await self._may_try_again(worker):
                    return
                continue
            if worker.replaced:
                failures, patient = 0, patient or worker.registered
                continue
            if worker.recycled and not worker.retired:
                log.info("worker process %d is replaced: %s", worker.process.pid, worker.recycled)
            failures = 0 if time.monotonic() - worker.started_at > STABLE_SECONDS or code == 0 else failures + 1
            patient = True
            if code != 0:
                log.error("worker process %d: %s; starting another", worker.process.pid, _how(code))
                await self._sleep(pause_before_try(failures or 1, worker.worker_id))

    async def _may_try_again(self, worker: WorkerProcess) -> bool:
        """At the first start an error ends everything; with --reload the next save may mend it, unless no module is there."""
        if self._options.reload and (self._has_run or worker.mendable):
            if not self._folder.done():
                self._folder.set_result(Path.cwd())
            self._changed.clear()
            await self._changed.wait()
            return not self._stopping.is_set()
        self._exit_code = self._exit_code or worker.fatal or 1
        self._stopping.set()
        self._places.wake()
        for worker in self._workers.values():
            self._stop(worker)
        return False

    async def _start(self, *, patient: bool) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "octop.worker.process",
                    stdin=theirs.fileno(),
                    start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, which passes it on
                )
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=FRAME_BYTES_MAX)
        worker = WorkerProcess(process, reader, writer, str(uuid.uuid4()))
        worker.tell(
            {
                "options": self._options.as_json(),
                "worker_id": worker.worker_id,
                "supervisor_id": self._supervisor_id,
                "patient": patient,
            }
        )
        return worker

    async def _follow(self, worker: WorkerProcess) -> int:
        """Hear what a process says until it has ended.

        That it has ended is what the kernel says, not the end of the channel: a process that a task forked holds that open.
        """
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(self._hear(worker))
            code = await worker.process.wait()
            await asyncio.wait([hearing], timeout=LAST_WORDS_SECONDS)
            hearing.cancel()
        worker.close()
        return code

    async def _hear(self, worker: WorkerProcess) -> None:
        while (message := await read_message(worker.reader)) is not None:
            self._heard(worker, message)

    def _heard(self, worker: WorkerProcess, message: Message) -> None:
        worker.heard(message)
        if "loaded" in message:
            self._take_note(Loaded(**message["loaded"]))
        elif "registered" in message:
            self._has_run = True
            self._rhythm.poke()
            self._ticker.poke()
            if self._stopping.is_set():
                self._stop(worker)
            if message["folder"] is not None and not self._folder.done():
                self._folder.set_result(Path(message["folder"]))
        elif "heartbeat_seconds" in message:
            self._rhythm.follow(float(message["heartbeat_seconds"]))
            self._deadline_grace_seconds = float(message["deadline_grace_seconds"])
            self._lease_seconds = float(message["lease_seconds"])
            self._places.seconds = float(message["scale_seconds"])
            self._ticker.interval_seconds = float(message["tick_seconds"])
        elif "changed" in message:
            self._ticker.poke()
        elif "stopping" in message and len(self._signals) < 2:
            worker.kill_at = time.monotonic() + float(message["stopping"]) + UNWIND_SECONDS
        elif "delivering" in message and len(self._signals) < 2:
            worker.kill_at = time.monotonic() + DELIVERY_SECONDS
            self._rhythm.poke()
        elif "fatal" in message:
            log.error("%s", message["message"])

    async def _settle(self, worker: WorkerProcess) -> None:
        """Give back what a process held that did not deregister: we know that it is dead, so nobody need wait for its lease.

        A try is used up only where a task may have brought the process down. When it was us who killed it in order to stop, and when it
        ended in order and could not say so to the database, what it held it had given up: that is released. Also a task whose body had
        ended, and whose outcome got lost on the way: it runs again, but it has harmed nobody.
        """
        in_order = worker.ended or worker.killed or worker.replaced
        make = calls.octop_deregister if in_order else calls.octop_lost
        async with self._settling:  # what one has found out holds for the others, too
            if not self._settles:
                return
            try:
                count = await self._link.call(make(worker.worker_id), seconds=self._settle_seconds(worker))
            except OctopError as error:
                self._settles = not self._stopping.is_set()
                log.warning("what the dead process ran could not be given back; the lease covers it: %s", error.message)
            else:
                if count:
                    log.info("gave back %s of the dead process", "1 task" if count == 1 else f"{count} tasks")

    def _settle_seconds(self, worker: WorkerProcess) -> float:
        """Return how long to wait when something is given back: not long if the beat since the stop has not been answered."""
        asked_at = max(self._stopping_at, worker.delivering_at)
        if not self._signals or self._link.answered_at >= asked_at:
            return SETTLE_SECONDS_MAX
        self._link.cut()  # that beat keeps nobody waiting
        return SETTLE_SECONDS_MIN

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _reload(self) -> None:
        async for changed in changes(await self._folder):
            if self._stopping.is_set():
                return
            log.info("%s changed: restarting", ", ".join(sorted(changed)[:3]))
            self._changed.set()
            for worker in self._workers.values():
                if not worker.replaced:  # a second signal would hurry it, and it makes room for the newest code anyway
                    worker.replaced = True
                    self._stop(worker)

    # --- the application ----------------------------------------------------------------------------------------------

    def _take_note(self, loaded: Loaded) -> None:
        if self._loaded is None:
            self._on_loaded(loaded)
        if self._loaded is None or self._loaded.queues != loaded.queues:
            warn_of_queues(self._options.queues or {}, loaded)
        self._loaded = loaded


def _how(code: int) -> str:
    return ended_how(code).replace("the process of the task ", "")


def run(options: WorkerOptions, on_loaded: Callable[[Loaded], None] = lambda _loaded: None) -> int:
    """Run ``octop worker``: blocks until it is stopped.

    Args:
        options: What to serve; ``application`` is needed.
        on_loaded: Called once, when the application has been loaded for the first time.

    Returns:
        The exit code of the command.
    """
    configure_logging(options.log_format, options.log_level)
    return asyncio.run(_run(options, on_loaded))


async def _run(options: WorkerOptions, on_loaded: Callable[[Loaded], None]) -> int:
    return await Supervisor(options, on_loaded).run()
