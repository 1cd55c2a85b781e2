"""The ledger: one file, to which every process appends whole lines. Standard library only; a fork does no harm.

A line that was written is there, whoever is killed afterwards: only processes die here, not the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "OCTOP_TEST_BOOK"


def note(kind: str, **values: object) -> None:
    """Append a line to the file that the environment names."""
    write(os.environ[VARIABLE], kind, **values)


def write(path: str | Path, kind: str, **values: object) -> None:
    """Append a line. The clock is the machine's monotonic one, which all processes share."""
    line = json.dumps({"kind": kind, "at": time.monotonic(), "pid": os.getpid(), **values})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def recorded(key: str) -> Iterator[None]:
    """Note that a task begins, and that it ran to its end, or was cut off from outside."""
    run = os.urandom(6).hex()
    note("began", key=key, run=run)
    try:
        yield
    except BaseException as error:
        note("cut", key=key, run=run, error=type(error).__name__)
        raise
    note("ended", key=key, run=run)


def read(path: Path) -> list[dict[str, Any]]:
    """Read all whole lines, in the order in which they were written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
