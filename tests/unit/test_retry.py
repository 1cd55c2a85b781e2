import datetime as dt

import pytest

from octop import RetryPolicy
from octop.model.errors import InvalidOptionError
from octop.model.retry import checked_retry, exception_name


class OwnError(Exception):
    pass


def test_what_is_not_set_is_left_to_the_engine():
    assert RetryPolicy().as_json() == {}
    assert RetryPolicy(base=0).as_json() == {"base": 0}


def test_a_policy_becomes_the_data_that_sql_reads():
    policy = RetryPolicy(
        base=dt.timedelta(seconds=2), growth=3, cap=60, jitter=0.5, final=(ValueError, OwnError, "a.B")
    )
    assert policy.as_json() == {
        "base": 2.0,
        "growth": 3,
        "cap": 60,
        "jitter": 0.5,
        "final": ["ValueError", f"{__name__}.OwnError", "a.B"],
    }
    assert RetryPolicy(delays=[1, dt.timedelta(minutes=1)], final=["KeyError"]).as_json() == {
        "delays": [1, 60.0],
        "final": ["KeyError"],
    }


def test_a_list_of_delays_is_a_policy():
    assert checked_retry([1, 5, 30]) == {"delays": [1, 5, 30]}
    assert checked_retry(None) is None
    assert checked_retry(RetryPolicy()) is None


@pytest.mark.parametrize(
    "options",
    [
        {"base": -1}, {"base": "1"}, {"base": True}, {"base": float("inf")}, {"cap": 32 * 86_400},
        {"growth": 0}, {"growth": 101}, {"jitter": 1.5}, {"jitter": float("nan")},
        {"delays": []}, {"delays": [1] * 101}, {"delays": "12"}, {"delays": [1, -1]}, {"delays": [None]},
        {"delays": [1], "base": 1}, {"final": "ValueError"}, {"final": [1]}, {"final": [int]}, {"final": ["not a name"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_that_could_not_be_computed_is_refused(options):
    with pytest.raises(InvalidOptionError):
        RetryPolicy(**options)


def test_a_number_is_no_policy_and_the_message_names_max_retries():
    with pytest.raises(InvalidOptionError, match="max_retries"):
        checked_retry(3)


def test_built_in_exceptions_are_named_without_their_module():
    assert exception_name(ValueError) == "ValueError"
    assert exception_name(OwnError) == f"{__name__}.OwnError"
