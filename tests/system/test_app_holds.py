"""Holds and alerts by Python, on a real database: what is held and acknowledged, by whom, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from octop.app import Octop
from octop.model.errors import InvalidNameError, InvalidOptionError, InvalidTimeError, NotPermittedError
from tests.sql.crew import add


@pytest.fixture
def app(database):
    app = Octop(database.url)
    yield app
    app.close()


def targets(held):
    return [(each["kind"], each["target"], each["queue"], each["tenant"]) for each in held]


def test_an_application_holds_lists_and_lifts_each_kind_in_both_forms(app, octop, rows, hire):
    add(rows, "greet", queue="mail", lane="a")
    kinds = [
        ("queue", "mail", {}),
        ("task_type", "greet", {}),
        ("tenant", "acme", {}),
        ("lane", "a", {"queue": "mail"}),
        ("lane", "a", {"queue": "mail", "tenant": "acme"}),
    ]
    worker = hire(queues=["mail"], types=["greet"])
    for kind, target, of in kinds:
        assert app.holds.add_sync(kind, target, reason="unpaid", **of) is True
        assert app.holds.add_sync(kind, target, reason="other", **of) is False
    held = app.holds.list_sync()
    assert targets(held) == [(kind, target, of.get("queue", ""), of.get("tenant", "")) for kind, target, of in kinds]
    assert {each["reason"] for each in held} == {"unpaid"}
    # the command sees the same
    assert targets(octop.json("holds", "list")) == targets(held)
    assert worker.claim(1) == []
    for kind, target, of in kinds:
        assert app.holds.lift_sync(kind, target, **of) is True
        assert app.holds.lift_sync(kind, target, **of) is False
    assert app.holds.list_sync() == []
    assert len(worker.claim(1)) == 1

    async def main():
        added = await app.holds.add("tenant", "acme", ends_in=timedelta(hours=2))
        assert await app.holds.add("queue", "mail", ends_at=datetime(2100, 1, 31, tzinfo=UTC))
        held = await app.holds.list()
        lifted = await app.holds.lift("tenant", "acme")
        await app.close_async()
        return added, held, lifted

    added, (tenant, queue), lifted = asyncio.run(main())
    assert (added, lifted) == (True, True)
    assert 7_000 < tenant["ends_in_seconds"] <= 7_200
    assert datetime.fromisoformat(queue["ends_at"]) == datetime(2100, 1, 31, tzinfo=UTC)
    role = rows.execute("select session_user::text").fetchone()[0]
    acts = rows.execute("select action, subject, role from octop_audit where subject = 'acme' order by seq").fetchall()
    assert {each[2] for each in acts} == {role}
    assert len(acts) == 4


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        (("type", "greet"), {}, InvalidOptionError, "kind is one of queue, task_type, tenant, lane, not 'type'"),
        (("tenant", ""), {}, InvalidNameError, "a tenant has 1 to 200 characters"),
        (("queue", 7), {}, InvalidNameError, "a queue is text, not int"),
        (("lane", "a"), {}, InvalidNameError, "a lane is held in a queue"),
        (("tenant", "acme"), {"queue": "mail"}, InvalidOptionError, "only a lane is named with a queue"),
        (("tenant", "acme"), {"ends_in": 0}, InvalidOptionError, "ends_in is more than 0"),
        (("tenant", "acme"), {"ends_in": -1}, InvalidOptionError, "ends_in is from 0 to 3,650 days"),
        (("tenant", "acme"), {"ends_at": datetime(2100, 1, 1)}, InvalidTimeError, "ends_at=2100.* is naive"),
        (("tenant", "acme"), {"ends_at": "2100-01-01"}, InvalidTimeError, "ends_at is an aware datetime, not str"),
        (("tenant", "acme"), {"ends_at": datetime(2001, 6, 1, tzinfo=UTC)}, InvalidTimeError, "has passed"),
        (
            ("tenant", "acme"),
            {"ends_in": 1, "ends_at": datetime(2100, 1, 1, tzinfo=UTC)},
            InvalidOptionError,
            "exclude each other",
        ),
    ],
)
def test_a_bad_hold_is_refused_with_what_and_why_and_nothing_is_held(app, arguments, options, error, says):
    with pytest.raises(error, match=says):
        app.holds.add_sync(*arguments, **options)
    assert app.holds.list_sync() == []


def test_an_application_lists_and_acknowledges_alerts_in_both_forms(app, octop, rows):
    for subject in ("send", "charge", "mail"):
        rows.execute("select _octop_alert('type_frozen', %s, 'error', 'It is frozen.', '{}')", (subject,))
    listed = app.alerts.list_sync()
    assert [each["subject"] for each in listed] == ["mail", "charge", "send"]
    assert app.alerts.ack_sync(listed[0]["id"], listed[1]["id"]) == 2
    assert app.alerts.ack_sync(listed[0]["id"]) == 0
    assert [each["subject"] for each in octop.json("alerts", "list")] == ["send"]
    (acked_by,) = rows.execute("select acked_by from octop_alerts where subject = 'mail'").fetchone()
    assert acked_by == rows.execute("select session_user::text").fetchone()[0]

    async def main():
        count = await app.alerts.ack(every=True)
        left, known = await app.alerts.list(), await app.alerts.list(with_acked=True, limit=2)
        await app.close_async()
        return count, left, len(known)

    assert asyncio.run(main()) == (1, [], 2)
    for ids, every in (((), False), ((1,), True), (("1",), False), ((0,), False)):
        with pytest.raises(InvalidOptionError, match="name the ids|the id of an alert"):
            app.alerts.ack_sync(*ids, every=every)
    with pytest.raises(InvalidOptionError, match="limit is a whole number from 1 to 10,000"):
        app.alerts.list_sync(limit=0)


def test_only_an_operator_holds_and_acknowledges(database):
    viewer = Octop(database.url_as(database.make_role("octop_viewer")))
    assert (viewer.holds.list_sync(), viewer.alerts.list_sync()) == ([], [])
    with pytest.raises(NotPermittedError):
        viewer.holds.add_sync("tenant", "acme")
    with pytest.raises(NotPermittedError):
        viewer.alerts.ack_sync(every=True)
    viewer.close()
    operator = Octop(database.url_as(database.make_role("octop_operator")))
    assert operator.holds.add_sync("tenant", "acme")
    operator.close()
