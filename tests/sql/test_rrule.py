"""Calendar rules (RRULE): the days that RFC 5545 says, against a plain count, and what is refused."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from tests.sql.crew import column, refused, value

DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def times(dba, expression, zone="UTC", after="2026-01-01 00:00Z", n=4):
    return column(
        dba,
        "select to_char(t at time zone z, 'YYYY-MM-DD HH24:MI') from (select %s::text as z) q, octop_cron_next_n(%s, z, %s::timestamptz, %s) t",
        zone, expression, after, n,
    )  # fmt: skip


def test_every_second_tuesday_of_the_month_and_every_two_weeks(dba):
    assert times(dba, "RRULE:FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9", n=3) == [
        "2026-01-13 09:00",
        "2026-02-10 09:00",
        "2026-03-10 09:00",
    ]
    fortnight = "DTSTART:20260106T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=TU"
    # by the wall clock: the change of the clocks on March 29 does not move it
    assert times(dba, fortnight, "Europe/Berlin", "2026-03-11Z", 3) == [
        "2026-03-17 09:00",
        "2026-03-31 09:00",
        "2026-04-14 09:00",
    ]
    assert times(dba, fortnight, after="2025-01-01Z", n=1) == ["2026-01-06 09:00"], "not before DTSTART"


def test_the_last_working_day(dba):
    last = "RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=17"
    assert times(dba, last) == ["2026-01-30 17:00", "2026-02-27 17:00", "2026-03-31 17:00", "2026-04-30 17:00"]
    assert times(dba, last, n=100) == times(dba, "0 17 LW * *", n=100)
    assert times(dba, "RRULE:FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", n=2) == ["2026-02-13 00:00", "2026-03-13 00:00"]
    assert times(dba, "RRULE:FREQ=MONTHLY;BYMONTHDAY=-1,1;BYMONTH=2,3", n=4) == [
        f"2026-{day} 00:00" for day in ("02-01", "02-28", "03-01", "03-31")
    ]


def plain(day, start, freq, interval, parts):
    """Tell whether a day is one of the rule's, by RFC 5545; positions are left to the caller."""
    number = {
        "DAILY": lambda d: d.toordinal(),
        "WEEKLY": lambda d: (d.toordinal() - 1) // 7,
        "MONTHLY": lambda d: d.year * 12 + d.month,
        "YEARLY": lambda d: d.year,
    }[freq]
    if (
        day < start
        or (number(day) - number(start)) % interval
        or ("BYMONTH" in parts and day.month not in parts["BYMONTH"])
    ):
        return False
    last = ((day.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1)).day
    fits = True
    if "BYMONTHDAY" in parts:
        fits = day.day in parts["BYMONTHDAY"] or day.day - last - 1 in parts["BYMONTHDAY"]
    if "BYDAY" in parts:
        name = DAYS[day.weekday()]
        nth = f"{(day.day + 6) // 7}{name}"
        fits = fits and any(
            item in (name, nth) or (item == f"-1{name}" and day.day + 7 > last) for item in parts["BYDAY"]
        )
    if "BYDAY" not in parts and "BYMONTHDAY" not in parts and freq != "DAILY":
        fits = day.weekday() == start.weekday() if freq == "WEEKLY" else day.day == start.day
        fits = fits and (freq != "YEARLY" or "BYMONTH" in parts or day.month == start.month)
    return fits


def test_drawn_rules_name_the_days_of_a_plain_count(dba):
    draw = random.Random(55)
    for _ in range(60):
        freq = draw.choice(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
        start = date(2024, 1, 1) + timedelta(days=draw.randrange(900))
        interval = draw.choice([1, 1, 2, 3, 5])
        parts: dict[str, Any] = {}
        if draw.random() < 0.4:
            parts["BYMONTH"] = sorted(draw.sample(range(1, 13), 3))
        if draw.random() < 0.4 and freq != "WEEKLY":
            parts["BYMONTHDAY"] = draw.sample([1, 2, 13, 15, 28, 29, 31, -1, -2, -15], 3)
        if draw.random() < 0.6:
            numbered = freq == "MONTHLY" or (freq == "YEARLY" and "BYMONTH" in parts)
            parts["BYDAY"] = draw.sample(
                [*DAYS, *([*(f"{n}{name}" for n in (1, 2, 5) for name in DAYS), "-1FR", "-1SU"] if numbered else [])], 3
            )
        days = [day for n in range(9 * 365) if plain(day := start + timedelta(days=n), start, freq, interval, parts)]
        if freq == "MONTHLY" and draw.random() < 0.5 and days:
            positions = draw.choice([[-1], [1], [2, -1], [-2]])
            months = {(day.year, day.month) for day in days}
            kept = []
            for year, month in months:
                # of a month that has begun before DTSTART the positions count from its first day
                whole = [
                    d
                    for n in range(31)
                    if (d := date(year, month, 1) + timedelta(days=n)).month == month
                    and plain(
                        d,
                        min(start, d),
                        freq,
                        1,
                        parts | ({} if {"BYDAY", "BYMONTHDAY"} & parts.keys() else {"BYMONTHDAY": [start.day]}),
                    )
                ]
                kept += [
                    whole[p - 1 if p > 0 else p]
                    for p in positions
                    if -len(whole) <= (p - 1 if p > 0 else p) < len(whole)
                ]
            days = sorted({day for day in kept if day >= start})
            parts["BYSETPOS"] = positions
        text = f"DTSTART:{start:%Y%m%d}T083000 RRULE:FREQ={freq};INTERVAL={interval}" + "".join(
            f";{key}={','.join(map(str, found))}" for key, found in parts.items()
        )
        expected = days[:50]
        if not expected:
            continue
        found = column(
            dba,
            "select t at time zone 'UTC' from octop_cron_next_n(%s, 'UTC', '2023-01-01Z', %s) t",
            text,
            len(expected),
        )
        assert found == [datetime(day.year, day.month, day.day, 8, 30) for day in expected], text


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("RRULE:FREQ=HOURLY", "allowed is DAILY, WEEKLY, MONTHLY or YEARLY"),
        ("RRULE:BYDAY=MO", "FREQ="),
        ("RRULE:FREQ=DAILY;COUNT=5", "the end belongs to the schedule"),
        ("RRULE:FREQ=DAILY;UNTIL=20300101T000000Z", "the end belongs to the schedule"),
        ("RRULE:FREQ=DAILY;BYWEEKNO=3", "known, each once"),
        ("RRULE:FREQ=DAILY;FREQ=DAILY", "known, each once"),
        ("RRULE:FREQ=DAILY;BYHOUR=24", "allowed is 0 to 23"),
        ("RRULE:FREQ=DAILY;BYHOUR=-1", "allowed is 0 to 23"),
        ("RRULE:FREQ=DAILY;BYHOUR=", "BYHOUR"),
        ("RRULE:FREQ=DAILY;BYMONTH=0", "allowed is 1 to 12"),
        ("RRULE:FREQ=MONTHLY;BYMONTHDAY=0", "-1 to -31 from the end"),
        ("RRULE:FREQ=MONTHLY;BYDAY=MON", "allowed is MO"),
        ("RRULE:FREQ=MONTHLY;BYDAY=6MO", "1MO to 5MO"),
        ("RRULE:FREQ=MONTHLY;BYDAY=-2MO", "-1MO for the last"),
        ("RRULE:FREQ=WEEKLY;BYDAY=1MO", "goes with FREQ=MONTHLY"),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO;BYMONTHDAY=1", "not with FREQ=WEEKLY"),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO;WKST=SU", "allowed is MO"),
        ("RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", "counts from a day"),
        ("RRULE:FREQ=WEEKLY", "counts from a day"),
        ("RRULE:FREQ=YEARLY;BYMONTH=3", "counts from a day"),
        ("RRULE:FREQ=DAILY;INTERVAL=0", "allowed is 1 to 999"),
        ("RRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=1;BYHOUR=1,2", "one time of the day"),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO;BYSETPOS=1", "goes with FREQ=MONTHLY"),
        ("DTSTART:20260230T000000 RRULE:FREQ=DAILY", "no such day or time"),
        ("DTSTART:20260201T250000 RRULE:FREQ=DAILY", "no such day or time"),
        ("DTSTART:20260201T000000Z RRULE:FREQ=DAILY", "without Z"),
        ("DTSTART:20260201T000000", "is no calendar rule"),
        ("RRULE:", "is no calendar rule"),
        ("RRULE:FREQ=DAILY RRULE:FREQ=DAILY", "is no calendar rule"),
    ],
)
def test_what_is_not_taken_is_refused_with_its_name(dba, expression, says):
    assert says in refused("OC128", dba, "select octop_cron_check(%s)", expression)


def test_what_can_never_fire_is_refused(dba):
    for rule in (
        "RRULE:FREQ=MONTHLY;BYMONTHDAY=30;BYMONTH=2",
        "DTSTART:20250101 RRULE:FREQ=YEARLY;INTERVAL=2;BYMONTH=2;BYMONTHDAY=29",
    ):
        assert "names no day" in refused("OC129", dba, "select octop_cron_check(%s)", rule)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            "RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=17",
            "At 17:00 on Monday to Friday, of these days the last of each month. ",
        ),
        (
            "DTSTART:20260106T090000 RRULE:FREQ=WEEKLY;INTERVAL=2",
            "At 09:00 on Tuesday, every 2 weeks, from 2026-01-06 09:00 on. ",
        ),
        ("RRULE:FREQ=DAILY;BYHOUR=6", "At 06:00 every day. "),
    ],
)
def test_rules_are_told_in_english(dba, expression, said):
    assert value(dba, "select octop_cron_explain(%s)", expression).startswith(said)
