"""Processes, as the kernel shows them in /proc: who lives, who started whom. Any of them may end between two looks, or within one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Ends with us, also when we are killed: what follows is the command, in the same process.
LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def launched(
    python: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start Python in a session of its own; it ends with us, and what it says goes to the end of a file."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [python, "-c", LAUNCH, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )


def state_of(pid: int) -> str | None:
    """Return the state of a process as the kernel names it (R, S, T, Z …); None = it is gone."""
    fields = _fields(pid)
    return fields[0] if fields else None


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie has ended, and only its parent has not looked yet."""
    return state_of(pid) not in (None, "Z", "X")


def birth_of(pid: int) -> int:
    """Return when a process began, in ticks since boot; 0 = there is none, or only its zombie. A pid may be used again, with another birth."""
    fields = _fields(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else 0


def _fields(pid: int) -> list[str]:
    """Return the fields of its stat from the state on; none = it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def children_of(pid: int) -> list[int]:
    """List the children of a process, of all its threads; the dead ones too, while nobody has taken leave of them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return sorted(found)


def family_of(pid: int) -> list[int]:
    """List a process and all that descends from it."""
    found = [pid]
    for parent in found:
        found += children_of(parent)
    return found


def wait_for_end(pid: int, seconds: float) -> None:
    """Wait until a process is gone; one that takes longer is told to end at once."""
    deadline = time.monotonic() + seconds
    while birth_of(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGQUIT)
            deadline += seconds
        time.sleep(0.02)
