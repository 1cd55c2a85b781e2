"""What can go wrong, by name. A fault strikes, lasts, and is over when its function returns: it repairs what it has broken.

Each function gets the stage and its step of the plan, and returns what it has hit, for the report (striking.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.system.faults import (
    database_faults,
    disk_faults,
    failover_faults,
    network_faults,
    process_faults,
    size_faults,
    timeout_faults,
)
from tests.system.faults.plan import BEHIND, PROMOTION, Kind, Step
from tests.system.faults.settings import LEASE_SECONDS
from tests.system.faults.stage import Stage

Fault = Callable[[Stage, Step], str]

FAULTS: Mapping[str, tuple[Fault, Kind]] = {
    "kill worker": (process_faults.kill_worker, Kind(4, 0, 0)),
    "kill child": (process_faults.kill_child, Kind(3, 0, 0)),
    "kill supervisor": (process_faults.kill_supervisor, Kind(2, 0, 0)),
    "kill all": (process_faults.kill_all, Kind(2, 0, 0)),
    "stop worker": (process_faults.stop_worker, Kind(2, 0.2, LEASE_SECONDS * 0.9)),
    "stop worker long": (process_faults.stop_worker, Kind(3, LEASE_SECONDS * 1.2, LEASE_SECONDS * 2.5)),
    "stop child": (process_faults.stop_child, Kind(2, 0.2, LEASE_SECONDS * 2.5)),
    "stop supervisor": (process_faults.stop_supervisor, Kind(2, 0.5, LEASE_SECONDS * 2)),
    "stop all": (process_faults.stop_all, Kind(2, 0.5, LEASE_SECONDS * 2)),
    "end supervisor": (process_faults.end_supervisor, Kind(2, 0, 0)),
    "restart fast": (database_faults.restart_fast, Kind(2, 0, 1)),
    "outage": (database_faults.restart_fast, Kind(2, LEASE_SECONDS * 1.1, LEASE_SECONDS * 1.6)),
    "restart immediate": (database_faults.restart_immediate, Kind(2, 0, 1)),
    "crash backend": (database_faults.crash_backend, Kind(2, 0, 0)),
    "crash postmaster": (database_faults.crash_postmaster, Kind(1, 0, 0.5)),
    "terminate": (database_faults.terminate, Kind(4, 0, 0)),
    "connections full": (database_faults.connections_full, Kind(2, 0.5, 3)),
    "statement timeout": (timeout_faults.statement_timeout, Kind(2, 1, 3)),
    "lock timeout": (timeout_faults.lock_timeout, Kind(2, 0.5, LEASE_SECONDS * 0.8)),
    "read only": (timeout_faults.read_only, Kind(1, 0.5, 3)),
    "tables can not grow": (size_faults.tables_can_not_grow, Kind(2, 1, 3)),
    "log can not grow": (size_faults.log_can_not_grow, Kind(2, 0, 1.5)),
    "reset": (network_faults.reset, Kind(3, 0, 0)),
    "delay": (network_faults.delay, Kind(2, 0.5, 4)),
    "lose answers": (network_faults.lose_answers, Kind(4, 0.1, 1.5)),
    "lose commits": (network_faults.lose_commits, Kind(3, 0.5, 3)),
    "hole then reset": (network_faults.hole_then_reset, Kind(3, 0.5, LEASE_SECONDS * 2.5)),
    "hole then late": (network_faults.hole_then_late, Kind(4, 0.5, LEASE_SECONDS * 2.5)),
    "half open": (network_faults.half_open, Kind(3, 0.5, LEASE_SECONDS * 2.5)),
    "outage and hole": (network_faults.outage_and_hole, Kind(2, LEASE_SECONDS * 1.1, LEASE_SECONDS * 1.4)),
    "clock jump": (process_faults.clock_jump, Kind(4, 0.5, 4)),
    "restart pooler": (network_faults.restart_pooler, Kind(4, 0, 2)),
    "disk full": (disk_faults.disk_full, Kind(6, 1, 4)),
    "log disk full": (disk_faults.log_disk_full, Kind(3, 0, 1.5)),
    PROMOTION: (failover_faults.promote_standby, BEHIND),
}
NEEDS: Mapping[str, str] = {
    "restart pooler": "pooler",
    "clock jump": "clock",
    "disk full": "disk",
    "log disk full": "disk",
    PROMOTION: "a place in the plan, once",
}
"""What a fault needs that not every run has."""

ENDS_WAITS_FOR_STANDBY = "statement timeout"
"""Left out where commits wait for a standby: when that wait is cut short, PostgreSQL warns, and says that it has committed."""


def kinds_with(*there: str) -> dict[str, Kind]:
    """Return what may be drawn in a run, by name.

    Args:
        there: What the run has beside the ordinary: ``pooler``, ``clock``, ``disk``.
    """
    return {name: kind for name, (_, kind) in FAULTS.items() if name not in NEEDS or NEEDS[name] in there}
