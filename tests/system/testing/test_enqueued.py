"""octop.testing asserts what was enqueued, and shows the nearest miss."""

from __future__ import annotations

from datetime import date

import pytest

from octop import Status
from octop.model.errors import InvalidOptionError


def test_assert_enqueued_finds_by_every_field_and_returns_what_fits(place, octop):
    send, report = octop.named("send"), octop.named("report")
    send.using(queue="vip", lane="l", tenant="t", priority=1, tags=["a", "b"], delay=30).enqueue_sync(42, note="x")
    report.enqueue_sync(date(2031, 1, 6))
    (found,) = place.assert_enqueued(
        send, payload={"user_id": 42}, queue="vip", lane="l", tenant="t", priority=1, tags=["a"], within=30, count=1
    )
    assert (found.payload, found.status) == ({"user_id": 42, "note": "x"}, Status.PENDING)
    assert 0 < found.due_in_seconds <= 30
    place.assert_enqueued(send, args=(42,), kwargs={"note": "x"})
    place.assert_enqueued("send", payload={"user_id": 42})
    place.assert_enqueued(report, payload={"day": date(2031, 1, 6)})
    place.assert_not_enqueued(send, payload={"user_id": 43})
    assert [task.task for task in place.enqueued()] == ["send", "report"]
    assert [task.task for task in place.enqueued(queue="vip")] == ["send"]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"payload": {"user_id": 43}}, ["payload.user_id is 42, not 43"]),
        ({"args": (42,)}, ["payload.note is there"]),
        ({"payload": {"other": 1}}, ["payload.other is not there, not 1"]),
        ({"queue": "mail", "priority": 4}, ["queue is 'vip', not 'mail'", "priority is 5, not 4"]),
        ({"within": 10}, ["it is due in 0:00:", "not within 0:00:10"]),
        ({"tags": ["c"]}, ["tag 'c' is not there"]),
        ({"count": 2}, ["1 enqueued, not 2: send"]),
    ],
)
def test_assert_enqueued_shows_the_nearest_miss(place, octop, wanted, says):
    octop.named("send").using(queue="vip", delay=30).enqueue_sync(42, note="x")
    octop.named("report").enqueue_sync(date(2031, 1, 6))
    with pytest.raises(AssertionError) as failed:
        place.assert_enqueued(octop.named("send"), **wanted)
    text = str(failed.value)
    for each in says:
        assert each in text
    assert '2 unfinished:\n  send {"note":"x","user_id":42}  queue=vip priority=5 pending, due in 0:00:' in text


def test_messages_for_nothing_at_all_for_a_typing_error_and_for_what_should_not_be(place, octop):
    with pytest.raises(AssertionError, match="Nothing is enqueued. Was the transaction committed"):
        place.assert_enqueued("send")
    octop.named("send").enqueue_sync(1)
    with pytest.raises(AssertionError, match="did you mean send"):
        place.assert_enqueued("sned")
    with pytest.raises(AssertionError, match=r"payload\.user_id is 1, not true"):
        place.assert_enqueued("send", payload={"user_id": True})
    with pytest.raises(AssertionError, match="1 enqueued, not 0: send"):
        place.assert_not_enqueued("send")
    with pytest.raises(InvalidOptionError, match="one or the other"):
        place.assert_enqueued(octop.named("send"), payload={}, args=())
    with pytest.raises(InvalidOptionError, match="need the decorated function"):
        place.assert_enqueued("send", args=())
