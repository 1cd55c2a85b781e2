"""`octop schedules next` and `explain` on a real database: text, JSON, exit codes."""

import json
import re


def test_the_next_times_are_told_by_the_clocks_of_the_zone_and_in_utc(octop):
    printed = octop(
        "schedules", "next", "30 2 * * *", "--timezone", "Europe/Berlin", "-n", 3, "--after", "2026-03-28T00:00Z"
    )
    lines = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]
    assert lines == [
        ["wall time", "offset", "UTC"],
        ["2026-03-28 02:30:00", "+01:00", "2026-03-28 01:30:00+00:00"],
        ["2026-03-29 03:00:00", "+02:00", "2026-03-29 01:00:00+00:00"],
        ["2026-03-30 02:30:00", "+02:00", "2026-03-30 00:30:00+00:00"],
    ]


def test_the_next_times_as_json(octop):
    assert octop.json(
        "schedules", "next", "0 9 * * MON", "-z", "America/St_Johns", "-n", 1, "--after", "2026-01-01T00:00Z"
    ) == [{"at": "2026-01-05T12:30:00+00:00", "wall": "2026-01-05T09:00:00", "offset": "-03:30"}]
    assert len(octop.json("schedules", "next", "* * * * *")) == 5, "from now on, in UTC"


def test_an_expression_is_told_in_english(octop):
    assert octop("schedules", "explain", "0 9 * * TUE#2").startswith("At 09:00 on the second Tuesday of the month.")
    assert json.loads(octop("schedules", "explain", "@daily", "--json"))["means"].startswith("At 00:00 every day.")


def test_what_is_no_schedule_is_a_usage_error_that_names_the_field(octop):
    octop("schedules", "next", "60 * * * *", code=2)
    assert 'the minute field says "60": allowed is 0 to 59' in octop.err
    octop("schedules", "explain", "0 0 31 2 *", code=2)
    assert "never meet" in octop.err
    octop("schedules", "next", "* * * * *", "--timezone", "CET", code=2)
    assert '"CET" is no time zone' in octop.err
    assert "hint: An abbreviation means several things" in octop.err
    for count in (0, 1001):
        octop("schedules", "next", "* * * * *", "-n", count, code=2)
    octop("schedules", "next", "* * * * *", "--after", "2026-01-01", code=2)
    assert "names no zone" in octop.err


def test_the_last_times_before_the_year_10000(octop):
    assert (
        octop.json("schedules", "next", "0 0 31 12 *", "--after", "9998-12-01T00:00Z")[-1]["wall"]
        == "9999-12-31T00:00:00"
    )
    assert octop.json("schedules", "next", "0 0 31 12 *", "--after", "9999-12-31T00:00Z") == []
