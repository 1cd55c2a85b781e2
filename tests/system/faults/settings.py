"""The settings by which the workers of a run live."""

from __future__ import annotations

# As short as they may be without a busy machine being taken for a dead worker.
SETTINGS = {
    "worker.heartbeat_seconds": "0.5",
    "worker.lease_seconds": "2",
    "worker.rescue_seconds": "0.3",
    "worker.deadline_grace_seconds": "2",
    "scheduler.interval_seconds": "1",
    "task.default_timeout_seconds": "15",
    "task.retry_base_seconds": "0.05",
    "task.retry_cap_seconds": "0.5",
}
LEASE_SECONDS = float(SETTINGS["worker.lease_seconds"])

LIMITS: dict[str, dict[str, object]] = {
    "alone": {"global_limit": 1},
    "three": {"global_limit": 3},
    "laned": {"lane_limit": 2},
    "strict": {"ordered": True},
}
"""Queues with limits; by these the checker judges."""
