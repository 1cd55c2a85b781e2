"""Low-water marks: where a worker last claimed, so that it need not walk again over what it has claimed.

What was claimed leaves its entries in the index until vacuum may take them: while somebody's transaction is open, never. A claim that
begins at the front would pass all of them, each time. So while batches come back full, the next one begins behind the last.

A task of a transaction that was committed late lies before the mark, and so does one that was given back with its old time. They are found
by the look from the front, without marks: after a batch that did not come back full, after a notification, and after a second.

Where that look has become heavy, because millions of dead entries lie there, it is made so seldom that it takes a fiftieth of the time,
and after a minute in any case. In its place the claim looks back from the mark: by 1, 2, 1, 4, 1, 2, 1, 8 … 64 seconds. So what was
committed late is found after about as long again as its transaction was open, at the cost of some seconds of dead entries.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from octop.model.task import NIL, Claimed

SECONDS_MAX: Final = 1.0
LONGEST_SECONDS: Final = 60.0
SHARE: Final = 50.0
HEAVY_SECONDS: Final = 0.2
"""A look from the front that takes longer is heavy. An exchange takes some tens of milliseconds, on a busy machine a hundred."""
BACK_SECONDS_MAX: Final = 64

Mark = tuple[str, str]


class Marks:
    """The marks of one worker.

    Attributes:
        by_queue: By queue and priority, time and id of the last task that was claimed there.
        generation: Rises when they are forgotten: what was asked before that moves none.
        is_heavy: The last look from the front was.
    """

    def __init__(self) -> None:
        """Begin at the front."""
        self.by_queue: dict[str, dict[int, Mark]] = {}
        self.generation = 0
        self.is_heavy = False
        self._front_at = 0.0
        self._back_at = 0.0
        self._backs = 0

    def forget(self) -> None:
        """Look from the front next time."""
        self.generation += 1
        self.by_queue.clear()

    def is_look_due(self, now: float) -> bool:
        """Tell whether the next look is to be one from the front, or back from the marks.

        Args:
            now: Monotonic moment.
        """
        return now >= self._front_at or (self.is_heavy and now >= self._back_at)

    def current(self, now: float, *, anew: bool = False) -> Mapping[str, Mapping[int, Mark]]:
        """Return the marks for the next look; none = from the front.

        Args:
            now: Monotonic moment.
            anew: There may be something before the marks: somebody has called, or nothing more was found behind them.
        """
        if now >= self._front_at and self.is_heavy:
            self.generation += 1
            return {}  # the marks stay: what follows a short batch must not be heavy again
        if now >= self._front_at or (anew and not self.is_heavy):
            self.forget()
        elif self.is_heavy and (anew or now >= self._back_at):
            self._backs += 1
            self._back_at = now + SECONDS_MAX
            # how often the count can be halved: 0, 1, 0, 2, 0, 1, 0, 3 …
            seconds = min(self._backs & -self._backs, BACK_SECONDS_MAX)
            return {queue: _back(marks, seconds) for queue, marks in self.by_queue.items()}
        return self.by_queue

    def looked(self, *, began: float, now: float) -> None:
        """Take note of a look from the front: the next one is due some time after its end.

        Args:
            began: Monotonic moment at which it was asked for.
            now: Monotonic moment of the answer.
        """
        self.is_heavy = now - began > HEAVY_SECONDS
        self._front_at = now + min(LONGEST_SECONDS, max(SECONDS_MAX, SHARE * (now - began)))
        self._back_at = now + SECONDS_MAX

    def claimed(self, queue: str, tasks: Iterable[Claimed]) -> None:
        """Move the marks of a queue behind a batch that came back full, in the order in which it came: by priority and time."""
        marks = self.by_queue.setdefault(queue, {})
        last = {task.priority: task for task in tasks}
        for priority, task in last.items():
            if task.scheduled_at[4:5] != "-":
                # another DateStyle than ISO: not every zone that is printed can be read again
                self.by_queue.pop(queue)
                return
            marks[priority] = (task.scheduled_at, task.id)

    def short(self, queue: str, tasks: Iterable[Claimed] = (), *, is_behind: bool = True) -> bool:
        """Take note of a batch that did not come back full. Return True when there may be something before the marks: look once more.

        Args:
            queue: Where it came from.
            tasks: What it was. Where the look from the front is heavy, they are the marks from now on.
            is_behind: It was claimed behind the marks; False = by a look from the front, or back.
        """
        if not self.is_heavy:
            return self.drop(queue)
        if (is_behind or queue not in self.by_queue) and (found := list(tasks)):
            self.claimed(queue, found)
        return is_behind and queue in self.by_queue

    def drop(self, queue: str) -> bool:
        """Forget the marks of one queue; True when it had some."""
        return self.by_queue.pop(queue, None) is not None


def _back(marks: Mapping[int, Mark], seconds: int) -> dict[int, Mark]:
    found = {}
    for priority, (at, _) in marks.items():
        try:
            found[priority] = ((datetime.fromisoformat(at) - timedelta(seconds=seconds)).isoformat(), NIL)
        except (ValueError, OverflowError):
            continue  # a time that only PostgreSQL can read: this priority is looked at from its front
    return found
