"""The next time of a cron expression against cronsim: over 50 zones, 220 expressions, each change of the clocks from 2020 to 2040 and 200,000 drawn moments.

`make test` asks a fixed share of the questions, `make cron-long` all of them. Where cronsim has another rule, the rule has a name in
docs/reference/cron.md and the answer is judged by a slow walk over the zone (tests/sql/cron_oracle.py).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.servers import HOUSE
from tests.sql.crew import column, value
from tests.sql.cron_oracle import (
    AROUND,
    ZONES,
    Calendar,
    cronsim_next,
    difference,
    expressions,
    questions,
    walked_next,
    zone,
    zone_directory,
)

EVERYTHING = os.environ.get("OCTOP_TEST_CRON") == "all"
PARTS = 10
DRAWN = 200_000
SHARE = 1 if EVERYTHING else 61
"""One question of so many is asked; a prime, so that each zone, expression and distance gets some."""
ASKED_AT_ONCE = 25_000

pytestmark = pytest.mark.timeout(3600 if EVERYTHING else 120)
RULES = {
    "wall times with seconds",
    "answers in the past",
    "times that do not exist",
    "leaves out times that exist",
    "never ends",
}


def places(dba):
    directory = zone_directory(value(dba, "select setting from pg_config where name = 'SHAREDIR'"))
    return {name: zone(directory, name) for name in ZONES}


def next_times(dba, asked):
    """Ask for many next times, (expression, zone, seconds since 1970) each, in few statements."""
    found = []
    for begin in range(0, len(asked), ASKED_AT_ONCE):
        expression, name, at = zip(*asked[begin : begin + ASKED_AT_ONCE], strict=True)
        found += column(
            dba,
            "with rules as materialized (select e, _octop_cron_parse(e) as rule from (select distinct e from unnest(%s::text[]) e) x)"
            " select extract(epoch from _octop_cron_next(r.rule, q.zone, to_timestamp(q.at)))::bigint"
            " from unnest(%s::text[], %s::text[], %s::float8[]) with ordinality q (e, zone, at, n) join rules r using (e) order by q.n",
            list(set(expression)), list(expression), list(name), [float(each) for each in at],
        )  # fmt: skip
    return found


def around_changes(place):
    begin, end = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2020, 2041))
    return [at + by for at in place.changes if begin <= at < end for by in AROUND]


def judge(dba, asked, found, where):
    """Compare; return how often each rule of difference was met."""
    calendars = {expression: Calendar(expression) for expression in expressions()}
    met: Counter[str] = Counter()
    wrong = []
    for number, ((expression, name, at), ours) in enumerate(zip(asked, found, strict=True)):
        assert ours > at, (expression, name, at, ours)
        theirs = cronsim_next(expression, at, where[name])
        if theirs == ours and number % 7:
            continue  # where they agree, the slow walk is asked now and then: it must be right, too
        right = walked_next(calendars[expression], at, where[name])
        rule = None if theirs == ours else difference(calendars[expression], at, where[name], theirs, ours)
        if ours != right or (theirs != ours and rule is None):
            wrong.append((expression, name, at, f"ours {ours}, theirs {theirs}, right {right}, rule {rule}"))
        elif rule:
            met[rule] += 1
    assert wrong[:20] == [], f"{len(wrong)} of {len(asked)}"
    return met


def test_there_are_enough_zones_expressions_and_changes(dba):
    where = places(dba)
    assert len(where) >= 40
    assert len(expressions()) >= 200
    assert sum(len(around_changes(place)) for place in where.values()) > 5_000
    assert len(column(dba, "select _octop_cron_parse(e) from unnest(%s::text[]) e", list(expressions()))) == len(
        expressions()
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_around_each_change_of_the_clocks_the_next_time_is_cronsims_but_for_named_rules(dba, part):
    where = places(dba)
    every = [
        (expression, name, at)
        for name in ZONES[part::PARTS]
        for at in around_changes(where[name])
        for expression in expressions()
    ]
    asked = every[part % SHARE :: SHARE]
    assert set(judge(dba, asked, next_times(dba, asked), where)) <= RULES


@pytest.mark.parametrize("part", range(PARTS))
def test_at_drawn_moments_the_next_time_is_cronsims_but_for_named_rules(dba, part):
    draw = random.Random(part)
    where = places(dba)
    count = DRAWN // PARTS // (1 if EVERYTHING else 5)
    asked: list[tuple[str, str, int]] = []
    while len(asked) < count:
        name, expression = draw.choice(ZONES), draw.choice(expressions())
        asked += [(expression, name, at) for at in questions(where[name], 10, draw)]
    assert set(judge(dba, asked, next_times(dba, asked), where)) <= RULES


def test_each_rule_of_difference_is_met_and_stands_in_the_docs(dba):
    where = places(dba)
    names = ["America/Havana", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe"]
    asked = [(e, name, at) for name in names for at in around_changes(where[name])[:24] for e in expressions()]
    # midnight came back at 00:01 there, until 2011
    asked.append(("7 5-25/5 0-4 * NOV 7", "America/St_Johns", 1283536414))
    met = judge(dba, asked, next_times(dba, asked), where)
    assert set(met) == RULES
    text = (HOUSE / "docs/reference/cron.md").read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"*{rule}*" not in text.lower()] == []
