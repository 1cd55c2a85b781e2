"""What the demo knows at one moment: plain values, filled by `story`, drawn by `view`, printed by `lines`."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Final

RATES_MAX: Final = 120
"""Moments that the sparkline remembers."""


@dataclass
class KindState:
    """How far one kind of task has come.

    Attributes:
        name: Short name, as in the list of the command's help.
        says: What is to be seen, in a few words.
        expected: The status that it must reach.
        task_type: Name of the function.
        ids: Tasks of this kind that are watched one by one.
        total: How many there are.
        status: The status that they have; while they differ, that of the least advanced.
        note: What was seen: tries, how late, who was first.
        settled: It has reached its end, the expected one or not.
        okay: It ended as it must; None while it is on its way.
    """

    name: str
    says: str
    expected: str
    task_type: str
    ids: list[str] = field(default_factory=list)
    total: int = 1
    status: str = "-"
    note: str = ""
    settled: bool = False
    okay: bool | None = None


@dataclass(frozen=True)
class WorkerState:
    """One worker process and what it runs: task types with how many of each, the longest running first."""

    name: str
    pid: int
    running: list[tuple[str, int, float]]


@dataclass
class Picture:
    """Everything that the view shows.

    Attributes:
        seconds: The clock of the show; it begins when a worker is there.
        since_start: Seconds since the command was typed.
    """

    title: str
    seconds: float = 0.0
    since_start: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    kinds: list[KindState] = field(default_factory=list)
    workers: list[WorkerState] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    first_finished_seconds: float | None = None
    ends: str = ""
    psql: str = ""

    @property
    def finished(self) -> int:
        """Return how many tasks have ended in success."""
        return self.counts.get("success", 0)

    @property
    def settled(self) -> bool:
        """Tell whether every kind has reached its end."""
        return bool(self.kinds) and all(each.settled for each in self.kinds)

    @property
    def delay_median(self) -> float | None:
        """Return the usual time from the enqueue of a task to its start, in seconds."""
        return median(self.delays) if self.delays else None

    def remember_rate(self, rate: float) -> None:
        """Add one moment to the sparkline."""
        self.rates.append(rate)
        del self.rates[:-RATES_MAX]
