"""What one look at the database has shown, and what two looks tell: how fast tasks end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from octop.engine import reads, steering
from octop.engine.call import run

if TYPE_CHECKING:
    from octop.engine.connect import EngineConnection
    from octop.engine.rows import Row

ROWS_MAX: Final = 50
"""Rows that are read of each list, so that a look costs the same on a full database."""

RATES_MAX: Final = 120
"""Moments that the line of bars remembers."""


@dataclass(frozen=True)
class Snapshot:
    """One look.

    Attributes:
        queues: Rows of `octop.engine.steering.list_queues`.
        workers: Rows of `octop.engine.reads.list_workers`.
        running: The longest running tasks.
        failures: The newest tasks that wait for a retry or are frozen.
        ended: How many tasks have succeeded, by queue.
    """

    queues: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    running: list[Row] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)


def look(connection: EngineConnection) -> Snapshot:
    """Read everything that is shown, with five bounded reads."""
    ended: dict[str, int] = {}
    for row in run(connection, reads.throughput()):
        if row["status"] == "success":
            ended[row["queue"]] = ended.get(row["queue"], 0) + int(row["total"])
    return Snapshot(
        queues=run(connection, steering.list_queues()),
        workers=run(connection, reads.list_workers())[:ROWS_MAX],
        running=run(connection, reads.running_tasks(ROWS_MAX)),
        failures=run(connection, reads.failed_tasks(ROWS_MAX)),
        ended=ended,
    )


class Rates:
    """How many tasks succeed in a second, by the difference of two looks."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.all: list[float] = []
        self.by_queue: dict[str, float] = {}
        self._before: tuple[float, Snapshot] | None = None

    def take(self, snapshot: Snapshot, at: float) -> None:
        """Compare with the look before.

        Args:
            snapshot: The new look.
            at: When, on the monotonic clock.
        """
        if self._before is not None:
            then, before = self._before
            seconds = max(at - then, 1e-3)
            # history that retention drops makes a total smaller: that is no rate
            self.by_queue = {
                queue: max(0, total - before.ended.get(queue, 0)) / seconds for queue, total in snapshot.ended.items()
            }
            self.all.append(sum(self.by_queue.values()))
            del self.all[:-RATES_MAX]
        self._before = at, snapshot

    @property
    def known(self) -> bool:
        """Tell whether there have been two looks."""
        return bool(self.all)


def as_json(snapshot: Snapshot, rates: Rates) -> dict[str, Any]:
    """Return a look as one JSON object; rates are None before the second look."""
    return {
        "finished_per_second": round(rates.all[-1], 3) if rates.known else None,
        "queues": [
            {**row, "finished_per_second": round(rates.by_queue.get(row["name"], 0.0), 3) if rates.known else None}
            for row in snapshot.queues
        ],
        "workers": snapshot.workers,
        "running": snapshot.running,
        "failures": snapshot.failures,
    }
