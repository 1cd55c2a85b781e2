"""The places of a supervisor's processes. Where a range of processes is asked for, the backlog opens and closes them; SQL decides how many.

A place that is closed lets its process end when all its tasks have ended, and starts no other: nothing is cut for it.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from octop.engine import calls
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.model.work import Wanted
from octop.worker.charge import WorkerProcess
from octop.worker.link import Link
from octop.worker.load import DEFAULT_QUEUE, Loaded
from octop.worker.options import WorkerOptions
from octop.worker.trouble import Trouble

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
LOOK_SECONDS_MAX: Final = 10.0
RETIRED: Final = "fewer processes are needed"


class Places:
    """Which places have, or are to have, a process.

    Attributes:
        seconds: Setting ``worker.scale_seconds``.
        open: Numbers of the places.
    """

    def __init__(self, options: WorkerOptions, workers: Mapping[int, WorkerProcess], stopping: asyncio.Event) -> None:
        """Open the least number of places.

        Args:
            options: How many there are at least, and at most.
            workers: The process in each place that has had one.
            stopping: Set when no place is to have a process any more.
        """
        self.seconds = LOOK_SECONDS
        self._options = options
        self._minimum = options.processes_min or options.processes
        self._maximum = options.processes
        self.open = set(range(self._minimum))
        self._workers = workers
        self._stopping = stopping
        self._drained = False
        self._last: Wanted | None = None
        self._link = Link(options, "scaling", "scaling", is_over=stopping.is_set)
        self._changed = [asyncio.Event() for _ in range(self._maximum)]

    @property
    def may_change(self) -> bool:
        """Tell whether the number follows the backlog."""
        return self._minimum < self._maximum

    async def is_wanted(self, place: int) -> bool:
        """Wait until a place is to have a process; False = it is over."""
        changed = self._changed[place]
        while place not in self.open and not (self._stopping.is_set() or self._drained):
            await changed.wait()
            changed.clear()
        return place in self.open and not self._stopping.is_set()

    def wake(self) -> None:
        """Let each place look anew whether it is over."""
        for changed in self._changed:
            changed.set()

    def drained(self) -> None:
        """Take note that a process found nothing left: no place is opened any more."""
        self._drained = True
        self.wake()

    def settled(self) -> dict[int, WorkerProcess | None]:
        """Return the process of each place that must be well: not one that was opened a moment ago, or still ends what it held."""
        found = [self._workers.get(place) for place in sorted(self.open) if place < self._minimum or self._is_up(place)]
        return dict(enumerate(found))

    def as_json(self) -> dict[str, Any]:
        """Return what a probe is told."""
        last = self._last
        return {
            "processes": len(self.open),
            "minimum": self._minimum,
            "maximum": self._maximum,
            "due": None if last is None else last.due,
            "oldest_seconds": None if last is None else round(last.oldest_seconds, 1),
        }

    async def follow(self, supervisor_id: str, loaded: Callable[[], Loaded | None]) -> None:
        """Look again and again at the backlog. Without a database nothing changes.

        Args:
            supervisor_id: Whose processes.
            loaded: What they have loaded; None = not known yet.
        """
        trouble = Trouble("the look at the backlog is refused", supervisor_id, endless=True)
        while True:
            await asyncio.sleep(self.seconds)
            names = self._queues(loaded())
            if self._stopping.is_set() or self._drained or not names:
                continue
            call = calls.octop_wanted_processes(
                supervisor_id,
                names,
                processes=len(self.open),
                minimum=self._minimum,
                maximum=self._maximum,
                quiet=0 if self._last is None else self._last.quiet,
            )
            try:
                self.set(await self._link.call(call, seconds=LOOK_SECONDS_MAX))
                trouble.over()
            except DatabaseUnreachableError:
                await self._link.pause()
            except OctopError as error:
                trouble.bear(error)

    def _queues(self, loaded: Loaded | None) -> list[str]:
        if self._options.queues is not None:
            return list(self._options.queues)
        return [] if loaded is None else sorted({DEFAULT_QUEUE, *loaded.queues})

    async def close(self) -> None:
        """Close the way to the database."""
        await self._link.close()

    def set(self, wanted: Wanted) -> None:
        """Open or close places.

        Args:
            wanted: What the database said.
        """
        self._last = wanted
        before = len(self.open)
        while len(self.open) < min(wanted.processes, self._maximum):
            # rather one that is empty than one whose process still ends its tasks
            place = min(set(range(self._maximum)) - self.open, key=lambda each: (self._has_process(each), each))
            self.open.add(place)
            self._changed[place].set()
        while len(self.open) > max(wanted.processes, self._minimum):
            self._close_place(max(self.open))
        if len(self.open) != before:
            why = (
                f"{wanted.due:,} due, the oldest for {wanted.oldest_seconds:.1f} s" if wanted.due else "nothing is due"
            )
            log.info(
                "%d worker process%s instead of %d: %s",
                len(self.open),
                "" if len(self.open) == 1 else "es",
                before,
                why,
            )

    def _close_place(self, place: int) -> None:
        self.open.discard(place)
        worker = self._workers.get(place)
        if worker is not None and worker.process.returncode is None:
            worker.retired = True
            worker.tell({"retire": RETIRED})

    def _has_process(self, place: int) -> bool:
        worker = self._workers.get(place)
        return worker is not None and worker.process.returncode is None

    def _is_up(self, place: int) -> bool:
        worker = self._workers.get(place)
        return worker is not None and not worker.retired and worker.good_at > -math.inf
