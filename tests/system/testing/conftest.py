"""Fixtures of the tests of octop.testing: its server, an application, and a database that the application is pointed at."""

from __future__ import annotations

from datetime import date

import pytest

from octop import Octop
from octop.testing import Server


@pytest.fixture(scope="session")
def testing(postgres):
    """The test databases of this run, on the server of the run."""
    with Server(postgres.url()) as server:
        yield server


@pytest.fixture
def octop():
    made = Octop("postgresql://nobody.invalid/production")

    @made.task(queue="mail", max_retries=2, retry=[60, 600])
    async def send(user_id: int, note: str = "") -> str:
        return f"sent to {user_id}{note}"

    @made.task
    def report(day: date) -> dict[str, date]:
        return {"day": day}

    @made.task(max_retries=1)
    def refuse(number: int) -> None:
        message = f"no {number}"
        raise ValueError(message)

    yield made
    made.close()


@pytest.fixture
def place(testing, octop):
    with testing.database() as made, made.override(octop):
        yield made
