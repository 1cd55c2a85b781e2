"""The guards that a run can take out are still where the mutants look for them."""

from __future__ import annotations

import pytest

from tests.system.faults.mutants import MUTANTS, mutate


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_finds_its_guard_and_the_function_still_compiles(database, name):
    with database.connect() as connection:
        mutate(connection, name)
        with pytest.raises(LookupError, match="does not hold once"):
            mutate(connection, name)
