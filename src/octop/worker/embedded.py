"""A worker inside the user's own process and event loop."""

import asyncio
import logging
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from octop.model.declared_schedules import DeclaredSchedules
from octop.model.definition import TaskDefinition
from octop.model.errors import ConfigurationError
from octop.model.hooks import Hooks
from octop.model.work import Settings
from octop.worker.heart import HeartThread, Pulse
from octop.worker.lease import Lease
from octop.worker.options import WorkerOptions
from octop.worker.runtime import Runtime

log = logging.getLogger(__name__)


async def run_embedded(
    options: WorkerOptions,
    registry: dict[str, TaskDefinition],
    hooks: Hooks,
    *,
    stop: asyncio.Event | None = None,
    version: str = "",
    queue_declarations: Mapping[str, Mapping[str, object]] | None = None,
    declared_schedules: DeclaredSchedules | None = None,
) -> None:
    """Run one worker in this event loop until it is stopped, cancelled or (with ``drain``) has nothing left to do.

    It beats from a thread with a connection of its own, and handles no signals: they are the caller's. When the asyncio task that
    awaits it is cancelled, it stops as after a first SIGTERM; a second cancellation, or a first one after ``stop``, releases everything
    at once.

    Args:
        options: What to serve; ``processes`` and ``reload`` mean nothing here, and what only a supervisor can do is refused.
        registry: Task types by name and alias.
        hooks: What the application wants to be called with.
        stop: Set to stop with grace.
        version: Shown by ``octop workers``.
        queue_declarations: Values of queues that the application declares, by queue.
        declared_schedules: Schedules that the application declares.

    Raises:
        ConfigurationError: Health probes, or caps of a process that is not ours to replace, were asked for.
        DatabaseUnreachableError: No database at the start.
        OctopError: Something that no further try would mend.
    """
    _refuse_what_needs_a_supervisor(options)
    lease = Lease()
    worker_id = str(uuid.uuid4())
    options = _importable(options, registry)
    runtime = Runtime(
        options,
        registry,
        hooks,
        worker_id=worker_id,
        lease=lease,
        version=version,
        queue_declarations=queue_declarations,
        declared_schedules=declared_schedules,
    )
    heart = HeartThread(options, worker_id, lease)

    def follow(settings: Settings) -> None:
        heart.follow(float(settings.values.get("worker.heartbeat_seconds") or 10.0))

    runtime.on_settings = follow
    runtime.on_registered = heart.start
    runtime.on_leaving = heart.stop  # the last thing to end before the row goes: a later beat would bring it back
    pulse = Pulse(runtime.culprit)
    worker = asyncio.get_running_loop().create_task(runtime.run())
    watcher = asyncio.get_running_loop().create_task(_stop_when(stop, runtime)) if stop is not None else None
    cancelled: asyncio.CancelledError | None = None
    try:
        while not worker.done():
            try:
                await asyncio.wait([worker])
            except asyncio.CancelledError as error:
                cancelled = error
                _cancelled(runtime, worker, is_stopping=stop is not None and stop.is_set())
        if cancelled is None:
            worker.result()
        elif not worker.cancelled() and (problem := worker.exception()) is not None:
            log.error("the worker failed while it was stopping", exc_info=problem)
    finally:
        if watcher is not None:
            watcher.cancel()
        pulse.stop()
        heart.stop()
    if cancelled is not None:
        raise cancelled


def _refuse_what_needs_a_supervisor(options: WorkerOptions) -> None:
    for name in ("health_port", "health_file", "max_tasks_per_process", "max_memory_mb"):
        if getattr(options, name) is not None:
            message = f"{name} needs a supervisor, and this worker runs in your own process"
            raise ConfigurationError(message, hint="Run the command `octop worker`, or leave it out.")


def _cancelled(runtime: Runtime, worker: asyncio.Task[None], *, is_stopping: bool) -> None:
    if not runtime.registration.is_known:
        worker.cancel()  # nothing has begun
    elif is_stopping or runtime.shutdown.has_begun:
        runtime.stop_now()
    else:
        runtime.stop()


async def _stop_when(stop: asyncio.Event, runtime: Runtime) -> None:
    await stop.wait()
    runtime.stop()


def _importable(options: WorkerOptions, registry: dict[str, TaskDefinition]) -> WorkerOptions:
    """Find a name under which child processes can import the application, if the caller gave none."""
    if options.application is not None or not registry:
        return options
    module = next(iter(registry.values())).function.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            return options
        module = str(Path(file).resolve())
    return WorkerOptions(**{**options.as_json(), "application": module})
