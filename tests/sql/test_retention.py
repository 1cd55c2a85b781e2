"""Retention by status and queue: whole days where nothing must be kept, bounded steps where something must."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.crew import add, column, do, refused, rows, value
from tests.sql.test_days import PARTITIONS, name_of


@pytest.fixture
def history(database, dba, hire):
    """Make one finished task of each kind today: by queue and status, its id."""
    database.clock.advance(0)
    worker = hire(queues=("mail", "bulk"))

    def make(queue: str, status: str, count: int = 1) -> list[str]:
        ids = [add(dba, queue=queue) for _ in range(count)]
        if status == "cancelled":
            do(dba, "select octop_cancel_many(%s::uuid[])", ids)
            return ids
        worker.beat()
        worker.succeed(*worker.claim(count))
        return ids

    return make


def passes(database, dba, days: int) -> None:
    """Let days pass, one at a time, with a few rounds of upkeep on each."""
    for _ in range(days):
        database.clock.advance(days=1)
        upkeep(database, dba)


def upkeep(database, dba, most: int = 20000, rounds: int = 3) -> None:
    for _ in range(rounds):
        database.clock.advance(601)
        do(dba, "select octop_upkeep(%s)", most)


def left(dba) -> list[tuple[str, str, int]]:
    return rows(dba, "select queue, status, count(*) from octop_tasks group by 1, 2 order by 1, 2")


def drift(dba) -> list[tuple[object, ...]]:
    """What a recount finds wrong."""
    return rows(dba, "select * from octop_recount()")


def test_what_is_kept_shorter_goes_before_its_day_and_the_rest_with_it(database, dba, history):
    history("mail", "success", 3)
    history("mail", "cancelled", 2)
    do(dba, "select octop_config_set('history.success_days', '2')")
    passes(database, dba, 2)
    assert left(dba) == [("mail", "cancelled", 2), ("mail", "success", 3)]
    passes(database, dba, 1)
    assert left(dba) == [("mail", "cancelled", 2)]
    assert drift(dba) == []
    assert rows(dba, "select action, detail from octop_audit where action in ('clear day', 'drop day')") == [
        ("clear day", {"deleted": 3})
    ]
    passes(database, dba, 5)
    assert left(dba) == []
    assert drift(dba) == []
    assert column(dba, "select status from _octop_counted() where n <> 0") == []


def test_a_queue_has_its_own_number_and_status_goes_before_the_general_setting(database, dba, history):
    for queue in ("mail", "bulk"):
        history(queue, "success", 2)
        history(queue, "cancelled")
    do(dba, "select octop_set_queue('bulk', '{\"keep_success_days\": 1, \"keep_cancelled_days\": 1}')")
    do(dba, "select octop_config_set('history.success_days', '3'), octop_config_set('history.cancelled_days', '5')")
    passes(database, dba, 2)
    assert left(dba) == [("mail", "cancelled", 1), ("mail", "success", 2)]
    passes(database, dba, 2)
    assert left(dba) == [("mail", "cancelled", 1)]
    passes(database, dba, 2)
    assert left(dba) == []
    assert drift(dba) == []


def test_what_is_kept_longer_keeps_its_day_and_no_other(database, dba, history):
    history("bulk", "success", 4)
    history("mail", "success", 2)
    first = database.clock.now()
    database.clock.advance(days=1)
    do(dba, "select octop_make_days()")
    history("bulk", "success", 4)
    do(dba, "select octop_set_queue('mail', '{\"keep_success_days\": 400}')")
    passes(database, dba, 9)
    assert left(dba) == [("mail", "success", 2)]
    now = database.clock.now()
    kept = [name for name in column(dba, PARTITIONS) if name < name_of(now)]
    assert kept[0] == name_of(first)
    assert name_of(first + timedelta(days=1)) not in kept
    assert column(dba, "select octop_days_over(1)") == []
    assert drift(dba) == []
    do(dba, "select octop_set_queue('mail', '{\"keep_success_days\": null}')")
    upkeep(database, dba)
    assert left(dba) == []


def test_days_go_by_their_age_alone_where_nobody_asks_for_more_and_no_task_is_deleted_for_itself(
    database, dba, history
):
    history("mail", "success", 3)
    passes(database, dba, 8)
    assert left(dba) == []
    assert column(dba, "select distinct action from octop_audit where action ~ 'day|purge'") == ["drop day"]
    assert value(dba, "select count(*) from _octop_walks where name <> 'attempts'") == 0


def test_a_number_given_by_hand_overrides_what_is_to_be_kept(database, dba, history):
    history("mail", "success")
    do(dba, "select octop_config_set('history.success_days', '90')")
    database.clock.advance(days=9)
    assert value(dba, "select octop_drop_days()") == 0 or left(dba) != []
    assert left(dba) == [("mail", "success", 1)]
    assert value(dba, "select octop_drop_days(keep_days => 1, most => 100)") > 0
    assert left(dba) == []


def test_a_walk_goes_in_bounded_steps_and_passes_no_row_twice(database, dba, history):
    history("mail", "success", 15)  # kept, and before the others
    history("bulk", "success", 25)
    history("mail", "cancelled", 1)
    do(dba, "select octop_set_queue('bulk', '{\"keep_success_days\": 1}')")
    database.clock.advance(days=2)
    do(dba, "select _octop_plan_walks()")
    steps = [value(dba, "select _octop_clear_history(10)") for _ in range(5)]
    assert steps == [0, 5, 10, 10, 0]
    assert left(dba) == [("mail", "cancelled", 1), ("mail", "success", 15)]
    assert value(dba, "select count(*) from _octop_walks where name <> 'attempts'") == 0
    assert value(dba, "select _octop_plan_walks()") == 0, "counters know that nothing is left to do"
    assert drift(dba) == []


def test_a_locked_row_is_passed_over_and_goes_with_a_later_walk(database, dba, history):
    kept, *_ = history("bulk", "success", 4)
    history("mail", "success")
    do(dba, "select octop_set_queue('bulk', '{\"keep_success_days\": 1}')")
    database.clock.advance(days=2)
    do(dba, "select _octop_plan_walks()")
    with database.connect(autocommit=False) as other:
        do(other, "select from octop_tasks_done where id::text = %s for update", kept)
        assert value(dba, "select _octop_clear_history(100)") == 3
        assert left(dba) == [("bulk", "success", 1), ("mail", "success", 1)]
        other.rollback()
    assert drift(dba) == []
    assert value(dba, "select _octop_plan_walks()") == 1
    assert value(dba, "select _octop_clear_history(100)") == 1
    assert drift(dba) == []


def test_a_walk_stops_deleting_when_somebody_keeps_longer(database, dba, history):
    history("bulk", "success", 6)
    history("mail", "success")
    do(dba, "select octop_set_queue('bulk', '{\"keep_success_days\": 1}')")
    database.clock.advance(days=2)
    do(dba, "select _octop_plan_walks()")
    assert value(dba, "select _octop_clear_history(2)") == 2
    do(dba, "select octop_set_queue('bulk', '{\"keep_success_days\": 30}')")
    assert [value(dba, "select _octop_clear_history(100)") for _ in range(2)] == [0, 0]
    assert left(dba) == [("bulk", "success", 4), ("mail", "success", 1)]
    assert drift(dba) == []


def test_frozen_tasks_stay_for_ever_unless_somebody_says_how_long_and_never_go_from_an_ordered_queue(
    database, dba, hire
):
    database.clock.advance(0)
    worker = hire(queues=("mail", "bulk", "strict"))
    for queue in ("mail", "bulk", "strict"):
        add(dba, queue=queue, max_retries=0, lane="a")
        worker.end(worker.claim_one())
    do(dba, "select octop_set_queue('strict', '{\"ordered\": true}')")
    passes(database, dba, 10)
    assert len(left(dba)) == 3
    do(dba, "select octop_set_queue('mail', '{\"keep_frozen_days\": 400}')")
    do(dba, "select octop_config_set('history.frozen_days', '5')")
    upkeep(database, dba)
    assert left(dba) == [("mail", "frozen", 1), ("strict", "frozen", 1)]
    assert rows(dba, "select subject, detail from octop_audit where action = 'purge frozen'") == [
        ("bulk", {"deleted": 1})
    ]
    assert column(dba, "select queue from octop_attempts order by 1") == ["mail", "strict"]
    assert drift(dba) == []


def test_attempts_stay_as_long_as_their_queue_keeps_tasks_and_are_not_passed_again_and_again(database, dba, hire):
    database.clock.advance(0)
    worker = hire(queues=("mail", "bulk"))
    for queue in ("mail", "bulk"):
        for _ in range(3):
            add(dba, queue=queue, max_retries=1)
            worker.end(worker.claim_one())
    do(dba, "select octop_cancel_many(array(select id from octop_tasks where status = 'failed'))")
    do(dba, "select octop_set_queue('mail', '{\"keep_cancelled_days\": 30}')")
    passes(database, dba, 8)
    assert left(dba) == [("mail", "cancelled", 3)]
    assert column(dba, "select distinct queue from octop_attempts") == ["mail"]
    assert value(dba, "select next_at > _octop_now() from _octop_walks where name = 'attempts'"), "it rests"
    passes(database, dba, 24)
    assert left(dba) == []
    assert value(dba, "select count(*) from octop_attempts") == 0


def test_slots_and_alerts_have_settings_of_their_own(database, dba):
    database.clock.advance(0)
    do(
        dba,
        "insert into octop_alerts (kind, severity, subject, message) values ('worker_lost', 'warning', 'w', 'gone')",
    )
    do(
        dba,
        "insert into octop_schedule_slots (schedule_id, slot, status) values (octop_uuid7(), _octop_now(), 'fired')",
    )
    do(dba, "select octop_config_set('history.alerts_days', '20'), octop_config_set('history.slots_days', '30')")
    counts = "select (select count(*) from octop_alerts), (select count(*) from octop_schedule_slots)"
    for days, expected in ((15, (1, 1)), (10, (0, 1)), (10, (0, 0))):
        database.clock.advance(days=days)
        upkeep(database, dba, rounds=1)
        assert rows(dba, counts) == [expected]


def test_bounds_are_refused_by_function_update_and_setting(dba):
    said = refused("OC113", dba, "select octop_set_queue('mail', '{\"keep_success_days\": 401}')")
    assert "keep_success_days must be a whole number, 1 to 400, not 401" in said
    do(dba, "insert into octop_queues (name) values ('mail')")
    assert "1 to 400, not 0" in refused("OC113", dba, "update octop_queues set keep_cancelled_days = 0")
    refused("OC202", dba, "select octop_config_set('history.success_days', '1.5')")
    do(dba, "select octop_config_set('history.frozen_days', 'null')")
    refused("OC113", dba, "select octop_upkeep(0)")


def test_upkeep_is_all_that_a_role_of_its_own_may_do_besides_the_tick(database, dba):
    name = database.make_role()
    do(dba, f'grant usage on schema public to "{name}"')
    do(dba, f'grant execute on function octop_tick(integer), octop_upkeep(integer) to "{name}"')
    with database.connect(name) as mine:
        assert value(mine, "select folded from octop_upkeep()") == 0
        assert value(mine, "select fired from octop_tick()") == 0
        for other in ("octop_drop_days(1)", "octop_sweep(null)", "octop_recount()", "octop_enqueue('t')"):
            with pytest.raises(Exception, match="permission denied"):
                mine.execute(f"select {other}".encode())
        with pytest.raises(Exception, match="permission denied"):
            mine.execute("select from octop_tasks")


def test_a_purge_that_has_nothing_to_do_opens_no_day_of_history(database, dba, history):
    history("bulk", "success", 5)
    do(dba, "select octop_set_queue('bulk', '{\"keep_success_days\": 30}')")
    upkeep(database, dba)
    opened = (
        "select count(*) from pg_locks l join pg_inherits i on i.inhrelid = l.relation"
        " where l.pid = pg_backend_pid() and i.inhparent = 'octop_tasks_done'::regclass"
    )
    with database.connect(autocommit=False) as mine:
        do(mine, "select _octop_purge(5000), _octop_plan_walks(), octop_drop_days()")
        assert value(mine, opened) == 0
        do(mine, "select from octop_tasks")
        assert value(mine, opened) > 0, "it would have been seen"
        mine.rollback()
