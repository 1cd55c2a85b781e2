"""Real worker processes for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.system.apps.running import Starter, prepare


@pytest.fixture
def start(database, tmp_path):
    """Start workers on the database of the test, with a ledger and short leases; all are stopped afterwards."""
    prepare(database)
    starter = Starter(database, tmp_path)
    yield starter
    starter.close()


@pytest.fixture
def rows(database):
    with database.connect() as connection:
        yield connection
