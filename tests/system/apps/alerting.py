"""A task type that freezes with its task, a neighbour, and a hook for alerts that writes into the ledger."""

from __future__ import annotations

import os

import psycopg

from octop import Alert, Octop

octop = Octop()


def write(job: str) -> None:
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        connection.execute("insert into ledger (job, pid) values (%s, %s)", (job, os.getpid()))


@octop.task(queue="q", max_retries=0, freeze_type_on_exhaustion=True)
async def charge() -> None:
    message = "no money"
    raise LookupError(message)


@octop.task(queue="q")
async def note(job: str) -> None:
    write(job)


@octop.task(queue="q", run_in="process")
def reveal() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("OCTOP_ALERT"))


@octop.on_alert
def told(alert: Alert) -> None:
    write(f"told {alert.kind} {alert.subject}")
