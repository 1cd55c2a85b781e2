"""Fixtures of the engine's tests: `dba`, a superuser's connection, and `hire`, which registers a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.servers import Database
from tests.sql.crew import Worker, do


@pytest.fixture
def dba(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def hire(database: Database) -> Iterator[Callable[..., Worker]]:
    with contextlib.ExitStack() as stack:

        def hired(**options: Any) -> Worker:
            worker = Worker(stack.enter_context(database.connect("octop_worker")), **options)
            worker.register()
            return worker

        yield hired


@pytest.fixture
def operator(database):
    with database.connect("octop_operator", application_name="desk") as connection:
        yield connection


@pytest.fixture
def empty(empty_database):
    """An empty database as PostgreSQL 15 and newer make it: PUBLIC may not create in the schema public."""
    with empty_database.connect() as connection:
        do(connection, "revoke create on schema public from public")
    return empty_database
