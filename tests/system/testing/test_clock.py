"""octop.testing bends the clock of one database, and of no other."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from octop.model.errors import ConfigurationError, InvalidOptionError, InvalidTimeError
from tests.system.testing.asking import NINE, ask


@pytest.mark.all_versions
def test_the_clock_stands_runs_and_goes_back(place, octop):
    before = place.clock.now()
    assert place.clock.freeze(NINE) == NINE == place.clock.now()
    assert place.clock.travel(hours=1, minutes=30) == NINE + timedelta(minutes=90)
    assert place.clock.travel(timedelta(minutes=-90)) == NINE
    octop.named("send").using(at=NINE + timedelta(seconds=1)).enqueue_sync(1)
    assert place.drain() == []
    place.clock.travel(seconds=1)
    assert len(place.drain()) == 1
    place.clock.reset()
    assert timedelta() <= place.clock.now() - before < timedelta(minutes=2)
    ahead = place.clock.travel(days=1)
    assert ahead - before >= timedelta(days=1)
    assert place.clock.now() > ahead, "it runs on"
    assert place.clock.freeze() >= ahead


def test_the_clock_takes_aware_moments_only_and_only_in_a_test_database(place, testing, postgres):
    with pytest.raises(InvalidTimeError, match="naive"):
        place.clock.freeze(datetime(2031, 1, 1))
    for wrong in ({}, {"by": timedelta(1), "hours": 1}, {"fortnights": 1}):
        with pytest.raises(InvalidOptionError):
            place.clock.travel(**wrong)
    from octop.testing import Database

    with pytest.raises(ConfigurationError, match="'octop' can not be moved"):
        Database(postgres.url(), "octop", "public").clock.travel(hours=1)
    with testing.database() as other:
        place.clock.freeze(NINE)
        assert other.clock.now() < NINE, "each database has its own"
        assert ask(other.dsn, "select to_regclass('_octop_test_clock') is null")
