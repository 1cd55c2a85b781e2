"""A batch, in an application of its own: the last release, which runs the everyday one, knows of none."""

from __future__ import annotations

import os

import octop as _octop
from octop.app import Octop

octop = Octop()


@octop.task(queue="q", batch_size=2, batch_wait=5)
def gather(tasks: list[_octop.BatchTask[dict[str, str]]]) -> list[dict[str, int]]:
    return [{"count": len(tasks), "pid": os.getpid()} for _ in tasks]
