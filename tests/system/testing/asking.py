"""What the tests of octop.testing ask PostgreSQL itself."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

NINE = datetime(2031, 1, 6, 9, tzinfo=UTC)


def ask(url, question, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question, values or None).fetchone()
        return row and row[0]


def existing(postgres, pattern):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        return {
            row[0] for row in connection.execute("select datname from pg_database where datname like %s", (pattern,))
        }


def wait_for(url, condition, *values):
    with psycopg.connect(url, autocommit=True, options="-c statement_timeout=20s") as connection:
        for _ in range(2000):
            row = connection.execute(condition, values or None).fetchone()
            if row and row[0]:
                return
            connection.execute("select pg_sleep(0.005)")
    pytest.fail(f"it did not come: {condition}")
