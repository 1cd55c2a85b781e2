"""The sweep: rescue by lease alone, deadlines, parked tasks, counters, purges. Any worker, at any time, bounded."""

from __future__ import annotations

from uuid import uuid4

import pytest

from octop.model import errors
from tests.sql.crew import add, add_many, ages, column, do, rows, task, value
from tests.system.faults.mutants import mutated


@pytest.fixture
def judge(dba, hire):
    worker = hire(queues=["none"], types=["nothing"], name="judge")
    worker.become_judge(dba)
    return worker


def run_out(database, *living, seconds=35, step=5):
    """Let time pass while these workers beat and sweep; return how many tasks they rescued."""
    rescued = 0
    for _ in range(0, seconds, step):
        database.clock.advance(step)
        for worker in living:
            worker.beat()
        for worker in living:
            rescued += worker.sweep().rescued
    return rescued


def test_a_task_of_a_silent_worker_is_back_within_lease_and_sweep_and_one_try_is_used(database, dba, hire, judge):
    database.clock.advance(0)
    task_id = add(dba)
    dead = hire()
    dead.claim_one()
    assert run_out(database, judge, seconds=25) == 0
    assert task(dba, task_id)["status"] == "running"
    assert run_out(database, judge, seconds=5) == 1
    found = task(dba, task_id)
    assert (found["status"], found["retry_count"], found["lost_count"], found["worker_id"]) == ("failed", 1, 1, None)
    assert rows(dba, "select outcome, error_class from octop_attempts") == [("lost", "WorkerLost")]
    assert dead.id in value(dba, "select error_message from octop_attempts")
    assert run_out(database, judge, seconds=20) == 0


def test_C004_a_task_whose_worker_beats_is_never_taken_however_long_it_runs(database, dba, hire, judge):
    database.clock.advance(0)
    task_id = add(dba, timeout_seconds=2678400.0)
    worker = hire()
    claimed = worker.claim_one()
    assert run_out(database, worker, judge, seconds=10 * 30) == 0
    database.clock.advance(days=1)
    worker.beat()
    judge.become_judge(dba)
    assert judge.sweep().rescued == 0
    assert task(dba, task_id)["attempt"] == 1
    assert worker.succeed(claimed) == []


def test_C008_deleting_every_workers_row_hides_no_task(database, dba, hire, judge):
    database.clock.advance(0)
    task_id = add(dba)
    hire().claim_one()  # and is killed
    run_out(database, judge, seconds=10)
    do(dba, "delete from octop_workers")
    assert run_out(database, judge, seconds=45) == 1
    assert task(dba, task_id)["status"] == "failed"


def test_a_running_task_that_nobody_runs_stops_no_sweep_and_comes_back(database, dba, hire, judge):
    """The owner can write into the leaf, past every guard."""
    database.clock.advance(0)
    broken, lost = add(dba), add(dba)
    hire().claim(1)
    do(dba, "update octop_tasks_live set status = 'running', worker_id = null, claim_id = null where id = %s", broken)
    do(dba, "update octop_tasks_live set status = 'running' where id = %s", lost)
    assert run_out(database, judge, seconds=80) == 2
    assert {task(dba, each)["status"] for each in (broken, lost)} == {"failed"}


def test_C008_a_living_worker_whose_row_was_deleted_keeps_its_tasks(database, dba, hire, judge):
    database.clock.advance(0)
    add(dba)
    worker = hire()
    claimed = worker.claim_one()
    do(dba, "delete from octop_workers where id = %s", worker.id)
    judge.sweep()
    assert run_out(database, worker, judge, seconds=60) == 0
    assert worker.succeed(claimed) == []


def test_after_an_outage_nobody_is_condemned_for_a_silence_that_the_judge_shared(database, dba, hire):
    database.clock.advance(0)
    for _ in range(2):
        add(dba, timeout_seconds=36000.0)
    one, two = hire(), hire()
    claimed, _ = one.claim_one(), two.claim_one()
    assert run_out(database, one, two, seconds=60) == 0
    database.clock.advance(600)  # the database was away
    one.beat()
    assert one.sweep().rescued == 0
    one.register()
    assert one.sweep().rescued == 0
    database.clock.advance(5)
    two.beat()
    assert run_out(database, one, two, seconds=60) == 0
    assert one.succeed(claimed) == []


def test_a_judge_needs_one_whole_lease_of_beats_of_its_own(database, dba, hire):
    database.clock.advance(0)
    add(dba, timeout_seconds=36000.0)
    hire().claim_one()
    database.clock.advance(3600)
    young = hire()
    assert young.sweep().rescued == 0
    assert run_out(database, young, seconds=25) == 0
    assert run_out(database, young, seconds=5) == 1
    add(dba)
    other = hire()
    other.claim_one()
    ages(dba, 31, other.id)
    ages(dba, 31, young.id)  # silent itself
    assert young.sweep().rescued == 0


def test_a_judge_without_a_lease_of_beats_would_condemn_for_a_silence_that_it_shared(database, dba, hire):
    """What the test above is worth: with this guard taken out it fails."""
    database.clock.advance(0)
    add(dba, timeout_seconds=36000.0)
    hire().claim_one()
    database.clock.advance(3600)
    with mutated(database.url, "judge"):
        assert hire().sweep().rescued == 1


def test_a_stranger_cannot_judge(database, dba, hire):
    database.clock.advance(0)
    add(dba)
    worker = hire()
    worker.claim_one()
    database.clock.advance(3600)
    assert rows(worker.connection, "select rescued from octop_sweep(%s)", uuid4()) == [(0,)]


def test_C011_ten_thousand_running_tasks_do_not_hide_five_orphans_behind_them(dba, hire, judge):
    add_many(dba, 10_500)
    living = hire()
    assert len(living.claim(10_000)) + len(living.claim(500)) == 10_500
    add_many(dba, 5)
    dead = hire()
    orphans = {each.id for each in dead.claim(5)}
    ages(dba, 31, dead.id)
    assert judge.sweep().rescued == 5
    assert set(column(dba, "select id::text from octop_tasks where status <> 'running'")) == orphans


def test_thousands_of_orphans_come_back_by_bounded_sweeps(dba, hire, judge):
    add_many(dba, 6_000)
    dead = hire()
    dead.claim(6_000)
    ages(dba, 31, dead.id)
    assert [judge.sweep().rescued for _ in range(3)] == [5_000, 1_000, 0]


def test_a_locked_row_is_left_to_the_next_sweep_and_holds_up_nobody(database, dba, hire, judge):
    add_many(dba, 3)
    dead = hire()
    held, *_ = dead.claim(3)
    ages(dba, 31, dead.id)
    with database.connect(autocommit=False) as somebody:
        do(somebody, "select from octop_tasks where id = %s for update", held.id)
        assert judge.sweep().rescued == 2
        somebody.rollback()
    assert judge.sweep().rescued == 1


def test_two_sweeps_at_once_do_each_thing_once(database, dba, hire, judge):
    add_many(dba, 10)
    dead, second = hire(), hire(types=["nothing"])
    dead.claim(10)
    second.become_judge(dba)
    ages(dba, 31, dead.id)
    with judge.connection.transaction():
        first = judge.sweep()
        assert second.sweep().rescued == 0
    assert first.rescued == 10
    assert value(dba, "select count(*) from octop_attempts") == 10


def test_a_task_that_its_worker_let_run_far_over_its_deadline_ends_with_a_timeout(database, dba, hire):
    database.clock.advance(0)
    task_id = add(dba, timeout_seconds=5.0, max_retries=0)
    worker = hire()
    claimed = worker.claim_one()
    for seconds, overdue in ((4, 0), (10.9, 0), (0.2, 1)):
        database.clock.advance(seconds)
        worker.beat()
        assert worker.sweep().overdue == overdue
    assert task(dba, task_id)["status"] == "frozen"
    assert rows(dba, "select outcome, error_class from octop_attempts") == [("timeout", "TimeoutError")]
    assert worker.succeed(claimed) == ["lost"]


def test_hundreds_of_overdue_tasks_end_by_bounded_sweeps(database, dba, hire):
    database.clock.advance(0)
    do(dba, "insert into octop_tasks (task_type, timeout_seconds) select 't', 1 from generate_series(1, 700)")
    worker = hire()
    worker.claim(700)
    database.clock.advance(12)
    assert [worker.sweep().overdue for _ in range(3)] == [500, 200, 0]


def test_parked_tasks_come_back_when_their_type_is_known_oldest_first_and_bounded(database, dba, hire):
    add_many(dba, 3_500, "new")
    old = hire(types=["old"])
    while old.exchange(10).parked:
        pass
    assert value(dba, "select count(*) from octop_tasks where status = 'blocked'") == 3_500
    assert old.sweep().unparked == 0
    new = hire(types=["new"])  # registering brings the first thousand
    assert value(dba, "select count(*) from octop_tasks where status = 'blocked'") == 2_500
    assert [new.sweep().unparked for _ in range(3)] == [2_000, 500, 0]
    assert value(dba, "select bool_and(blocked_by is null and attempt = 0 and status = 'pending') from octop_tasks")


def test_a_parked_retry_comes_back_as_a_retry(dba, hire):
    task_id = add(dba, retry_policy='{"delays": [0]}')
    worker = hire()
    worker.end(worker.claim_one())
    do(dba, "delete from octop_workers")
    assert hire(types=["other"]).exchange(5).parked == 1
    hire()
    assert (task(dba, task_id)["status"], task(dba, task_id)["retry_count"]) == ("failed", 1)


def test_a_held_type_is_parked_and_comes_back_when_the_hold_is_lifted(dba, hire):
    add_many(dba, 3)
    worker = hire()
    do(dba, "insert into octop_holds (kind, target) values ('task_type', 't')")
    assert (worker.exchange(5).tasks, worker.sweep().unparked) == ([], 0)
    do(dba, "delete from octop_holds")
    assert worker.sweep().unparked == 3
    assert len(worker.claim(5)) == 3


def test_counters_are_folded_without_changing_what_they_say(dba, hire, judge):
    for _ in range(5):
        add_many(dba, 10)
        worker = hire()
        worker.succeed(*worker.claim(7))
    said = rows(dba, "select * from _octop_counted() order by 1, 2, 3")
    assert value(dba, "select count(*) from _octop_counter_deltas") > 5
    judge.sweep()
    assert value(dba, "select count(*) from _octop_counter_deltas") == 0
    assert rows(dba, "select * from _octop_counted() order by 1, 2, 3") == said


def test_purges_old_attempts_of_tasks_that_are_gone_and_long_dead_workers(database, dba, hire, judge):
    database.clock.advance(0)
    worker = hire()
    kept, gone = add(dba, max_retries=0), add(dba, max_retries=0)
    for _ in range(2):
        worker.end(worker.claim_one())
    do(dba, "select octop_delete(%s)", gone)
    database.clock.advance(days=8)
    judge.become_judge(dba)
    judge.sweep()
    assert column(dba, "select task_id::text from octop_attempts") == [kept]
    assert column(dba, "select id::text from octop_workers") == [judge.id]


def test_a_chore_is_done_once_per_interval(database, dba):
    database.clock.advance(0)
    due = "select _octop_chore_due('x', interval '1 minute')"
    assert [value(dba, due), value(dba, due)] == [True, False]
    database.clock.advance(60)
    with database.connect(autocommit=False) as other:
        assert value(other, due) is True
        assert value(dba, due) is False  # locked: somebody does it
        other.commit()
    assert value(dba, due) is False


def sweeps_with(worker):
    """Sweep, and return what it did and what it said."""
    said = []
    worker.connection.add_notice_handler(lambda each: said.append((each.message_primary, each.message_hint)))
    return worker.sweep(), said


def test_days_that_may_not_be_made_undo_nothing_else_and_the_hint_is_the_cure(database, dba, hire, judge):
    """As after a restore that did not bring along the rights on the schema."""
    database.clock.advance(0)
    add(dba)
    dead = hire()
    dead.claim_one()
    database.clock.advance(days=9)  # days are missing, and one is over
    judge.become_judge(dba)
    ages(dba, 31, dead.id)
    do(dba, "revoke create on schema public from octop_owner")
    swept, ((message, hint),) = sweeps_with(judge)
    assert message == "octop: days of history could not be made: octop_owner may make no day in the schema public"
    assert hint.partition(": ")[2] == "GRANT USAGE, CREATE ON SCHEMA public TO octop_owner;"
    assert swept.rescued == 1
    assert swept.days_dropped > 0
    assert value(dba, "select outcome from octop_attempts") == "lost"
    do(dba, hint.partition(": ")[2])
    database.clock.advance(601)
    swept, said = sweeps_with(judge)
    assert (swept.days_made, said) == (8, [])


def test_a_purge_that_fails_undoes_nothing_else(database, dba, hire, judge):
    add(dba)
    dead = hire()
    dead.claim_one()
    ages(dba, 31, dead.id)
    do(dba, "create or replace function _octop_purge(p_most integer) returns void language sql as 'select 1 / 0'")
    swept, said = sweeps_with(judge)
    assert swept.rescued == 1
    assert said == [("octop: the purge was put off: division by zero", "It is tried again in ten seconds.")]


def test_a_purge_that_takes_longer_than_statements_may_undoes_no_rescue(database, dba, hire, judge):
    add(dba)
    dead = hire()
    dead.claim_one()
    ages(dba, 31, dead.id)
    do(
        dba,
        "create or replace function _octop_purge(p_most integer) returns void language sql as 'select pg_sleep(60)'",
    )
    do(judge.connection, "set statement_timeout = '500ms'")
    swept, ((message, _),) = sweeps_with(judge)
    assert swept.rescued == 1
    assert message == "octop: the purge was put off: canceling statement due to statement timeout"
    assert value(dba, "select outcome from octop_attempts") == "lost"


def test_the_sweep_refuses_other_isolation_levels(judge):
    do(judge.connection, "set default_transaction_isolation = 'repeatable read'")
    with pytest.raises(errors.IsolationLevelError):
        judge.sweep()


def test_walks_over_the_running_tasks_that_take_long_are_put_off_and_rescue_is_not(dba, judge, hire):
    """Beside a transaction that is held open they pass the dead entries of all that ran: a second for each sweep, after five minutes."""
    do(dba, "update _octop_chores set next_at = now() + interval '10 seconds' where name = 'running'")
    late, silent, long_gone = hire(), hire(), hire()
    overdue = add(dba)
    add_many(dba, 2)
    for worker in (late, silent, long_gone):
        worker.claim_one()
    do(dba, "update octop_tasks_live set deadline_at = now() - interval '1 hour' where id = %s", overdue)
    do(dba, "update octop_workers set beat_at = now() - interval '1 hour' where id = %s", long_gone.id)
    swept = judge.sweep()
    assert (swept.rescued, swept.overdue) == (0, 0), "it has had its chance before walks became long"
    do(dba, "update octop_workers set beat_at = now() - 1.5 * _octop_lease() where id = %s", silent.id)
    swept = judge.sweep()
    assert (swept.rescued, swept.overdue) == (2, 0), "a walk that is made for one is made for all"
    assert value(dba, "select count(*) from octop_chores where name = 'running'") == 1, "people see it"
    do(dba, "update _octop_chores set next_at = now() where name = 'running'")
    assert judge.sweep().overdue == 1
    do(dba, "select _octop_put_off_walks('1 ms')")
    assert value(dba, "select next_at = '-infinity' from _octop_chores where name = 'running'")
    do(dba, "select _octop_put_off_walks('1 s')")
    assert value(dba, "select next_at - now() between '49 s' and '50 s' from _octop_chores where name = 'running'")
    assert column(dba, "select name from octop_chores order by 1") == ["alerts", "days", "purge", "running"]


def test_a_rescue_for_nobody_reads_no_running_task(dba, judge, hire):
    worker = hire()
    add_many(dba, 3)
    worker.claim(3)
    read = """select sum(coalesce(idx_scan, 0) + coalesce(seq_scan, 0)) from pg_stat_xact_user_tables
               where relname = 'octop_tasks_live'"""
    with dba.transaction():
        do(dba, "select octop_beat(array[%s]::uuid[])", worker.id)
        before = value(dba, read)
        assert value(dba, "select _octop_rescue(%s, 5000, true)", judge.id) == 0
        assert value(dba, read) == before
        do(dba, "update octop_workers set beat_at = now() - 1.5 * _octop_lease() where id = %s", worker.id)
        assert value(dba, "select _octop_rescue(%s, 5000, true)", judge.id) == 3
        assert value(dba, read) > before
