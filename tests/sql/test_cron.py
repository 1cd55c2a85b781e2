"""Cron expressions: the grammar and its refusals, the calendar, changes of the clocks, the end of time. Rules: docs/reference/cron.md."""

from __future__ import annotations

import calendar
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from octop.engine import calls
from octop.engine.call import Call, run
from octop.engine.calls.cron import CronTime
from octop.model import errors
from tests.sql.crew import column, refused, rows, value


def times(dba, expression, zone="UTC", after="2026-01-01 00:00Z", n=5):
    """Return the next times as the zone's clocks show them, with their offset."""
    return column(
        dba,
        "select to_char(t at time zone z, 'YYYY-MM-DD HH24:MI') || case when t at time zone z at time zone z = t then '' else ' first' end"
        " from (select %s::text as z) q, octop_cron_next_n(%s, z, %s::timestamptz, %s) t",
        zone, expression, after, n,
    )  # fmt: skip


def rule(dba, expression):
    return value(dba, "select _octop_cron_parse(%s)", expression)


def same(dba, *expressions):
    return len({tuple(rule(dba, each)) for each in expressions}) == 1


# --- the grammar ------------------------------------------------------------------------------------------------------


def test_C024_zero_seven_and_sun_are_sunday_and_names_have_any_case(dba):
    assert same(dba, "0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "0 0 * * sun", "0 0 * * Sun")
    assert same(dba, "0 0 * * 1", "0 0 * * MON", "0 0 * * mon")
    assert same(dba, "0 0 * * 0", "0 0 * * 0,7", "0 0 * * 7,SUN", "0 0 * * SUN-SUN")
    assert same(dba, "0 0 * JAN *", "0 0 * jan *", "0 0 * 1 *")
    assert times(dba, "0 0 * * 7", n=2) == ["2026-01-04 00:00", "2026-01-11 00:00"]


def test_C024_ranges_of_weekdays_may_end_with_sunday_and_go_over_the_week_with_names(dba):
    assert same(dba, "0 0 * * 1-7", "0 0 * * MON-SUN", "0 0 * * 0-6", "0 0 * * SUN-SAT", "0 0 * * 0-7")
    assert rule(dba, "0 0 * * 1-7")[8] == rule(dba, "0 0 * * *")[8]
    assert same(dba, "0 0 * * 6-7", "0 0 * * SAT-SUN", "0 0 * * SAT,SUN")
    assert same(dba, "0 0 * * FRI-MON", "0 0 * * 5-7,1", "0 0 * * 0,1,5,6")
    assert same(dba, "0 0 * * FRI-MON/2", "0 0 * * 0,5")
    assert same(dba, "0 0 1 NOV-FEB *", "0 0 1 11,12,1,2 *")
    assert times(dba, "0 0 * * FRI-MON", n=5) == [f"2026-01-0{day} 00:00" for day in (2, 3, 4, 5, 9)]


def test_C026_steps_begin_anew_at_the_start_of_each_field_and_end_with_it(dba):
    minutes = [each[-2:] for each in times(dba, "*/7 * * * *", after="2025-12-31 23:59Z", n=10)]
    assert minutes == ["00", "07", "14", "21", "28", "35", "42", "49", "56", "00"]
    assert "minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56" in value(dba, "select octop_cron_explain('*/7 * * * *')")
    assert same(dba, "0 9 * * 2/2", "0 9 * * TUE,THU,SAT")
    assert same(dba, "0 9 * * 1/2", "0 9 * * 1,3,5"), "no stray Sunday"
    assert same(dba, "0 9 * * 7/2", "0 9 * * 0,2,4,6")
    assert same(dba, "5/20 0 * * *", "5-59/20 0 * * *", "5,25,45 0 * * *")
    assert times(dba, "@every 7m", after="2026-01-01 00:50Z", n=3) == [
        "2026-01-01 00:56",
        "2026-01-01 01:03",
        "2026-01-01 01:10",
    ]


@pytest.mark.parametrize(
    ("expression", "field", "said", "allowed"),
    [
        ("*/0 * * * *", "minute", "*/0", "a whole number from 1 on"),
        ("*/100 * * * *", "minute", "*/100", "leaves one value of the range: write 0"),
        ("*/60 * * * *", "minute", "*/60", "write 0"),
        ("0 */24 * * *", "hour", "*/24", "write 0"),
        ("0 0 * * */7", "day of week", "*/7", "write 0"),
        ("50/20 * * * *", "minute", "50/20", "write 50"),
        ("60 * * * *", "minute", "60", "0 to 59"),
        ("61 0 * * * *", "second", "61", "0 to 59"),
        ("0 24 * * *", "hour", "24", "0 to 23"),
        ("-1 * * * *", "minute", "-1", "0 to 59"),
        ("5-1 * * * *", "minute", "5-1", "5-59,0-1"),
        ("0 22-3 * * *", "hour", "22-3", "22-23,0-3"),
        ("0 0 * * 5-1", "day of week", "5-1", "FRI-MON"),
        ("0 0 1 11-2 *", "month", "11-2", "NOV-FEB"),
        ("0 0 0 * *", "day of month", "0", "1 to 31"),
        ("0 0 32W * *", "day of month", "32W", "1W to 31W"),
        ("0 0 L-31 * *", "day of month", "L-31", "L-1 to L-30"),
        ("0 0 L/2 * *", "day of month", "L/2", "without range and step"),
        ("0 0 1 13 *", "month", "13", "1 to 12 or JAN to DEC"),
        ("0 0 1 JANUARY *", "month", "JANUARY", "JAN to DEC"),
        ("0 0 * * 8", "day of week", "8", "0 and 7 are Sunday"),
        ("0 0 * * MOO", "day of week", "MOO", "SUN to SAT"),
        ("0 0 * * MON#6", "day of week", "MON#6", "FRI#1 to FRI#5"),
        ("0 0 * * L", "day of week", "L", "FRIL"),
        ("0 0 * * 1-FRI#2", "day of week", "1-FRI#2", "without range and step"),
        ("1,,2 * * * *", "minute", "1,,2", "between two commas"),
        ("1, * * * *", "minute", "1,", "between two commas"),
        ("*,5 * * * *", "minute", "*,5", "stands alone"),
        ("*/20,50 * * * *", "minute", "*/20,50", "0/20,50"),
        ("0 0 ?,3 * *", "day of month", "?,3", "stands alone"),
        ("? * * * *", "minute", "?", "0 to 59"),
        ("1-2-3 * * * *", "minute", "1-2-3", "two ends"),
        ("1/2/3 * * * *", "minute", "1/2/3", "a step"),
        ("a * * * *", "minute", "A", "0 to 59"),
        ("1.5 * * * *", "minute", "1.5", "0 to 59"),
        ("٣ * * * *", "minute", "٣", "0 to 59"),
        ("99999999999999999999 * * * *", "minute", "99999999999999999999", "0 to 59"),
    ],
)
def test_C026_nonsense_is_refused_with_the_field_the_value_and_what_is_allowed(dba, expression, field, said, allowed):
    text = refused("OC128", dba, "select octop_cron_check(%s)", expression)
    assert f'the {field} field says "{said}": ' in text
    assert allowed in text


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "has no field"),
        ("   ", "has no field"),
        ("*", "has one field"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("TZ=UTC 0 0 * * *", "has 6 fields"),
        ("@reboot", "is no rule"),
        ("@every", "is no rule"),
        ("@every 90", "is no rule"),
        ("@every 5x", "is no rule"),
        ("@every 5s3h", "is no rule"),
        ("@every -5s", "is no rule"),
        ("@every 0s", "0 seconds long"),
        ("@every 3651d", "1 second to 3,650 days"),
        ("@every 1h from noon", "no moment"),
        ("@every 1h from 2030-01-01T00:00", "no moment"),
        ("@every 1h from 2030-02-30T00:00Z", "no moment"),
        ("* " * 300, "at most 500 characters"),
    ],
)
def test_what_is_no_expression_at_all_is_refused(dba, expression, says):
    assert says in refused("OC128", dba, "select octop_cron_check(%s)", expression)
    assert says in refused("OC128", dba, "select octop_cron_next(%s)", expression)


def test_null_is_no_expression_to_keep_and_has_no_next_time(dba):
    assert "cannot be null" in refused("OC128", dba, "select octop_cron_check(null)")
    assert "no time zone" in refused("OC130", dba, "select octop_cron_check('* * * * *', null)")
    assert value(dba, "select octop_cron_next(null)") is None


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 31 2 *",
        "0 0 30 2 *",
        "0 0 30-31 FEB *",
        "0 0 31 4,6,9,11 *",
        "0 0 */25 * MON#3",
        "0 0 L-30 2,4 *",
        "0 0 30W 2 *",
    ],
)
def test_C023_what_can_never_fire_is_refused_when_it_is_checked(dba, expression):
    text = refused("OC129", dba, "select octop_cron_check(%s)", expression)
    assert "day of month" in text
    assert "never meet" in text


def test_each_alias_is_what_it_says(dba):
    for alias, spelt in (
        ("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@ANNUALLY", "0 0 1 1 *"), (" @daily\t", "\t0  0 * * ?\n"),
    ):  # fmt: skip
        assert same(dba, alias, spelt)
    assert same(dba, "0 9 * * *", "0 0 9 * * *", "00 09 ? * ?")


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Foo/Bar",
        "Foo/Bar1",
        "IST",
        "CET",
        "EST",
        "+02",
        "-3",
        "UTC+3",
        "EST5EDT,M3.2.0,M11.1.0",
        "Europe/Berlin ",
        "Etc/GMT+13",
        "local",
    ],
)
def test_what_is_no_time_zone_is_refused(dba, zone):
    assert "time zone" in refused("OC130", dba, "select octop_cron_check('* * * * *', %s)", zone)
    assert zone.strip() in refused("OC130", dba, "select octop_cron_next('* * * * *', %s)", zone)


def test_every_zone_of_the_server_but_abbreviations_is_taken_in_any_case(dba):
    found = rows(dba, "select name, lower(name) from pg_timezone_names where name !~ '^(posix/|right/|SystemV/)'")
    assert len(found) > 400
    odd = {"CET", "EET", "MET", "WET", "EST", "MST", "HST", "Factory", "localtime", "posixrules"}
    names = [name for row in found for name in row if row[0] not in odd]
    assert len(
        column(dba, "select octop_cron_next('0 0 * * *', z, '2026-01-01Z') from unnest(%s::text[]) z", names)
    ) == len(names)


# --- the calendar -----------------------------------------------------------------------------------------------------


def test_C023_february_29_waits_for_its_years_also_over_2100(dba):
    assert [each[:4] for each in times(dba, "0 9 29 2 *", after="2024-02-29 09:00Z")] == [
        "2028",
        "2032",
        "2036",
        "2040",
        "2044",
    ]
    assert [each[:10] for each in times(dba, "0 9 29 2 *", after="2096-03-01Z", n=2)] == ["2104-02-29", "2108-02-29"]
    assert times(dba, "0 9 29 2 *", after="2024-02-29 08:59:59Z", n=1) == ["2024-02-29 09:00"]


def test_C023_day_31_leaves_short_months_out_and_the_last_day_does_not(dba):
    assert [each[5:7] for each in times(dba, "0 0 31 * *", n=7)] == ["01", "03", "05", "07", "08", "10", "12"]
    assert [each[5:10] for each in times(dba, "0 0 L * *", n=12)] == [
        "01-31", "02-28", "03-31", "04-30", "05-31", "06-30", "07-31", "08-31", "09-30", "10-31", "11-30", "12-31",
    ]  # fmt: skip


def test_either_day_is_enough_when_both_are_named_and_a_star_is_no_name(dba):
    assert [each[5:10] for each in times(dba, "0 0 13 * FRI", n=5)] == ["01-02", "01-09", "01-13", "01-16", "01-23"]
    odd_mondays = times(dba, "0 0 */2 * MON", n=4)
    assert [each[5:10] for each in odd_mondays] == ["01-05", "01-19", "02-09", "02-23"]
    assert same(dba, "0 0 */2 * MON", "0 0 */2 * 1")
    assert times(dba, "0 0 1-31/2 * MON", n=3) != odd_mondays[:3]


def nearest_weekday(year, month, day):
    last = calendar.monthrange(year, month)[1]
    if day > last:
        return None
    near = sorted(range(1, last + 1), key=lambda each: (abs(each - day), each != day))
    return next(each for each in near if date(year, month, each).weekday() < 5)


def dom_fits(item, day):
    last = calendar.monthrange(day.year, day.month)[1]
    if item.startswith("*"):
        return item == "*" or day.day % int(item[2:]) == 1
    if item == "L" or item.startswith("L-"):
        return day.day == last - int(item[2:] or 0)
    if item.endswith("W"):
        return day.day == nearest_weekday(day.year, day.month, last if item == "LW" else int(item[:-1]))
    low, _, high = item.partition("-")
    return int(low) <= day.day <= int(high or low)


def dow_fits(item, day):
    number = (day.weekday() + 1) % 7
    if item.startswith("*"):
        return item == "*" or number % int(item[2:]) == 0
    name, _, nth = item.partition("#")
    is_last = name.endswith("L")
    name = name.removesuffix("L")
    if number != (NAMES.index(name) if name in NAMES else int(name) % 7):
        return False
    last = calendar.monthrange(day.year, day.month)[1]
    return day.day + 7 > last if is_last else not nth or (day.day + 6) // 7 == int(nth)


def day_fits(fields, day):
    first = any(dom_fits(item, day) for item in fields[0].split(","))
    second = any(dow_fits(item, day) for item in fields[1].split(","))
    return (first and second) if "*" in "".join(fields) else (first or second)


NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
SOME_DAYS = ["L", "LW", "1W", "15W", "31W", "30W", "2W", "L-1", "L-2", "L-28", "L-30", "1", "5-9", "29", "31", "28-31"]
SOME_WEEKDAYS = [*(f"{name}#{n}" for name in NAMES for n in range(1, 6)), *(f"{name}L" for name in NAMES), "0L", "7#1", "7L", "MON", "5", "6"]  # fmt: skip


def test_the_nearest_weekday_stays_in_its_month(dba):
    # August 1, 2026 is a Saturday, May 31 a Sunday
    assert times(dba, "0 0 1W 8 *", n=1) == ["2026-08-03 00:00"]
    assert times(dba, "0 0 31W 5 *", n=1) == ["2026-05-29 00:00"]
    assert times(dba, "0 0 15W 8,11 *", n=2) == ["2026-08-14 00:00", "2026-11-16 00:00"]


def test_days_of_each_month_are_those_of_a_plain_count(dba):
    """20 years, by trying each day: L, L-n, W, LW, #n, nL, lists of them, and either or both fields."""
    draw = random.Random(7)
    every = [date(2024, 1, 1) + timedelta(days=n) for n in range(20 * 365)]
    for _ in range(30):
        dom = ",".join(draw.sample(SOME_DAYS, draw.randrange(1, 4)))
        dow = ",".join(draw.sample(SOME_WEEKDAYS, draw.randrange(1, 4)))
        fields = draw.choice([(dom, "*"), ("*", dow), (dom, dow), ("*/3", dow), (dom, "*/2")])
        expression = f"0 0 {fields[0]} * {fields[1]}"
        expected = [day for day in every if day_fits(fields, day)][:400]
        if not expected:
            refused("OC129", dba, "select octop_cron_check(%s)", expression)
            continue
        found = column(
            dba,
            "select (t at time zone 'UTC')::date from octop_cron_next_n(%s, 'UTC', '2023-12-31 23:59:59Z', %s) t",
            expression, len(expected),
        )  # fmt: skip
        assert found == expected, expression


# --- changes of the clocks --------------------------------------------------------------------------------------------


def test_C021_a_weekly_job_is_not_lost_in_the_week_of_the_change(dba):
    assert times(dba, "0 8 * * 0", "America/Chicago", "2026-03-07 23:45 America/Chicago", 1) == ["2026-03-08 08:00"]
    assert times(dba, "0 12 * * 0", "Europe/Berlin", "2022-03-24 00:00 Europe/Berlin", 1) == ["2022-03-27 12:00"]


def test_C021_only_the_minute_that_does_not_exist_follows_the_rule(dba):
    assert times(dba, "30 2 * * *", "America/New_York", "2026-03-07 12:00 America/New_York", 2) == [
        "2026-03-08 03:00",
        "2026-03-09 02:30",
    ]
    assert times(dba, "30 1 * * *", "America/New_York", "2026-03-07 12:00 America/New_York", 1) == ["2026-03-08 01:30"]
    assert times(dba, "30 3 * * *", "America/New_York", "2026-03-07 12:00 America/New_York", 1) == ["2026-03-08 03:30"]


@pytest.mark.parametrize(
    ("zone", "days"),
    [("Europe/Berlin", ("2026-03-29", "2026-10-25")), ("America/New_York", ("2026-03-08", "2026-11-01"))],
)
def test_C022_daily_jobs_fire_once_on_both_days_of_change_and_quarters_follow_elapsed_time(dba, zone, days):
    def fires(expression, day):
        return value(
            dba,
            "select count(*) from octop_cron_next_n(%s, %s, (%s || ' ' || %s)::timestamptz - interval '1 s', 110) t where (t at time zone %s)::date = %s::date",
            expression, zone, day, zone, zone, day,
        )  # fmt: skip

    for expression in ("30 1 * * *", "30 2 * * *", "30 3 * * *"):
        assert [fires(expression, day) for day in days] == [1, 1], expression
    assert [fires("*/15 * * * *", day) for day in days] == [92, 100]
    assert [fires("0 * * * *", day) for day in days] == [23, 25]


def test_C022_of_a_time_that_exists_twice_the_first_is_taken(dba):
    assert times(dba, "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00Z", 2) == [
        "2026-10-25 02:30 first",
        "2026-10-26 02:30",
    ]
    # asked in the second pass: that time is over
    assert times(dba, "45 2 * * *", "Europe/Berlin", "2026-10-25 01:30Z", 1) == ["2026-10-26 02:45"]
    assert times(dba, "0 3 * * *", "Europe/Berlin", "2026-10-25 01:30Z", 1) == ["2026-10-25 03:00"]


def test_all_times_in_a_gap_fire_together_right_after_it(dba):
    assert times(dba, "0-59/10 2 * * *", "Europe/Berlin", "2026-03-29 00:00Z", 2) == [
        "2026-03-29 03:00",
        "2026-03-30 02:00",
    ]
    assert times(dba, "15 30 2 * * *", "Europe/Berlin", "2026-03-29 00:00Z", 2) == [
        "2026-03-29 03:00",
        "2026-03-30 02:30",
    ]
    assert times(dba, "30 2,3 * * *", "Europe/Berlin", "2026-03-29 00:59:59Z", 2) == [
        "2026-03-29 03:00",
        "2026-03-29 03:30",
    ]
    # interval-like: what the clocks do not show, does not happen
    assert times(dba, "*/30 2 * * *", "Europe/Berlin", "2026-03-29 00:00Z", 1) == ["2026-03-30 02:00"]


def test_what_the_clocks_repeat_is_seen_also_where_the_next_wall_time_is_far_away(dba):
    found = times(dba, "*/30 2 * * SUN", "Europe/Berlin", "2026-10-25 00:50Z", 3)
    assert found == ["2026-10-25 02:00", "2026-10-25 02:30", "2026-11-01 02:00"]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # half an hour
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00Z", ["2026-10-04 02:30", "2026-10-05 02:15"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00Z", ["2026-04-05 01:45 first", "2026-04-06 01:45"]),
        ("*/15 * * * *", "Australia/Lord_Howe", "2026-04-04 14:44Z", ["2026-04-05 01:45 first", "2026-04-05 01:30", "2026-04-05 01:45", "2026-04-05 02:00"]),
        # midnight does not exist
        ("0 0 * * *", "America/Havana", "2026-03-07 12:00Z", ["2026-03-08 01:00", "2026-03-09 00:00"]),
        ("30 0 * * SUN", "America/Santiago", "2026-09-01 00:00Z", ["2026-09-06 01:00", "2026-09-13 00:30"]),
        ("*/20 1 * * 7", "America/Santiago", "2026-09-06 03:58:59Z", ["2026-09-06 01:00", "2026-09-06 01:20"]),
        # midnight exists twice
        ("0 0 * * *", "America/Havana", "2026-10-31 12:00Z", ["2026-11-01 00:00 first", "2026-11-02 00:00"]),
        # two hours
        ("30 1 * * *", "Antarctica/Troll", "2026-03-28 12:00Z", ["2026-03-29 03:00", "2026-03-30 01:30"]),
        ("30 1 * * *", "Antarctica/Troll", "2026-10-24 12:00Z", ["2026-10-25 01:30 first", "2026-10-26 01:30"]),
        # summer time is the negative one, and ends for Ramadan
        ("30 2 * * *", "Africa/Casablanca", "2026-02-14 12:00Z", ["2026-02-15 02:30 first", "2026-02-16 02:30"]),
        ("30 2 * * *", "Africa/Casablanca", "2026-03-21 12:00Z", ["2026-03-22 03:00", "2026-03-23 02:30"]),
        ("30 1 * * *", "Europe/Dublin", "2026-03-28 12:00Z", ["2026-03-29 02:00", "2026-03-30 01:30"]),
        ("30 1 * * *", "Europe/Dublin", "2026-10-24 12:00Z", ["2026-10-25 01:30 first", "2026-10-26 01:30"]),
        # at a quarter to
        ("0 3 * * *", "Pacific/Chatham", "2026-09-26 12:00Z", ["2026-09-27 03:45", "2026-09-28 03:00"]),
        ("0 3 * * *", "Pacific/Chatham", "2026-04-04 12:00Z", ["2026-04-05 03:00 first", "2026-04-06 03:00"]),
        # a day that was left out
        ("0 12 * * *", "Pacific/Apia", "2011-12-29 12:00Z", ["2011-12-29 12:00", "2011-12-31 00:00", "2011-12-31 12:00"]),
        ("0 0 30 12 *", "Pacific/Apia", "2011-12-01 00:00Z", ["2011-12-31 00:00", "2012-12-30 00:00"]),
        ("0 * 30 12 *", "Pacific/Apia", "2011-12-01 00:00Z", ["2012-12-30 00:00", "2012-12-30 01:00"]),
        ("0 0 * * FRI", "Pacific/Apia", "2011-12-28 00:00Z", ["2011-12-31 00:00", "2012-01-06 00:00"]),
    ],
)  # fmt: skip
def test_zones_with_odd_gaps(dba, expression, zone, after, expected):
    assert times(dba, expression, zone, after, len(expected)) == expected


@pytest.mark.slow
def test_C020_the_next_time_is_later_in_every_zone_also_asked_from_fractions(dba):
    """12 zones, 30 expressions, 400 start points each, near changes of the clocks and anywhere."""
    zones = ["America/Santiago", "Europe/Helsinki", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "Africa/Casablanca",
             "Antarctica/Troll", "Pacific/Apia", "Europe/Dublin", "Pacific/Chatham", "Asia/Tehran", "America/Scoresbysund"]  # fmt: skip
    expressions = [
        f"{minute} {hour} * * {day}"
        for minute in ("*", "*/20", "0", "30", "0-59")
        for hour in ("*", "*/2", "0", "2", "1,3")
        for day in ("*",)
    ]
    expressions += ["* * * * * *", "*/7 30 2 * * *", "0 0 29 2 *", "@every 97s", "0 0 L * SUN"]
    assert len(expressions) == 30
    late = []
    for zone in zones:
        late += rows(
            dba,
            "with rules as materialized (select e, _octop_cron_parse(e) as rule from unnest(%s::text[]) e), starts as materialized ("
            " select '2011-12-29 00:00:00.5+00'::timestamptz + n * interval '11 minutes' as at from generate_series(0, 199) n union all"
            " select '2020-01-01 00:00:00+00'::timestamptz + n * interval '13 days 5:17:33.25' from generate_series(0, 199) n)"
            " select e, at, t from rules, starts, lateral (select _octop_cron_next(rule, %s, at) as t) x"
            " where t is null or t <= at or t <> date_trunc('second', t)",
            expressions, zone,
        )  # fmt: skip
    assert late == []
    assert len(zones) * len(expressions) * 400 == 144_000


def test_asking_again_and_again_is_the_same_as_asking_for_n(dba):
    for expression, zone in (
        ("30 2 * * *", "Europe/Berlin"),
        ("*/15 * * * *", "America/Havana"),
        ("7 0 * * *", "Pacific/Apia"),
    ):
        at, found = "2026-03-27 00:00Z", []
        for _ in range(8):
            at = value(dba, "select octop_cron_next(%s, %s, %s::timestamptz)", expression, zone, at)
            found.append(at)
        assert column(dba, "select octop_cron_next_n(%s, %s, '2026-03-27 00:00Z', 8)", expression, zone) == found


@pytest.mark.parametrize("session", ["UTC", "America/Havana", "Pacific/Chatham"])
def test_no_setting_of_the_session_has_a_say(dba, session):
    dba.execute(f"set timezone to '{session}'".encode())
    dba.execute("set datestyle to 'German, DMY'; set intervalstyle to 'sql_standard'; set extra_float_digits to -5")
    assert times(dba, "30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC), 2) == [
        "2026-03-29 03:00",
        "2026-03-30 02:30",
    ]
    assert times(dba, "0 0 * * *", "Pacific/Apia", datetime(2011, 12, 29, 12, tzinfo=UTC), 2) == [
        "2011-12-31 00:00",
        "2012-01-01 00:00",
    ]
    assert rule(dba, "@every 2w from 2030-01-07T09:00:00+01:00") == [3, 1209600, 1893456000 + 6 * 86400 + 8 * 3600]


# --- intervals --------------------------------------------------------------------------------------------------------


def test_an_interval_is_counted_from_1970_or_from_its_anchor_and_knows_no_clocks(dba):
    assert times(dba, "@every 90s", after="2026-01-01 00:00:01Z", n=3) == [
        "2026-01-01 00:01",
        "2026-01-01 00:03",
        "2026-01-01 00:04",
    ]
    fortnight = "@every 2w from 2026-01-06T09:00:00+00:00"
    assert times(dba, fortnight, after="2025-01-01Z", n=3) == [
        "2026-01-06 09:00",
        "2026-01-20 09:00",
        "2026-02-03 09:00",
    ]
    assert times(dba, "@every 1h", "Europe/Berlin", "2026-10-24 23:30Z", 3) == [
        "2026-10-25 02:00 first",
        "2026-10-25 02:00",
        "2026-10-25 03:00",
    ]
    assert value(dba, "select octop_cron_next('@every 1h', 'UTC', '2026-01-01 10:00Z')") == datetime(
        2026, 1, 1, 11, tzinfo=UTC
    )
    assert rule(dba, "@EVERY 1w2d3h4m5s") == [3, 788645, 0]


# --- the end of time, and asking for too much -------------------------------------------------------------------------


def test_time_ends_with_the_year_9999_and_begins_with_the_year_1(dba):
    for expression in ("* * * * *", "0 0 31 12 *", "@every 90s", "0 0 L * *"):
        assert value(dba, "select octop_cron_next(%s, 'UTC', 'infinity')", expression) is None
        assert value(dba, "select octop_cron_next(%s, 'UTC', '9999-12-31 23:59:59Z')", expression) is None
        assert value(dba, "select octop_cron_next(%s, 'UTC', '-infinity') is not null", expression)
    assert times(dba, "0 0 * * *", "Pacific/Kiritimati", "9999-12-29 10:00Z", 5) == ["9999-12-31 00:00"]
    assert times(dba, "0 * * * *", "Pacific/Honolulu", "9999-12-31 22:00Z", 5) == ["9999-12-31 13:00"], "in UTC, too"
    assert (
        value(dba, "select count(*) from octop_cron_next_n('0 0 1 1 *', 'Europe/Berlin', '9000-06-01Z', 1000)") == 999
    )


def test_times_that_can_be_told_at_once_are_bounded(dba):
    for n in (0, -1, 1001):
        assert "1 to 1,000" in refused("OC131", dba, "select octop_cron_next_n('* * * * *', 'UTC', now(), %s)", n)


def test_next_counts_from_now_in_utc_unless_told_otherwise(database, dba):
    database.clock.set("2026-05-05 12:34:56.789Z")
    assert value(dba, "select octop_cron_next('0 0 * * *')") == datetime(2026, 5, 6, tzinfo=UTC)
    assert value(dba, "select count(*) from octop_cron_next_n('0 0 * * *')") == 5


@pytest.mark.parametrize("role", ["producer", "worker", "viewer", "operator"])
def test_every_role_may_ask(database, role):
    with database.connect(f"octop_{role}") as connection:
        assert value(connection, "select octop_cron_next('0 0 1 1 *', 'UTC', '2026-05-05Z')") == datetime(
            2027, 1, 1, tzinfo=UTC
        )
        assert value(connection, "select octop_cron_explain('@daily')").startswith("At 00:00 every day.")


def test_the_same_from_python(dba):
    at = "2026-03-28T12:00:00+00:00"
    first = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert run(dba, calls.octop_cron_next("30 2 * * *", "Europe/Berlin", at)) == first
    assert run(dba, calls.octop_cron_next("30 2 * * *", "Europe/Berlin", "infinity")) is None
    assert run(dba, calls.octop_cron_next("* * * * *")) is not None
    times = run(dba, calls.octop_cron_next_n("30 2 * * *", "Europe/Berlin", at, 2))
    assert times[0] == CronTime(first, "2026-03-29T03:00:00", 7200)
    assert run(dba, calls.octop_cron_explain("@daily")).startswith("At 00:00 every day.")
    run(dba, calls.octop_cron_check("@daily", "Europe/Berlin"))
    refusals: tuple[tuple[Call[Any], type[errors.OctopError]], ...] = (
        (calls.octop_cron_check("61 * * * *"), errors.InvalidCronError),
        (calls.octop_cron_explain("0 0 31 2 *"), errors.NeverFiresError),
        (calls.octop_cron_next("* * * * *", "CET"), errors.UnknownTimeZoneError),
        (calls.octop_cron_next_n("* * * * *", n=0), errors.InvalidCountError),
    )
    for call, error in refusals:
        with pytest.raises(error) as refusal:
            run(dba, call)
        assert isinstance(refusal.value, errors.InvalidScheduleError)


# --- in words ---------------------------------------------------------------------------------------------------------

WALL = " A time that the clocks skip is due right after the gap, one that they repeat the first time only."
ELAPSED = " Where the clocks change it follows elapsed time."


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("* * * * *", "Every minute." + ELAPSED),
        ("*/15 9-17 * * MON-FRI", "Every 15 minutes in the hours 9 to 17 on Monday to Friday." + ELAPSED),
        ("*/10 * * * * *", "Every 10 seconds." + ELAPSED),
        ("5 * * * * *", "At second 5 of every minute every day." + ELAPSED),
        ("@hourly", "At minute 0 of every hour every day." + ELAPSED),
        ("0 9 * * *", "At 09:00 every day." + WALL),
        ("30 0 9 * * *", "At 09:00:30 every day." + WALL),
        ("0,30 9,17 * * 1,3,5", "At 09:00, 09:30, 17:00 and 17:30 on Monday, Wednesday and Friday." + WALL),
        ("0 0 L * *", "At 00:00 on the last day of the month." + WALL),
        ("0 9 LW * *", "At 09:00 on the last weekday of the month." + WALL),
        ("0 9 15W,L-2 * *", "At 09:00 on 2 days before the last and the weekday nearest to day 15 of the month." + WALL),
        ("0 9 * * TUE#2", "At 09:00 on the second Tuesday of the month." + WALL),
        ("0 9 * 3 FRIL", "At 09:00 on the last Friday of the month in March." + WALL),
        ("0 0 13 * FRI", "At 00:00 on day 13 of the month, and on Friday." + WALL),
        ("0 0 */10 * MON", "At 00:00 on days 1, 11, 21 and 31 of the month, if that is Monday." + WALL),
        ("0 0 1,15 NOV-JAN *", "At 00:00 on days 1 and 15 of the month in January, November and December." + WALL),
        ("0 0 * * SAT-SUN", "At 00:00 on Saturday and Sunday." + WALL),
        ("0 0 1 * 0-6", "At 00:00 every day." + WALL),
        ("@every 1h30m", "Every 1 hour and 30 minutes of elapsed time, counted from 1970-01-01 00:00:00 UTC; changes of the clocks do not matter."),
    ],
)  # fmt: skip
def test_expressions_are_told_in_english(dba, expression, said):
    assert value(dba, "select octop_cron_explain(%s)", expression) == said
