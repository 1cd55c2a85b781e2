"""Can this worker do its work? Judged by its supervisor, of what it knows itself: beats, and what its processes tell it each second."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from octop.worker.charge import WorkerProcess, is_stopped
from octop.worker.lease import TRUSTED_PART

# Processes tell each second how it goes: with a very short lease, that must not look like silence.
UNABLE_SECONDS_MIN: Final = 2.5


@dataclass(frozen=True)
class Health:
    """What a probe is told.

    Attributes:
        status: ``ok``; ``starting``, before all processes could work for the first time; ``failing``; ``stopping``, after a signal.
        healthy: Every process can do its work, or could a moment ago; while it stops: it is still beaten for.
        ready: Healthy, and not stopping.
        why: What is wrong, a sentence for each process; empty = nothing.
        processes: A row for each process.
        scaling: How many processes there are, and why, where their number follows the backlog; None = it does not.
    """

    status: str
    healthy: bool
    why: list[str]
    processes: list[dict[str, Any]]
    scaling: dict[str, Any] | None = None

    @property
    def ready(self) -> bool:
        """Tell whether it takes work."""
        return self.healthy and self.status == "ok"

    def as_json(self) -> dict[str, Any]:
        """Return the body of an answer."""
        return {
            "status": self.status,
            "healthy": self.healthy,
            "ready": self.ready,
            "why": self.why,
            "processes": self.processes,
            **({} if self.scaling is None else {"scaling": self.scaling}),
        }


def health_of(
    workers: Mapping[int, WorkerProcess | None],
    count: int,
    *,
    lease_seconds: float,
    beat_trouble: str = "",
    is_stopping: bool,
    now: float | None = None,
) -> Health:
    """Judge a worker.

    It is healthy while each of its places is: one of four that hangs is seen. What counts is the place, not the process: one that is
    replaced in time is no illness. Bad is a place in which for two thirds of the lease nobody was beaten for and able to claim: by then
    the worker itself starts nothing more, and the lease, after which others take its tasks, is not over yet.

    Args:
        workers: The process in each place that has had one.
        count: How many places there are.
        lease_seconds: Setting ``worker.lease_seconds``.
        beat_trouble: Why the last beat was not accepted; empty = it was.
        is_stopping: It has been told to stop: what has ended, and what claims no more, is well.
        now: Monotonic moment; None = the present one.
    """
    now = time.monotonic() if now is None else now
    bearable = max(UNABLE_SECONDS_MIN, lease_seconds * TRUSTED_PART)
    judge = _is_well_while_stopping if is_stopping else _is_well
    rows = []
    for index in range(count):
        worker = workers.get(index)
        healthy = judge(worker, now, bearable)
        why = "" if healthy else _why(worker, now, bearable, beat_trouble)
        rows.append(_row(worker, now, healthy=healthy, why=why))
    reasons = [f"worker process {row['pid'] or '(none)'} {row['why']}" for row in rows if row["why"]]
    bad = [row for row in rows if not row["healthy"]]
    begins = all(_good_at(workers.get(index)) == -math.inf for index, row in enumerate(rows) if not row["healthy"])
    status = "stopping" if is_stopping else "ok" if not bad else "starting" if begins else "failing"
    return Health(status, not bad, reasons, rows)


def _is_well(worker: WorkerProcess | None, now: float, bearable: float) -> bool:
    return now - _good_at(worker) < bearable


def _is_well_while_stopping(worker: WorkerProcess | None, now: float, bearable: float) -> bool:
    """Judge one that ends its tasks: others must not take them meanwhile."""
    if worker is None or not worker.registered or worker.leaving or worker.process.returncode is not None:
        return True
    return now - max(worker.beat_at, worker.good_before) < bearable


def _good_at(worker: WorkerProcess | None) -> float:
    return -math.inf if worker is None else worker.good_at


def _why(worker: WorkerProcess | None, now: float, bearable: float, beat_trouble: str) -> str:
    if worker is None:
        return "could not be started"
    if worker.process.returncode is not None:
        return "has ended, and no other could begin"
    if is_stopped(worker.process.pid):
        return "is stopped by a signal or a debugger"
    if not worker.registered:
        return "has not registered with the database yet"
    if worker.culprit is not None:
        return f"can not work: its event loop is held by {worker.culprit}"
    if beat_trouble or now - worker.beat_at >= bearable:
        return f"can not work: no heartbeat for it is accepted{f': {beat_trouble}' if beat_trouble else ''}"
    if worker.unable:
        return f"can not work: {worker.unable}"
    return "says nothing: its event loop does not turn"


def _row(worker: WorkerProcess | None, now: float, *, healthy: bool, why: str) -> dict[str, Any]:
    if worker is None:
        return {"pid": None, "worker_id": None, "state": "starting", "healthy": healthy, "why": why} | _ages(None, now)
    if worker.process.returncode is not None:
        state = "ended"
    elif not worker.registered:
        state = "starting"
    else:
        state = "stopping" if worker.leaving or worker.kill_at < math.inf else "working"
    found = {"pid": worker.process.pid, "worker_id": worker.worker_id, "state": state, "healthy": healthy, "why": why}
    return found | _ages(worker, now)


def _ages(worker: WorkerProcess | None, now: float) -> dict[str, float | None]:
    moments = (-math.inf, -math.inf) if worker is None else (worker.beat_at, worker.able_at)
    beat, able = (None if at == -math.inf else round(max(0.0, now - at), 1) for at in moments)
    return {"heartbeat_age_seconds": beat, "able_age_seconds": able}
