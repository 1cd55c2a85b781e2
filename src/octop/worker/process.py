"""``python -m octop.worker.process``: one worker process, started and beaten for by its supervisor.

Its options come as a message over the socket that is its standard input, so that no secret stands on a command line.
"""

import asyncio
import contextlib
import functools
import io
import logging
import os
import signal
import sys
import threading

from octop import __version__
from octop.model.errors import OctopError
from octop.model.work import Settings
from octop.worker import copies
from octop.worker.frames import Channel, Message
from octop.worker.heart import Culprit, HeartThread, Pulse
from octop.worker.lease import Lease
from octop.worker.load import Application, application_folder, described, is_mendable, load_application
from octop.worker.logs import configure_logging
from octop.worker.options import WorkerOptions
from octop.worker.runtime import Runtime

log = logging.getLogger(__name__)


def main() -> int:
    """Work until the supervisor, a signal or the end of all tasks says stop."""
    channel = Channel.from_descriptor(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    hello = channel.receive()
    if hello is None:
        return 1
    options = WorkerOptions(**hello["options"])
    configure_logging(options.log_format, options.log_level)
    # What tasks enqueue goes to the database that the worker serves, unless the application itself names one.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what a task prints is to be seen at once, also in a file
    os.environ["OCTOP_DSN"] = options.dsn
    os.environ["OCTOP_SCHEMA"] = options.schema
    try:
        application = load_application(options.application or "", options.import_folder)
    except OctopError as error:
        mendable = is_mendable(error)
        if options.reload and (mendable or hello["patient"]):
            error.hint = "Save the corrected file: the worker starts again. Ctrl-C ends."
        return _refuse(channel, error, mendable=mendable)
    channel.send({"loaded": described(options.application or "", application)._asdict()})
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    copies.guard(channel, loop)
    process = _Process(options, application, channel, hello)
    task = loop.create_task(process.run())
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            # A task of the user's own asyncio tasks raised it: asyncio lets it out of the loop. Nobody but a signal stops a worker.
            if not task.done():
                log.error("%s was raised in an asyncio task that a task had started", type(error).__name__)
        except OctopError as error:
            return _refuse(channel, error)
    return task.result()


def _refuse(channel: Channel, error: OctopError, *, mendable: bool = False) -> int:
    channel.send({"fatal": error.exit_code, "message": str(error), "mendable": mendable})
    return error.exit_code


class _Process:
    """Ties a worker to its supervisor."""

    def __init__(self, options: WorkerOptions, application: Application, channel: Channel, hello: Message) -> None:
        self._options = options
        self._application = application
        self._channel = channel
        self._hello = hello
        self._lease = Lease()
        self._heart: HeartThread | None = None
        self._heartbeat_seconds = 10.0
        self._signals = 0
        self._is_watched = False

    async def run(self) -> int:
        """Run the worker, and return the exit code."""
        loop = asyncio.get_running_loop()
        runtime = Runtime(
            self._options,
            self._application.registry,
            self._application.hooks,
            worker_id=self._hello["worker_id"],
            lease=self._lease,
            supervisor_id=self._hello["supervisor_id"],
            version=__version__,
            queue_declarations=self._application.queue_declarations,
            declared_schedules=self._application.declared_schedules,
        )
        runtime.on_settings = self._follow
        runtime.on_registered = self._registered
        runtime.on_change = lambda: self._tell({"changed": True})
        runtime.on_leaving = self._leaving
        runtime.on_left = lambda: self._tell({"left": True})
        runtime.holdings.on_longer = lambda: self._turned(runtime, runtime.holdings.longest_seconds)
        runtime.shutdown.on_stopping = lambda seconds: self._tell({"stopping": seconds})
        runtime.on_delivering = lambda: self._tell({"delivering": True})
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, functools.partial(self._signalled, runtime))
        threading.Thread(target=self._listen, args=(runtime, loop), name="octop-lifeline", daemon=True).start()
        pulse = Pulse(
            runtime.culprit,
            on_turn=lambda: self._look(runtime),
            on_blocked=self._blocked,
        )
        try:
            await runtime.run(patient=bool(self._hello["patient"]))
        finally:
            pulse.stop()
            if self._heart is not None:
                self._heart.stop()
        self._tell({"ended": True, "drained": runtime.drained, "recycled": runtime.recycled})
        return 0

    def _tell(self, message: Message) -> None:
        self._channel.send(message)

    def _follow(self, settings: Settings) -> None:
        self._heartbeat_seconds = float(settings.values.get("worker.heartbeat_seconds") or 10.0)
        if self._heart is not None:
            self._heart.follow(self._heartbeat_seconds)
        self._tell(
            {
                "heartbeat_seconds": self._heartbeat_seconds,
                "lease_seconds": float(settings.values.get("worker.lease_seconds") or 30.0),
                "deadline_grace_seconds": float(settings.values.get("worker.deadline_grace_seconds") or 10.0),
                "tick_seconds": float(settings.values.get("scheduler.interval_seconds") or 5.0),
                "scale_seconds": float(settings.values.get("worker.scale_seconds") or 5.0),
            }
        )

    def _look(self, runtime: Runtime) -> None:
        runtime.turnover.weigh()
        self._turned(runtime, runtime.holdings.reckon_longest())

    def _turned(self, runtime: Runtime, longest_seconds: float) -> None:
        """Say that the loop turns, and how it goes. It must not wait for a supervisor that does not listen."""
        if self._is_watched:
            at, why = runtime.ability()
            self._channel.offer({"pulse": longest_seconds, "able_at": at, "unable": why})

    def _blocked(self, culprit: Culprit) -> None:
        if self._is_watched:
            self._tell({"blocked": culprit.name, "deadline": culprit.deadline})

    def _leaving(self) -> None:
        """Let nobody beat for a row that is about to go: the beat would bring it back."""
        self._is_watched = False
        self._tell({"leaving": True})
        if self._heart is not None:
            self._heart.stop()

    def _registered(self) -> None:
        folder = application_folder(self._options.application or "")
        self._tell({"registered": True, "folder": None if folder is None else str(folder)})
        self._is_watched = True

    def _signalled(self, runtime: Runtime) -> None:
        self._signals += 1
        if self._signals == 1:
            runtime.stop()
        else:
            runtime.stop_now()

    def _listen(self, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        """Take beats from the supervisor, whatever the loop does; when it is gone, beat for ourselves and stop."""
        while (message := self._channel.receive()) is not None:
            if "retire" in message:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(runtime.retire, str(message["retire"]))
            elif "beat" in message:
                self._lease.beaten(float(message["beat"]), unbroken=bool(message["unbroken"]))
        log.warning("the supervisor is gone: this worker ends its tasks and stops")
        heart = HeartThread(self._options, runtime.worker_id, self._lease, self._heartbeat_seconds)
        heart.start()
        self._heart = heart
        try:
            loop.call_soon_threadsafe(runtime.stop)
        except RuntimeError:
            log.debug("the loop is closed")


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except OctopError as problem:
        log.error("%s", problem)
        code = problem.exit_code
    except BaseException:
        if copies.is_one:
            copies.end()
        log.critical("the worker failed", exc_info=True)
        raise
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads that were given up, and executors of the tasks' own, would keep the interpreter from ending.
        os._exit(code)
