"""Who takes part: how its worker is started, and by which settings it lives, each with its reason. The adapters have the settings that are code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.peers.environments import installed
from benchmarks.peers.peer import named
from octop import __version__
from tests.system.faults.peers.programs.program import PLACES
from tests.system.faults.peers.timing import LEASE_SECONDS, SWEEP_SECONDS

PROGRAMS = "tests.system.faults.peers.programs"


@dataclass(frozen=True)
class Contender:
    """One of them.

    Args:
        name: As its package is called.
        worker: The arguments of the interpreter that start a worker; gets the worker's name and the folder of the run.
        settings: What differs from its defaults, for the report.
        by_default: When its defaults start a dead worker's tasks again, for the report.
        advice: The pages of its documentation that say so.
        transaction: Whether the task joins the caller's transaction.
        broker: What keeps its tasks, and is restarted.
        runs_in: Which process runs the tasks: the main one, or its children.
    """

    name: str
    worker: Callable[[str, Path], list[str]]
    settings: str
    by_default: str
    advice: tuple[str, ...]
    transaction: bool = True
    broker: Literal["postgres", "redis"] = "postgres"
    runs_in: Literal["main", "children"] = "main"

    @property
    def module(self) -> str:
        return f"{PROGRAMS}.with_{self.name}"

    @property
    def packages(self) -> str:
        """What is installed, with versions."""
        return f"octop=={__version__}" if self.name == "octop" else " ".join(named(self.name)[0].packages)

    def python(self) -> Path:
        """Return its interpreter, installing it if need be.

        Raises:
            PeerUnavailableError: It can not be installed.
        """
        return Path(sys.executable) if self.name == "octop" else installed(named(self.name)[0]) / "bin" / "python"


def _octop(name: str, folder: Path) -> list[str]:
    # The grace counts at the very end only, where nobody looks any more.
    options = ["-q", f"work={PLACES}", "--processes", "1", "--name", name, "--grace", "2"]
    return ["-m", "octop", "worker", "-A", f"{PROGRAMS}.with_octop:octop", *options]


def _procrastinate(name: str, folder: Path) -> list[str]:
    return ["-m", "procrastinate", f"--app={PROGRAMS}.with_procrastinate.app", "worker", f"--name={name}"]


def _pgqueuer(name: str, folder: Path) -> list[str]:
    told = {"phase": "work", "broker": "", "name": name, "folder": str(folder)}
    return ["-m", f"{PROGRAMS}.with_pgqueuer", json.dumps(told)]


def _oban(name: str, folder: Path) -> list[str]:
    options = ["--config", str(folder / "oban.toml"), "--cron-modules", f"{PROGRAMS}.with_oban", "--log-level=WARNING"]
    return ["-m", "oban", "start", *options]


def _celery(name: str, folder: Path) -> list[str]:
    options = [f"--concurrency={PLACES}", "-n", f"{name}@%h", "--loglevel=WARNING"]
    return ["-m", "celery", "-A", f"{PROGRAMS}.with_celery", "worker", *options]


CONTENDERS = (
    Contender(
        "octop",
        _octop,
        "none but more retries",
        "after 35 s",
        ("docs/explanation/guarantees.md",),
        runs_in="children",
    ),
    Contender(
        "procrastinate",
        _procrastinate,
        f"the periodic task `retry_stalled_jobs` of its documentation, every {SWEEP_SECONDS} s instead of 10 min; `retry` with more attempts",
        "never; with that task as documented, after 10 min 30 s",
        ("https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html",),
    ),
    Contender(
        "pgqueuer",
        _pgqueuer,
        f"`shutdown_on_listener_failure`, `dequeue_timeout` {SWEEP_SECONDS}, `DatabaseRetryEntrypointExecutor` with more attempts",
        "after 60 s",
        (
            "https://pgqueuer.readthedocs.io/en/latest/guides/deployment/",
            "https://pgqueuer.readthedocs.io/en/latest/guides/reliability/",
        ),
    ),
    Contender(
        "oban",
        _oban,
        f"`oban start`; `lifeline` with `interval` {SWEEP_SECONDS} and `rescue_after` {LEASE_SECONDS}; `pool_check`; more attempts",
        "after 6 min, and 1 min more if the leader died",
        ("https://oban.pro/docs/py/production.html", "https://oban.pro/docs/py/job_maintenance.html"),
    ),
    Contender(
        "celery",
        _celery,
        f"Redis with `appendonly yes`; `task_acks_late`, `task_reject_on_worker_lost`, `worker_prefetch_multiplier` 1, `visibility_timeout` {LEASE_SECONDS}, "
        f"`unacked_restore_interval` {SWEEP_SECONDS} with `unacked_restore_throttle` 1, `unacked_mutex_expire` {LEASE_SECONDS}, `worker_cancel_long_running_tasks_on_connection_loss`, "
        "`task_publish_retry_policy` without a limit",
        "never; with `task_acks_late`, after 1 h and 100 s",
        (
            "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html",
            "https://docs.celeryq.dev/en/stable/userguide/configuration.html",
        ),
        transaction=False,
        broker="redis",
        runs_in="children",
    ),
)


def chosen(names: str | None) -> list[Contender]:
    """Return those that are named, separated by commas; None = all.

    Raises:
        ValueError: Nobody is called so.
    """
    by_name = {each.name: each for each in CONTENDERS}
    wanted = list(by_name) if names is None else names.split(",")
    if unknown := [name for name in wanted if name not in by_name]:
        message = f"no contender is called {', '.join(unknown)}; there are {', '.join(by_name)}"
        raise ValueError(message)
    return [by_name[name] for name in wanted]
