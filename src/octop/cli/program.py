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
    """Return what to type for `octop`: the name that was typed when the shell finds it, else the way this run was started."""
    if started_name() == SECOND_NAME and shutil.which(SECOND_NAME):
        return SECOND_NAME
    if shutil.which(NAME):
        return NAME
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{sys.executable} -m {NAME}"
    return sys.argv[0] if started.name in (NAME, SECOND_NAME) else NAME
