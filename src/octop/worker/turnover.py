"""When a worker process has served: it claims no more, ends what it holds, and makes room for a fresh one. Nothing is cut for it."""

import logging
import zlib
from collections.abc import Callable
from typing import Final

from octop.worker.claims import Claims
from octop.worker.memory import MB, resident_bytes

log = logging.getLogger(__name__)

SPREAD: Final = 10


class Turnover:
    """Watches over the two caps of one worker process."""

    def __init__(
        self,
        claims: Claims,
        worker_id: str,
        *,
        tasks_max: int | None,
        memory_mb_max: int | None,
        wake: Callable[[], None],
    ) -> None:
        """Begin fresh.

        Args:
            claims: Told to ask for no more.
            worker_id: Spreads the ends of processes that started together.
            tasks_max: After how many tasks it has served; None = never.
            memory_mb_max: Over how much resident memory, in MB of 1,048,576 bytes, it has served; None = never.
            wake: Lets the exchanger notice.
        """
        self._claims = claims
        self._wake = wake
        self._memory_mb_max = memory_mb_max
        self._why_heavy = ""
        self._warned = False
        if tasks_max is not None:
            claims.tasks_max = spread(tasks_max, worker_id)

    @property
    def why(self) -> str:
        """Return in words why it has served; empty = it has not."""
        if self._why_heavy:
            return self._why_heavy
        count = self._claims.delivered
        return f"it has run {'1 task' if count == 1 else f'{count} tasks'}" if self._claims.is_spent else ""

    def retire(self, why: str) -> None:
        """Let it serve no more.

        Args:
            why: In words.
        """
        self._why_heavy = self._why_heavy or why
        self._claims.retired = True
        self._wake()

    def weigh(self) -> None:
        """Look at the memory: called about each second, also while tasks run. One that is too heavy only claims no more.

        A process that is too heavy before its first task runs one all the same: else none would ever be run.
        """
        if self._memory_mb_max is None or self._claims.is_spent:
            return
        used_mb = resident_bytes() / MB
        if used_mb <= self._memory_mb_max:
            return
        if not self._claims.delivered:
            if not self._warned:
                self._warned = True
                log.warning(
                    "%.0f MB of memory are used before the first task, more than the cap of %d MB: each task will cost a process",
                    used_mb,
                    self._memory_mb_max,
                )
            return
        self.retire(f"it uses {used_mb:.0f} MB of memory, more than {self._memory_mb_max}")


def spread(tasks_max: int, worker_id: str) -> int:
    """Return the cap of one process: up to a tenth less, so that processes that started together do not end together.

    Args:
        tasks_max: What the options say.
        worker_id: Differs between processes.
    """
    return tasks_max - zlib.crc32(worker_id.encode()) % (tasks_max // SPREAD + 1)
