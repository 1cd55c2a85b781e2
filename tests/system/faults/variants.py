"""What a run may have beside its workers and its database, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.system.faults import pooler, small_disk, workers


class Variant(NamedTuple):
    """What is there.

    Attributes:
        pooler: pgbouncer in transaction mode, before the database.
        clock: libfaketime, before the workers.
        standby: A streaming standby, which is promoted in mid-run: ``sync`` or ``async``; None = there is none.
        disk: A small disk, under the database. It needs the right to mount.
    """

    pooler: bool = False
    clock: bool = False
    standby: str | None = None
    disk: bool = False

    def things(self) -> list[str]:
        """List what faults may need, as `faults.NEEDS` names it."""
        there = {"pooler": self.pooler, "clock": self.clock, "disk": self.disk}
        return [name for name, is_there in there.items() if is_there]

    def missing(self) -> str | None:
        """Say what this machine lacks for it; None = nothing."""
        if self.pooler and pooler.program() is None:
            return "there is no pgbouncer on this machine (Debian: pgbouncer)"
        if self.clock and workers.library() is None:
            return "there is no libfaketime on this machine (Debian: libfaketime)"
        if self.disk and not small_disk.may_mount():
            return "a small disk must be mounted, and this process may not"
        return None


PLAIN = Variant()
VARIANTS: Mapping[str, Variant] = {
    "plain": PLAIN,
    "pooled": Variant(pooler=True),
    "clock": Variant(clock=True),
    "standby-sync": Variant(standby="sync"),
    "standby-async": Variant(standby="async"),
    "small-disk": Variant(disk=True),
}
