"""How this command was started, for lines that the reader is to type."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "octop"


def typed_name() -> str:
    """Return what to type for `octop`: `octop` when the shell finds it, else the way this run was started."""
    if shutil.which(NAME):
        return NAME
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{sys.executable} -m {NAME}"
    return sys.argv[0] if started.name == NAME else NAME
