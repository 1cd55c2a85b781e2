"""How much memory a process uses."""

import os
import resource
import sys
from pathlib import Path
from typing import Final

MB: Final = 1 << 20


def resident_bytes(pid: int | None = None) -> int:
    """Return the resident memory of a process, in bytes; 0 = unknown.

    Without ``/proc`` it is the largest that this process ever had, and that of others is unknown.

    Args:
        pid: Which; None = this one.
    """
    try:
        pages = int(Path(f"/proc/{'self' if pid is None else pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        if pid is not None:
            return 0
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
