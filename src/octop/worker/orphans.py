"""The duty of process 1 of a container: to take leave of processes that nobody else can."""

import os
from collections.abc import Collection
from pathlib import Path


class Orphans:
    """Dead processes whose parents have died before them. The kernel gives them to process 1, and keeps each until it has asked."""

    def __init__(self) -> None:
        """Begin without having looked."""
        self._seen: set[int] = set()

    @staticmethod
    def are_ours() -> bool:
        """Tell whether they are given to this process: it is the first of a container, and no `init` stands above it."""
        return os.getpid() == 1

    def reap(self, own: Collection[int]) -> int:
        """Take leave of those that were dead at the last look already; return how many.

        Children of ours are asked for by those who started them, within milliseconds: what is still there at the second look is nobody's.

        Args:
            own: Processes whose end must be told to whoever started them, however late he asks.
        """
        dead = {pid for pid in _children() if pid not in own and _is_dead(pid)}
        gone = dead & self._seen
        for pid in gone:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        self._seen = dead - gone
        return len(gone)


def _children() -> list[int]:
    try:
        return [
            int(pid) for each in Path("/proc/self/task").iterdir() for pid in (each / "children").read_text().split()
        ]
    except OSError:  # no Linux, or a thread that has just ended: next time
        return []


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
