"""Schedules as code declares them: checked where they are written, whichever decorator stands above."""

import importlib
import sys
from datetime import UTC, datetime, timedelta

import pytest

from octop import Context, Octop
from octop.model.errors import (
    InvalidArgumentsError,
    InvalidNameError,
    InvalidOptionError,
    InvalidTaskError,
    InvalidTimeError,
)


@pytest.fixture
def octop():
    return Octop(dsn="postgresql://nowhere.invalid/x")


def declared(app):
    return app.declared_schedules.as_json()


def test_a_schedule_may_stand_above_or_below_its_task(octop):
    @octop.schedule("@daily")
    @octop.task(queue="nightly")
    def above() -> None: ...

    @octop.task
    @octop.schedule("@hourly", name="often")
    @octop.schedule("@every 90s")
    def below() -> None: ...

    assert [(each["name"], each["task_type"], each["rule"]) for each in declared(octop)] == [
        ("above", "above", "@daily"),
        ("below", "below", "@every 90s"),
        ("often", "below", "@hourly"),
    ]
    assert above() is None, "it is still a function"
    assert below() is None


def test_options_become_columns_of_the_same_bounds_as_those_of_tasks(octop):
    starts = datetime(2030, 1, 1, tzinfo=UTC)

    @octop.schedule(
        "0 9 * * MON-FRI",
        name="report",
        tenant="acme",
        timezone="Europe/Berlin",
        queue="q",
        lane="l",
        priority=0,
        max_retries=0,
        timeout=timedelta(minutes=1),
        tags=["a"],
        starts_at=starts,
        ends_at=starts + timedelta(days=1),
        catch_up="all",
        catch_up_max=7,
        overlap="queue",
        jitter=timedelta(seconds=30),
        late_after=5,
        expected=60,
        deadline=timedelta(hours=1),
    )
    @octop.task
    def report() -> None: ...

    assert declared(octop) == [
        {
            "name": "report",
            "tenant": "acme",
            "task_type": "report",
            "rule": "0 9 * * MON-FRI",
            "timezone": "Europe/Berlin",
            "queue": "q",
            "lane": "l",
            "priority": 0,
            "max_retries": 0,
            "timeout_seconds": 60.0,
            "tags": ["a"],
            "starts_at": "2030-01-01T00:00:00+00:00",
            "ends_at": "2030-01-02T00:00:00+00:00",
            "catch_up": "all",
            "catch_up_max": 7,
            "overlap": "queue",
            "jitter_seconds": 30.0,
            "late_after_seconds": 5,
            "expected_seconds": 60,
            "deadline_seconds": 3600.0,
            "payload": {},
        }
    ]


@pytest.mark.parametrize(
    ("rule", "options", "error", "said"),
    [
        ("", {}, InvalidOptionError, "a rule is text"),
        (None, {}, InvalidOptionError, "a rule is text"),
        ("@daily", {"timezone": ""}, InvalidNameError, "timezone has 1 to 200"),
        ("@daily", {"catch_up": "every"}, InvalidOptionError, "catch_up is skip, last or all, not 'every'"),
        ("@daily", {"catch_up_max": 0}, InvalidOptionError, "catch_up_max is a whole number from 1 to 10,000"),
        ("@daily", {"overlap": True}, InvalidOptionError, "overlap is allow, skip or queue"),
        ("@daily", {"jitter": 86_401}, InvalidOptionError, "jitter is from 0 to 1 days"),
        ("@daily", {"jitter": float("nan")}, InvalidOptionError, "jitter is seconds or a timedelta"),
        ("@daily", {"deadline": 0}, InvalidOptionError, "deadline is more than 0"),
        ("@daily", {"late_after": 0}, InvalidOptionError, "late_after is more than 0"),
        ("@daily", {"priority": 10}, InvalidOptionError, "priority is a whole number from 0 to 9"),
        ("@daily", {"name": "x" * 201}, InvalidNameError, "a schedule's name has 1 to 200"),
        ("@daily", {"args": "ab"}, InvalidOptionError, "args is a list"),
        ("@daily", {"kwargs": [1]}, InvalidOptionError, "kwargs is a dict"),
        ("@daily", {"tz": "UTC"}, TypeError, "no option 'tz'"),
        ("@daily", {"time_zone": "UTC"}, TypeError, "did you mean timezone"),
        ("@daily", {"ends_at": datetime(2030, 1, 1)}, InvalidTimeError, "ends_at=2030-01-01T00:00:00 is naive"),
        (
            "@daily",
            {"starts_at": datetime(2030, 1, 2, tzinfo=UTC), "ends_at": datetime(2030, 1, 1, tzinfo=UTC)},
            InvalidOptionError,
            "is not later than",
        ),
    ],
)
def test_what_can_be_no_schedule_is_refused_where_it_is_written(octop, rule, options, error, said):
    @octop.task
    def job() -> None: ...

    with pytest.raises(error) as caught:
        octop.schedule(rule, **options)(job)
    assert said in str(caught.value)
    assert declared(octop) == [], "nothing half done"


def test_C036_a_naive_start_or_end_is_refused_whatever_the_zone_of_the_process(octop, monkeypatch):
    @octop.task
    def job() -> None: ...

    for zone in ("America/Chicago", "Asia/Kolkata", "UTC"):
        monkeypatch.setenv("TZ", zone)
        with pytest.raises(InvalidTimeError, match="starts_at=2030-01-01T09:00:00 is naive"):
            octop.schedule("@daily", starts_at=datetime(2030, 1, 1, 9))(job)


def test_arguments_are_checked_against_the_function_and_templates_are_left_to_the_slot(octop):
    @octop.schedule("@daily", args=["{{slot.date}}"], kwargs={"most": 5})
    @octop.task
    def report(day: int, most: int, *, loud: bool = False) -> None: ...

    assert declared(octop)[0]["payload"] == {"day": "{{slot.date}}", "most": 5}
    for args, kwargs, said in [
        ([], {}, "needs 'day', 'most'"),
        ([1], {"mots": 1}, "no parameter 'mots'"),
        ([1, 2, 3], {}, "at most 2 positional"),
        (["x", 2], {}, "$.day: an int was expected"),
    ]:
        with pytest.raises(InvalidArgumentsError) as caught:
            octop.schedule("@daily", name="other", args=args, kwargs=kwargs)(report)
        assert said in str(caught.value)


def test_the_context_is_no_argument_of_a_schedule(octop):
    @octop.schedule("@daily", kwargs={"day": "{{slot.date}}"})
    @octop.task
    def report(context: Context, day: str) -> None: ...

    assert declared(octop)[0]["payload"] == {"day": "{{slot.date}}"}


def test_two_schedules_of_one_name_are_refused_and_both_are_named(octop):
    with pytest.raises(InvalidNameError, match="'job' is declared already, for job: @daily"):

        @octop.schedule("@hourly")
        @octop.schedule("@daily")
        @octop.task
        def job() -> None: ...


def test_the_same_name_of_two_tenants_is_two_schedules(octop):
    @octop.schedule("@daily", tenant="a")
    @octop.schedule("@daily", tenant="b")
    @octop.task
    def job() -> None: ...

    assert [each["tenant"] for each in declared(octop)] == ["a", "b"]


def test_a_function_with_a_schedule_that_is_no_task_is_found_when_a_worker_starts(octop):
    @octop.schedule("@daily")
    def forgotten() -> None: ...

    assert len(octop.declared_schedules) == 1
    with pytest.raises(InvalidTaskError, match="forgotten has the schedule '@daily' and is no task"):
        declared(octop)


def test_a_task_of_another_application_is_refused(octop):
    @Octop().task
    def job() -> None: ...

    with pytest.raises(InvalidTaskError, match="a task of another application"):
        octop.schedule("@daily")(job)


def test_a_module_that_is_loaded_again_declares_its_schedules_anew(octop, tmp_path, monkeypatch):
    file = tmp_path / "reloaded_schedules.py"
    source = 'def make(octop):\n    @octop.schedule("{}")\n    @octop.task\n    def job(): ...\n'
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file.write_text(source.format("@daily"))
    module = importlib.import_module("reloaded_schedules")
    module.make(octop)
    file.write_text(source.format("@hourly"))
    module.make(octop)
    assert [each["rule"] for each in declared(octop)] == ["@daily"]
    del sys.modules["reloaded_schedules"]


def test_a_field_that_names_the_lane_names_that_of_a_schedules_tasks_too(octop):
    @octop.schedule("@daily", args=(7,))
    @octop.schedule("@hourly", name="other", args=(7,), lane="mine")
    @octop.task(lane_from="account_id")
    def bill(account_id: int) -> None: ...

    assert [(each["name"], each["lane"]) for each in declared(octop)] == [("bill", "7"), ("other", "mine")]


def test_a_lane_that_would_change_with_the_slot_is_refused(octop):
    @octop.schedule("@daily", args=("{{slot.date}}",))
    @octop.task(lane_from="day")
    def bill(day: str) -> None: ...

    with pytest.raises(InvalidOptionError, match="filled in for each slot"):
        declared(octop)
