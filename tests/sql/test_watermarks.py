"""Watermarks, on the bent clock: the backlog of one queue holds the non-critical ones, and lets them go; a person's order stays."""

from __future__ import annotations

import pytest

from tests.sql.crew import add_many, column, do, refused, rows, value


@pytest.fixture
def mail(database, dba, operator, hire):
    """A worker of queue mail, with a watermark of 10 and 3, and of two non-critical queues and an ordinary one."""
    database.clock.advance(0)
    worker = hire(queues=["mail", "report", "clean", "shop"])
    do(operator, "update octop_queues set watermark_high = 10, watermark_low = 3 where name = 'mail'")
    do(operator, "update octop_queues set critical = false where name in ('report', 'clean')")
    return worker


def look(database, worker, seconds=5.0):
    database.clock.advance(seconds)
    worker.beat()
    worker.sweep()


def held(dba):
    return column(dba, "select target from octop_holds where cause = 'watermark:mail' order by 1")


def test_non_critical_queues_are_held_while_the_backlog_stands_and_looked_at_after_30_s_1_min_5_min(
    database, dba, mail
):
    add_many(dba, 9, queue="mail")
    add_many(dba, 2, queue="report")
    look(database, mail)
    assert held(dba) == []
    add_many(dba, 1, queue="mail")
    look(database, mail)
    assert held(dba) == ["clean", "report"]
    mail.queues = ["report"]
    assert mail.claim(10) == []
    mail.queues = ["mail"]
    assert mail.succeed(*mail.claim(7)) == []
    add_many(dba, 2, queue="mail")  # above the low mark at each look
    done = 1
    for wait in (30, 60, 300, 300):
        look(database, mail, wait - 1)
        assert value(dba, "select looks from _octop_watermark_looks") == done
        look(database, mail, 1)
        done += 1
        assert value(dba, "select looks from _octop_watermark_looks") == done
        assert held(dba) == ["clean", "report"]
    mail.succeed(*mail.claim(100))
    look(database, mail, 299)
    assert held(dba) == ["clean", "report"]
    look(database, mail, 1)
    assert held(dba) == []
    mail.queues = ["report"]
    assert len(mail.claim(10)) == 2
    assert rows(dba, "select kind, subject, severity from octop_alerts order by id") == [
        ("watermark_reached", "mail", "warning"),
        ("watermark_lifted", "mail", "info"),
    ]


def test_a_persons_hold_of_the_same_queue_stays(database, dba, operator, mail):
    add_many(dba, 10, queue="mail")
    do(operator, "select octop_pause('report', 'mine')")
    look(database, mail)
    assert rows(dba, "select cause from octop_holds where target = 'report' order by 1") == [
        ("order",),
        ("watermark:mail",),
    ]
    assert rows(dba, "select pause_reason from octop_queue_summary where name = 'report'") == [("mine",)]
    mail.queues = ["mail"]
    mail.succeed(*mail.claim(10))
    look(database, mail, 30)
    assert rows(dba, "select target, cause from octop_holds") == [("report", "order")]


def test_what_waits_for_the_future_is_no_backlog(database, dba, mail):
    do(
        dba,
        "insert into octop_tasks (task_type, queue, scheduled_at) select 't', 'mail', _octop_now() + interval '1 day' from generate_series(1, 50)",
    )
    look(database, mail)
    assert held(dba) == []


def test_a_watermark_that_is_taken_back_lets_go(database, dba, operator, mail):
    add_many(dba, 10, queue="mail")
    look(database, mail)
    do(operator, "update octop_queues set watermark_high = null, watermark_low = null where name = 'mail'")
    look(database, mail, 30)
    assert held(dba) == []
    assert rows(dba, "select * from _octop_watermark_looks") == []


def test_a_queue_that_becomes_critical_or_not_while_it_stands_is_let_go_or_held_at_the_next_look(
    database, dba, operator, mail
):
    add_many(dba, 10, queue="mail")
    look(database, mail)
    do(operator, "update octop_queues set critical = true where name = 'report'")
    do(operator, "update octop_queues set critical = false where name in ('shop', 'mail')")
    look(database, mail, 30)
    assert held(dba) == ["clean", "shop"]  # and never the queue itself


def test_one_look_by_two_sweeps_at_once(database, dba, mail, hire):
    add_many(dba, 10, queue="mail")
    other = hire(queues=["mail"])
    look(database, mail, 0)
    do(dba, "update _octop_watermark_looks set next_at = '-infinity', looks = 0; delete from octop_holds")
    do(mail.connection, "begin")
    mail.sweep()
    other.sweep()  # neither waits nor does it twice
    assert held(dba) == []
    do(mail.connection, "commit")
    assert held(dba) == ["clean", "report"]
    assert value(dba, "select looks from _octop_watermark_looks") == 1


def test_watermarks_out_of_bounds_are_refused_with_the_bounds(dba, operator, mail):
    for change, said in (
        ("watermark_high = 0", "1 to 100000000, not 0"),
        ("watermark_high = 5, watermark_low = 5", "watermark_low must be 0 to watermark_high - 1 (4), not 5"),
        ("watermark_high = null, watermark_low = 5", "there is none"),
        ("watermark_low = -1", "not -1"),
    ):
        assert said in refused("OC113", operator, f"update octop_queues set {change} where name = 'mail'")
