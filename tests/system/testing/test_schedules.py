"""octop.testing fires schedules by the clock that a test moves."""

from __future__ import annotations

from datetime import timedelta

from tests.system.testing.asking import NINE


def test_schedules_fire_by_the_moved_clock(place, octop):
    seen = []

    @octop.schedule("0 10 * * *", timezone="UTC", kwargs={"day": "{{slot.date}}"})
    @octop.task
    def daily(day: str) -> None:
        seen.append(day)

    place.clock.freeze(NINE)
    assert place.fire_schedules() == 0, "its first slot is after now"
    place.clock.travel(hours=1)
    assert place.fire_schedules() == 1
    assert place.fire_schedules() == 0
    place.drain()
    assert seen == [NINE.date().isoformat()]
    place.clock.travel(timedelta(days=3))
    assert place.fire_schedules() == 1, "of an outage the last slot"
