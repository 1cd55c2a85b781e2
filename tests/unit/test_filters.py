"""The grammar of filters: what is read, what is written back, and what is refused with which words."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octop.engine.selection import selection
from octop.model.errors import InvalidFilterError
from octop.model.filter_values import (
    BY_NAME,
    KEYS,
    Comparison,
    Condition,
    Day,
    Equal,
    Filter,
    Moment,
    Number,
    Range,
    Text,
)
from octop.model.filters import exactly, parse, parse_words, render, render_words, since
from octop.model.task import Status
from tools import filters_page

NOW = datetime(2030, 1, 31, 15, 30, tzinfo=UTC)


def values(text, now=NOW):
    """Return what is sent to the database, without what is null."""
    found = {name: value for name, value in selection(parse(text), now).values.items() if value is not None}
    return found | ({"others": json.loads(str(found["others"]))} if "others" in found else {})


# --- reading ----------------------------------------------------------------------------------------------------------


def test_the_example_of_the_readme_is_read():
    text = "status:failed queue:mail type:send_* tag:vip payload.user.id:42 created:>-1h"
    assert [(each.key, each.path) for each in parse(text).conditions] == [
        ("status", ()),
        ("queue", ()),
        ("type", ()),
        ("tag", ()),
        ("payload", ("user", "id")),
        ("created", ()),
    ]
    assert render(parse(text)) == text


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_takes_its_examples_and_is_known_by_its_other_names(key):
    for text in key.examples:
        assert {each.key for each in parse(text).conditions} == {key.name}
        assert parse(render(parse(text))) == parse(text)
        for alias in key.aliases:
            assert parse(text.replace(key.name, alias, 1)) == parse(text)
    assert BY_NAME[key.name] is key


def number(text):
    return Number(Decimal(text))


@pytest.mark.parametrize(
    ("word", "test"),
    [
        ("queue:mail", Equal(Text(("mail",)))),
        ("type:send_*", Equal(Text(("send_", "")))),
        ("type:*a**b*", Equal(Text(("", "a", "b", "")))),
        ('type:"a*b"', Equal(Text(("a*b",)))),
        (r"type:a\*b", Equal(Text(("a*b",)))),
        ('lane:""', Equal(Text(("",)))),
        ('queue:"a b:c,d"', Equal(Text(("a b:c,d",)))),
        ("queue:a:b", Equal(Text(("a:b",)))),
        (r'queue:"say \"hi\" \\"', Equal(Text(('say "hi" \\',)))),
        ("queue:>5", Equal(Text((">5",)))),
        ("queue:été邮件", Equal(Text(("été邮件",)))),
        ("id:0199-AA3c*", Equal(Text(("0199aa3c",)))),
        ("priority:3", Equal(number("3"))),
        ("priority:>=3", Comparison(">=", number("3"))),
        ("attempt:3..5", Range(number("3"), number("5"))),
        ("attempt:..5", Range(None, number("5"))),
        ("attempt:3..", Range(number("3"), None)),
        ("payload.a:>2.5", Comparison(">", number("2.5"))),
        ("payload.a:-1..1", Range(number("-1"), number("1"))),
        ("payload.a:1..x", Equal(Text(("1..x",)))),
        ("payload.a:42", Equal(Text(("42",)))),
        ('payload.a:"42"', Equal(Text(("42",), quoted=True))),
        ('payload.a:">2"', Equal(Text((">2",)))),
        ("created:>-1h", Comparison(">", Moment(None, timedelta(hours=-1)))),
        ("created:-1h30m", Equal(Moment(None, timedelta(minutes=-90)))),
        ("scheduled:+2d", Equal(Moment(None, timedelta(days=2)))),
        ("created:<now", Comparison("<", Moment(None))),
        ("created:today", Equal(Day(None))),
        ("completed:yesterday..today", Range(Day(None, -1), Day(None))),
        ("due:>=2030-01-31T09:00:00+08:00", Comparison(">=", Moment(datetime(2030, 1, 31, 1, tzinfo=UTC)))),
        ("due:2030-01-31Z", Equal(Day(datetime(2030, 1, 31, tzinfo=UTC)))),
    ],
)
def test_a_value_is_read_as_its_key_wants_it(word, test):
    (condition,) = parse_words([word]).conditions
    assert condition.tests == (test,)


def test_several_values_are_one_of_and_several_words_are_all_of():
    (status, first, second) = parse("status:failed,frozen tag:a tag:b").conditions
    assert status.tests == (Equal(Text(("failed",))), Equal(Text(("frozen",))))
    assert (first.key, second.key) == ("tag", "tag")


def test_three_ways_to_say_not():
    wanted = Filter((Condition("tag", (Equal(Text(("vip",))),), negated=True),))
    assert parse("-tag:vip") == parse("!tag:vip") == parse("not:tag:vip") == wanted
    assert render(wanted) == "-tag:vip"


def test_a_shell_has_split_the_words_already():
    assert parse_words(["error:connection refused"]) == parse('error:"connection refused"')
    assert parse('  \n queue:"a  b"\tqueue:c\\ d ').conditions == parse_words(["queue:a  b", "queue:c d"]).conditions
    assert parse("") == parse_words([]) == Filter()
    assert not Filter()


def test_options_are_short_forms_of_words():
    assert exactly("queue", 'a"b\\*') == Filter((Condition("queue", (Equal(Text(('a"b\\*',))),)),))
    assert exactly("lane", "") == parse('lane:""')
    assert exactly("queue", "a,b", "c") == parse('queue:"a,b",c')
    assert since(5400.5) == parse("created:>-1h30m500ms")
    for wrong in (-1, float("nan"), 1e300):
        with pytest.raises(InvalidFilterError):
            since(wrong)


def test_the_statuses_that_are_left():
    assert parse("queue:a").statuses() == frozenset(Status)
    assert parse("status:f*").statuses() == {Status.FAILED, Status.FROZEN}
    assert parse("status:f* -status:frozen").statuses() == {Status.FAILED}
    assert parse("status:failed status:frozen").statuses() == frozenset()
    assert parse("-status:failed").names("status") is False
    assert parse("status:*").names("status") is True


# --- refusing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "why", "hint"),
    [
        ("failed", "no colon", "Did you mean status:failed?"),
        ("queue", "no colon", "queue:mail"),
        ("mail", "no colon", "key:value"),
        ("status=failed", "no colon", "Did you mean status:failed?"),
        ("task_type==send", "no colon", "Did you mean type:send?"),
        ("payload.user.id=42", "no colon", "Did you mean payload.user.id:42?"),
        ("attempt>=3", "no colon", "Did you mean attempt:>=3?"),
        ("queue!=mail", "no colon", "Did you mean -queue:mail?"),
        ("user=42", "no colon", "key:value"),
        ("01a2b3c4-d5", "no colon", "Did you mean id:01a2b3c4-d5?"),
        ("statsu:failed", "no key 'statsu'", "Did you mean status?"),
        ("Queue:mail", "no key 'Queue'", "Did you mean queue?"),
        ("wombat:1", "no key 'wombat'", "Keys: status, queue, type"),
        (":x", "no key ''", "Keys:"),
        ('"queue":', "no value", 'queue:""'),
        ("status:fialed", "no status 'fialed'", "Did you mean failed?"),
        ("status:failed,x*", "no status 'x*'", "pending, running"),
        ("lane:", "no value", 'lane:""'),
        ("created:", "no value", "In a shell > and < need quotes"),
        ("priority:", "no value", "priority:4.."),
        ("type:a,,b", "missing beside a comma", '""'),
        ("type:a,", "missing beside a comma", '""'),
        ("priority:high", "'high' is no whole number", "1..3"),
        ("priority:2.5", "no whole number", ">3"),
        ("priority:٣", "no whole number", ">3"),
        ("priority:5..1", "the range ends at 1, before its beginning at 5", "help"),
        ("priority:1..2..3", "low..high", "help"),
        ("priority:..", "low..high", "help"),
        ("priority:1e9", "no whole number", "1..3"),
        ("payload:1", "needs a path", "payload.user.id:42"),
        ("payload.a..b:1", "needs a path", "payload.user.id:42"),
        ("payload.a:>x", "'x' is no number", "quoted, it is text"),
        ("queue.a:1", "nothing below queue", "payload, result and meta"),
        ("id:xyz", "hexadecimal", "id:0199aa3c"),
        ("id:" + "0" * 33, "at most 32", "id:"),
        ("created:1h", "'1h' has no direction", "-1h (ago)"),
        ("created:soon", "'soon' is no moment", "today"),
        ("created:2030-02-30T00:00Z", "no moment", "today"),
        ("created:>2030-01-31T09:00:00", "names no zone", "2030-01-31T09:00:00+00:00"),
        ("created:2030-01-31", "names no zone", "2030-01-31Z"),
        ("created:2030-01-31T09:00Z", "exactly this moment", "'>2030-01-31T09:00Z'"),
        ("created:now", "exactly this moment", "now.."),
        ("created:>-99999d", "more than 100 years", "Moments"),
        ("created:>-999999999999d", "more than 100 years", "Moments"),
        ("created:>1999-12-31T00:00Z", "between 2000 and 3000", ""),
        ("created:>0001-01-01T00:00+14:00", "between 2000 and 3000", ""),
        ('queue:"a', "a quote is not closed", '\\"'),
        ("queue:a\\", "a backslash", "twice"),
        ("--queue:a", "negated twice", "one -"),
        ("-!queue:a", "negated twice", "one -"),
        ("queue:a\0b", "NUL", ""),
        ("queue:\udce9", "no UTF-8", ""),
        ("queue:" + "x" * 2000, "2006 characters, more than 2000", ""),
        ("queue:" + "*a" * 21, "at most 20 wildcards", ""),
    ],
)
def test_a_word_that_is_no_condition_is_refused_with_word_reason_and_what_is_near(word, why, hint):
    with pytest.raises(InvalidFilterError) as refused:
        parse_words(["status:failed", word])
    assert refused.value.exit_code == 2
    assert why in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.hint
    if word.isprintable() and len(word) < 80:
        assert f"filter word '{word}'" in refused.value.message
    assert refused.value.message.isprintable()
    refused.value.message.encode()


def test_too_many_words_are_refused():
    assert len(parse_words(["tag:a"] * 100).conditions) == 100
    with pytest.raises(InvalidFilterError, match="at most 100 words, not 101"):
        parse_words(["tag:a"] * 101)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(KEYS).flatmap(lambda key: st.text(max_size=20).map(lambda text: f"{key.name}:{text}")),
        ),
        max_size=3,
    )
)
@example(["payload.:1"])
@example(["created:>"])
@example(["created:>-1h1h1h1h" + "9" * 400 + "h"])
@example(["priority:" + "9" * 500])
@example(["-"])
@example(["not:"])
def test_whatever_is_typed_is_read_and_written_back_or_refused_by_name(words):
    try:
        read = parse_words(words)
    except InvalidFilterError:  # anything else fails the test
        return
    assert parse(render(read)) == read
    selection(read, NOW)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_whatever_is_typed_into_one_field_is_read_or_refused_by_name(text):
    try:
        read = parse(text)
    except InvalidFilterError:
        return
    assert parse(render(read)) == read


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
PATTERNS = st.lists(TEXTS, min_size=1, max_size=4).map(
    lambda parts: Text(
        (parts[0], *(each for each in parts[1:-1] if each), parts[-1]) if len(parts) > 1 else (parts[0],)
    )
)
OFFSETS = st.integers(-(10**15), 10**15).map(lambda us: timedelta(microseconds=us))
MOMENTS = st.one_of(
    OFFSETS.map(lambda offset: Moment(None, offset)),
    st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC)).map(Moment),
    st.sampled_from([Day(None, -1), Day(None, 0), Day(None, 1), Day(datetime(2030, 1, 31, tzinfo=UTC))]),
)
CONDITIONS = st.one_of(
    st.builds(
        Condition,
        st.sampled_from(["queue", "type", "lane", "tenant", "tag", "worker", "error"]),
        st.lists(PATTERNS.map(Equal), min_size=1, max_size=3).map(tuple),
        st.just(()),
        st.booleans(),
    ),
    st.builds(
        Condition,
        st.sampled_from(["payload", "result", "meta"]),
        st.lists(PATTERNS.map(Equal), min_size=1, max_size=2).map(tuple),
        st.lists(TEXTS.filter(bool), min_size=1, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(
        Condition,
        st.sampled_from(["created", "scheduled", "due", "started", "completed"]),
        st.builds(Comparison, st.sampled_from([">", ">=", "<", "<="]), MOMENTS).map(lambda test: (test,)),
        st.just(()),
        st.booleans(),
    ),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(CONDITIONS, max_size=3).map(tuple).map(Filter))
def test_every_filter_can_be_written_and_is_read_back_the_same(built):
    assert parse(render(built)) == built
    assert parse_words(render_words(built)) == built


# --- what is sent to the database -------------------------------------------------------------------------------------


def test_a_status_and_exact_names_are_values_of_their_own():
    assert values("status:failed queue:mail,sms type:a lane:x tenant:t") == {
        "statuses": ["failed"],
        "queue": ["mail", "sms"],
        "type": ["a"],
        "lane": ["x"],
        "tenant": ["t"],
    }
    assert values("queue:a,b queue:b,c") == {"queue": ["b"]}
    assert values("status:failed -status:failed") == {"statuses": []}


def test_moments_are_half_open_bounds_and_several_meet():
    assert values("created:>=-1h created:<now") == {
        "created_from": "2030-01-31T14:30:00+00:00",
        "created_before": "2030-01-31T15:30:00+00:00",
    }
    assert values("created:>-1h") == {"created_from": "2030-01-31T14:30:00.000001+00:00"}
    assert values("created:-1h")["created_before"] == "2030-01-31T15:30:00.000001+00:00"
    assert values("scheduled:+1h")["scheduled_from"] == "2030-01-31T15:30:00+00:00"
    assert values("completed:today") == {
        "completed_from": "2030-01-31T00:00:00+00:00",
        "completed_before": "2030-02-01T00:00:00+00:00",
    }
    assert values("completed:>today") == {"completed_from": "2030-02-01T00:00:00+00:00"}
    assert values("completed:<=yesterday") == {"completed_before": "2030-01-31T00:00:00+00:00"}
    assert values("completed:2030-01-31+08:00")["completed_from"] == "2030-01-31T00:00:00+08:00"
    assert values("created:>=-2h created:>=-1h")["created_from"] == "2030-01-31T14:30:00+00:00"


def test_an_id_is_a_range():
    assert values("id:0199aa") == {"id_from": "0199aa".ljust(32, "0"), "id_to": "0199aa".ljust(32, "f")}
    several = values("id:0199aa3c1,01")
    assert several["others"][0]["pattern"] == "^(?:0199aa3c-1.*|01.*)$"
    assert several["id_from"] == "01".ljust(32, "0")


@pytest.mark.parametrize(
    "text",
    ["a.b", "a+b", "(a)", "[a]", "{a}", "a|b", "^a$", "a\\b", "a?", "%_", "'; drop table x; --", "a\nb", "$$", "é*"],
)
def test_nothing_but_a_wildcard_means_anything_in_a_pattern(text):
    (other,) = values(render(Filter((Condition("tag", (Equal(Text((text,))),)),))))["others"]
    assert re.search(other["pattern"], text)
    for wrong in (f"{text}x", f"x{text}", text[:-1], "axb", "ab"):
        assert not re.search(other["pattern"], wrong)
    (within,) = values(render(Filter((Condition("error", (Equal(Text((text,))),)),))))["others"]
    assert re.search(within["pattern"], f"so {text.upper()} it is", re.DOTALL)


def test_the_page_of_filters_is_what_the_parser_says():
    assert filters_page.PAGE.read_text() == filters_page.page(), "python tools/filters_page.py writes it again"
