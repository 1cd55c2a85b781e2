"""How this command was started, for lines that the reader is to type."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "octop"
SECOND_NAME = "octop-scheduler"
"""Installed beside it, for who has another program of the first name."""


def started_name() -> str:
    """Return by which of its two names the command was started; the first one where it was by neither."""
    return SECOND_NAME if Path(sys.argv[0]).name == SECOND_NAME else NAME


def typed_name() -> str:
    """Return what to type for `octop`: the name that was typed when the shell finds this very program, else how it was started."""
    started = Path(sys.argv[0])
    if started.name in (NAME, SECOND_NAME):
        found = shutil.which(started.name)
        return started.name if found and _are_one(Path(found), started) else sys.argv[0]
    if started.name == "__main__.py" and not shutil.which(NAME):
        return f"{sys.executable} -m {NAME}"
    return NAME


def _are_one(found: Path, started: Path) -> bool:
    """Tell whether two paths lead to one program: another installation may come first on the PATH."""
    try:
        return found == started or len(started.parts) == 1 or found.samefile(started)
    except OSError:
        return False
