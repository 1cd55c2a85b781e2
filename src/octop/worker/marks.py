"""Low-water marks: where a worker last claimed, so that it need not walk again over what it has claimed.

What was claimed leaves its entries in the index until vacuum may take them: while somebody's transaction is open, never. A claim that
begins at the front would pass all of them, each time. So while batches come back full, the next one begins behind the last.

A task of a transaction that was committed late lies before the mark. It is found by the look without marks: after a batch that did not
come back full, after a notification, and after a second at the latest, or, where that look takes long, so seldom that it takes a
twentieth of the time, but after five seconds in any case.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from octop.model.task import Claimed

SECONDS_MAX: Final = 1.0
LONGEST_SECONDS: Final = 5.0
SHARE: Final = 20.0


class Marks:
    """The marks of one worker.

    Attributes:
        by_queue: By queue and priority, time and id of the last task that was claimed there.
        generation: Rises when they are forgotten: what was asked before that moves none.
    """

    def __init__(self) -> None:
        """Begin at the front."""
        self.by_queue: dict[str, dict[int, tuple[str, str]]] = {}
        self.generation = 0
        self._until = 0.0

    def forget(self) -> None:
        """Look from the front next time."""
        self.generation += 1
        self.by_queue.clear()

    def is_look_due(self, now: float) -> bool:
        """Tell whether the next look is to be one from the front.

        Args:
            now: Monotonic moment.
        """
        return now >= self._until

    def current(self, now: float) -> Mapping[str, Mapping[int, tuple[str, str]]]:
        """Return the marks that hold now; none = the next look is one from the front.

        Args:
            now: Monotonic moment.
        """
        if self.is_look_due(now):
            self.forget()
        return self.by_queue

    def looked(self, *, began: float, now: float) -> None:
        """Take note of a look from the front: the next one is due some time after its end.

        Args:
            began: Monotonic moment at which it was asked for.
            now: Monotonic moment of the answer.
        """
        self._until = now + min(LONGEST_SECONDS, max(SECONDS_MAX, SHARE * (now - began)))

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

    def short(self, queue: str) -> bool:
        """Drop the marks of a queue whose batch did not come back full; True when it had some: look once more, from the front."""
        return self.by_queue.pop(queue, None) is not None
