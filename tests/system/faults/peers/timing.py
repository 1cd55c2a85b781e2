"""How long a silent worker keeps its tasks, the same for all contenders. Standard library only: the adapters read it too."""

LEASE_SECONDS = 30
"""Octop's default, pgqueuer's and procrastinate's. Whole seconds: Celery takes no others."""

SWEEP_SECONDS = 5
"""Between two looks for tasks whose worker is silent: Octop's default."""

RESTART_SECONDS = 1.0
"""A worker whose main process has ended is started again after so long."""

REST_SECONDS = 150.0
"""What is not finished so long after the last fault is stuck. The longest rescue of all by these settings takes 95 (oban, if the leader died)."""
