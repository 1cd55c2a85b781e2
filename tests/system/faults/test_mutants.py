"""The guards that a run can take out are still where the mutants look for them."""

from __future__ import annotations

import pytest

from tests.system.apps import everyday
from tests.system.faults.faults import FAULTS, kinds_with
from tests.system.faults.mutants import MUTANTS, mutate, mutated

IN_SQL = [name for name, mutant in MUTANTS.items() if mutant.changes]


@pytest.mark.parametrize("name", IN_SQL)
def test_a_mutant_finds_its_guard_and_the_function_still_compiles(database, name):
    with mutated(database.url, name), database.connect() as connection:
        with pytest.raises(LookupError, match="does not hold once"):
            mutate(connection, MUTANTS[name].changes)


def test_the_mutant_of_the_transaction_keeps_what_is_rolled_back_and_only_while_it_is_there(database):
    def left():
        with database.connect() as rows:
            return rows.execute("select count(*) from octop_tasks").fetchone()[0]

    def roll_back_one():
        with everyday.octop.pointed_at(database.url, "public"), database.connect() as own:
            own.execute("begin")
            everyday.noop.using(connection=own).enqueue_sync()
            own.execute("rollback")

    with mutated(database.url, "transaction"):
        roll_back_one()
        assert left() == 1
    roll_back_one()
    assert left() == 1


@pytest.mark.parametrize("name", MUTANTS)
def test_the_faults_that_lay_a_mutant_open_are_drawn_in_every_run(name):
    assert set(MUTANTS[name].faults) <= FAULTS.keys() & kinds_with().keys()
