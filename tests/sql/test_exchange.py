"""octop_exchange: fenced, bounded, and no outcome or row can stop it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model import errors
from octop.model.task import Fence, Outcome, OutcomeKind, Success
from tests.sql.crew import add, add_many, column, do, rows, task, value

ENDS = ("success", "failure", "timeout", "lost", "snoozed", "cancelled", "released")


def hand_in(worker, kind, claimed, **options):
    if kind == "success":
        return worker.succeed(claimed)
    return [worker.end(claimed, kind, **options)]


# --- claims ----------------------------------------------------------------------------------------------------------


def test_a_claim_is_a_start_numbered_from_one_and_says_all_that_a_worker_must_know(database, dba, hire):
    now = database.clock.advance(0)
    task_id = add(
        dba,
        queue="q",
        tenant="x",
        priority=1,
        payload='{"a": [1, "b"]}',
        max_retries=7,
        timeout_seconds=2.5,
        tags=["g"],
        meta='{"m": 1}',
    )
    worker = hire(queues=["q"])
    claimed = worker.claim_one()
    assert (claimed.id, claimed.attempt, claimed.queue, claimed.tenant, claimed.priority) == (task_id, 1, "q", "x", 1)
    assert (claimed.payload, claimed.max_retries, claimed.timeout_seconds) == ('{"a": [1, "b"]}', 7, 2.5)
    assert (claimed.tags, claimed.meta, claimed.isolated, claimed.retry_count) == (["g"], '{"m": 1}', False, 0)
    running = task(dba, task_id)
    assert (running["status"], running["attempt"], running["started_at"]) == ("running", 1, now)
    assert (str(running["worker_id"]), str(running["claim_id"])) == (worker.id, claimed.claim_id)
    assert (running["deadline_at"] - now).total_seconds() == 2.5
    assert running["due_at"] == now


def test_C075_order_is_priority_then_time_and_never_the_future(database, dba, hire):
    now = database.clock.advance(0)
    expected = []
    for priority in (9, 5, 0):
        for offset in (-5, -10, 60):
            task_id = add(dba, priority=priority, scheduled_at=now + timedelta(seconds=offset))
            if offset < 0:
                expected.append((priority, offset, task_id))
    # how long whoever is kept waiting has waited can be seen
    assert value(dba, "select oldest_due_at from octop_queue_summary") == now - timedelta(seconds=10)
    assert [each.id for each in hire().claim(100)] == [task_id for _, _, task_id in sorted(expected)]


def test_a_task_starts_at_its_second_and_not_before(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    add(dba, delay_seconds=10.0)
    database.clock.advance(9.999)
    assert worker.claim(5) == []
    database.clock.advance(0.001)
    assert len(worker.claim(5)) == 1


def test_takes_at_most_what_was_wanted_from_each_queue(dba, hire):
    for queue in ("a", "b"):
        add_many(dba, 20, queue=queue)
    worker = hire(queues=["a", "b"])
    got = run(worker.connection, calls.octop_exchange(worker.id, wanted={"a": 3, "b": 5}, task_types=["t"])).tasks
    assert sorted(each.queue for each in got) == ["a"] * 3 + ["b"] * 5
    assert len({each.claim_id for each in got}) == 1
    for nothing in (0, -1, None):
        assert (
            rows(
                worker.connection,
                "select * from octop_exchange(%s, array['a'], array[%s::int], array['t'])",
                worker.id,
                nothing,
            )
            == []
        )
    assert worker.claim(100)[0].claim_id != got[0].claim_id


def test_two_workers_never_get_the_same_task(database, dba, hire):
    ids = set(add_many(dba, 200))
    one, two = hire(), hire()
    with one.connection.transaction():
        first = {each.id for each in one.claim(100)}
        second = {each.id for each in two.claim(150)}  # while the first claim is not committed
    assert len(first) == 100
    assert len(second) == 100
    assert first | second == ids


def test_lanes_take_turns_and_none_is_left_out(dba, hire):
    for lane in ("a", "b", "c"):
        do(dba, "insert into octop_tasks (task_type, lane) select 't', %s from generate_series(1, 50)", lane)
    worker = hire()
    taken: list[str] = []
    lanes: dict[str, str] = {}
    for _ in range(6):
        done = worker.exchange(2, lanes_after=lanes)
        lanes = lanes | done.lanes
        taken += [each.lane for each in done.tasks]
    assert len(taken) == 12
    assert {lane: taken.count(lane) for lane in "abc"} == {"a": 4, "b": 4, "c": 4}


def test_only_a_registered_worker_whose_heart_beats_gets_tasks(database, dba, hire):
    add(dba)
    database.clock.advance(0)
    worker = hire()
    stranger = replace(worker, id=str(uuid4()))
    assert stranger.claim(5) == []
    database.clock.advance(20.001)  # two thirds of the lease
    assert worker.claim(5) == []
    worker.beat()
    assert len(worker.claim(5)) == 1


def test_a_draining_worker_gets_nothing_and_its_outcomes_are_taken(dba, hire):
    add_many(dba, 2)
    worker = hire()
    claimed = worker.claim_one()
    run(worker.connection, calls.octop_drain(worker.id))
    assert worker.claim(5) == []
    assert worker.succeed(claimed) == []


def test_C078_a_paused_queue_gives_nothing_from_the_commit_on_and_running_tasks_end(dba, hire):
    add_many(dba, 3)
    worker = hire()
    claimed = worker.claim_one()
    do(dba, "select octop_pause('default')")
    assert worker.claim(5) == []
    assert worker.succeed(claimed) == []
    do(dba, "select octop_resume('default')")
    assert len(worker.claim(5)) == 2


def test_the_exchange_refuses_other_isolation_levels_and_uneven_arrays(hire):
    worker = hire()
    for level in ("repeatable read", "serializable"):
        do(worker.connection, f"set default_transaction_isolation = '{level}'")
        with pytest.raises(psycopg.Error) as refused:
            do(worker.connection, "select * from octop_exchange(%s)", worker.id)
        assert refused.value.sqlstate == "OC301"
    do(worker.connection, "reset default_transaction_isolation")
    for uneven in (
        "done_ids => array[octop_uuid7()]",
        "done_ids => array[octop_uuid7()], done_attempts => array[1], done_claims => array[octop_uuid7()]",
        "queues => array['a']",
        "queues => array['a'], wanted => array[1, 2]",
    ):
        with pytest.raises(psycopg.Error) as refused:
            do(worker.connection, f"select * from octop_exchange(%s, {uneven})", worker.id)
        assert refused.value.sqlstate == "OC302", uneven


# --- unknown task types ----------------------------------------------------------------------------------------------


def test_C124_an_old_worker_parks_what_nobody_knows_and_a_new_one_runs_it_as_attempt_one(dba, hire):
    ids = add_many(dba, 100, "new")
    old = hire(types=["old"])
    done = old.exchange(10)
    assert (done.tasks, done.parked) == ([], 100)
    assert rows(dba, "select status, blocked_by, attempt, count(*) from octop_tasks group by 1, 2, 3") == [
        ("blocked", "task_type:new", 0, 100)
    ]
    assert rows(dba, "select status, count from octop_task_summary") == [("blocked", 100)]
    new = hire(types=["new"])
    got = new.claim(1000)
    assert {each.id for each in got} == set(ids)
    assert {each.attempt for each in got} == {1}
    assert new.succeed(*got) == []


def test_C124_what_another_living_worker_of_the_queue_knows_is_left_to_it(dba, hire):
    add_many(dba, 3, "new")
    old, new = hire(types=["old"]), hire(types=["new"])
    assert old.exchange(10).parked == 0
    assert len(new.claim(10)) == 3


def test_C125_each_type_is_only_ever_run_by_workers_that_know_it(database, dba, hire):
    database.clock.advance(0)
    one, two = hire(types=["a"], queues=["qa"]), hire(types=["b"], queues=["qb"])
    add(dba, "a", queue="qa", retry_policy='{"delays": [0]}')
    one.claim_one()
    for _ in range(10):
        database.clock.advance(5)
        two.beat()
        two.sweep()
    assert column(dba, "select status from octop_tasks") == ["failed"]
    assert two.claim(5) == []
    again = hire(types=["a"], queues=["qa"])
    assert again.claim_one().attempt == 2


def test_C129_an_unknown_name_at_the_head_does_not_hold_up_those_behind_it(dba, hire):
    add_many(dba, 600, "removed")
    add_many(dba, 10, "t")
    assert len(hire().claim(10)) == 10


def test_unknown_types_parked_behind_many_come_without_losing_one(dba, hire):
    add_many(dba, 5000, "removed")
    worker = hire()
    add_many(dba, 3, "t")
    got, looks = 0, 0
    while got < 3 and looks < 20:
        got += len(worker.claim(10))
        looks += 1
    assert got == 3
    assert looks <= 5


# --- the fence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("careful", [False, True], ids=["hasty", "careful"])
def test_C007_refuses_every_outcome_that_is_not_of_this_attempt_of_this_claim_of_this_worker(dba, hire, careful):
    task_id = add(dba)
    worker, other = hire(), hire()
    claimed = worker.claim_one()
    before = task(dba, task_id)
    wrong = [
        (worker, claimed._replace(attempt=2)),
        (worker, claimed._replace(attempt=0)),
        (worker, claimed._replace(claim_id=str(uuid4()))),
        (worker, claimed._replace(id=str(uuid4()))),
        (other, claimed),
        (replace(worker, id=str(uuid4())), claimed),
    ]
    for who, what in wrong:
        for kind in ENDS:
            if kind == "success":
                done = who.exchange(successes=[Success(what.fence)], careful=careful)
            else:
                done = who.exchange(outcomes=[Outcome(what.fence, OutcomeKind(kind))], careful=careful)
            assert [(each.id, each.verdict) for each in done.settled] == [(what.id, "lost")], (kind, what)
    assert task(dba, task_id) == before
    assert value(dba, "select count(*) from octop_attempts") == 0
    assert worker.exchange(successes=[Success(claimed.fence)], careful=careful).settled == []


def test_C007_a_stale_owners_outcome_changes_nothing_after_another_worker_finished(database, dba, hire):
    database.clock.advance(0)
    task_id = add(dba, retry_policy='{"delays": [0]}')
    stalled, judge = hire(), hire()
    first = stalled.claim_one()
    for _ in range(8):
        database.clock.advance(5)
        judge.beat()
        judge.sweep()
    second = judge.claim_one()
    assert (second.id, second.attempt, second.isolated) == (task_id, 2, True)
    assert judge.succeed(second, result='"second"') == []
    assert stalled.succeed(first, result='"first"') == ["lost"]
    assert stalled.end(first) == "lost"
    found = task(dba, task_id)
    assert (found["status"], found["result"], found["attempt"]) == ("success", "second", 2)
    assert rows(dba, "select attempt, outcome from octop_attempts") == [(1, "lost")]
    assert rows(dba, "select status, sum(n) from _octop_counted() where n <> 0 group by 1") == [("success", 1)]


def test_C061_an_outcome_that_is_sent_again_is_kept_and_counted_once(dba, hire):
    worker = hire()
    for kind in ENDS:
        task_id = add(dba, retry_policy='{"delays": [3600]}')
        claimed = worker.claim_one()
        first = hand_in(worker, kind, claimed, **({"delay_seconds": 3600.0} if kind == "snoozed" else {}))
        found = task(dba, task_id)
        again = hand_in(worker, kind, claimed) if kind != "success" else worker.succeed(claimed)
        assert again == ([] if kind == "success" else ["kept"]), (kind, first)
        assert task(dba, task_id) == found
        if found["status"] == "pending":
            do(dba, "select octop_cancel(%s)", task_id)
    assert value(dba, "select count(*) from octop_attempts") == 6
    assert rows(dba, "select status, sum(n) from _octop_counted() where status = 'success' group by 1") == [
        ("success", 1)
    ]


def test_a_failure_of_an_attempt_whose_transaction_had_committed_changes_nothing(dba, hire):
    # a transactional task: the answer to its COMMIT got lost, so its worker believes that it failed
    worker = hire()
    task_id = add(dba)
    claimed = worker.claim_one()
    assert worker.succeed(claimed, result='"done"') == []
    found = task(dba, task_id)
    for kind in ("failure", "timeout"):
        assert hand_in(worker, kind, claimed) == ["kept"]
    assert hand_in(worker, "failure", claimed._replace(attempt=2)) == ["lost"]
    assert task(dba, task_id) == found
    assert value(dba, "select count(*) from octop_attempts") == 0


def test_the_same_outcome_twice_in_one_exchange_counts_once(dba, hire):
    worker = hire()
    add(dba)
    claimed = worker.claim_one()
    assert worker.succeed(claimed, claimed) == []
    assert rows(dba, "select status, sum(n)::int from _octop_counted() group by 1 having sum(n) <> 0") == [
        ("success", 1)
    ]
    add(dba)
    claimed = worker.claim_one()
    outcome = Outcome(claimed.fence, OutcomeKind.FAILURE)
    worker.exchange(outcomes=[outcome, outcome])
    assert task(dba, claimed.id)["retry_count"] == 1


def test_one_exchange_takes_hundreds_of_outcomes_of_all_kinds_and_gives_new_tasks(dba, hire):
    add_many(dba, 700)
    worker = hire()
    claimed = worker.claim(350)
    kinds = [ENDS[i % 7] for i in range(350)]
    done = worker.exchange(
        100,
        successes=[Success(each.fence, "1") for each, kind in zip(claimed, kinds, strict=True) if kind == "success"],
        outcomes=[
            Outcome(each.fence, OutcomeKind(kind))
            for each, kind in zip(claimed, kinds, strict=True)
            if kind != "success"
        ],
    )
    assert len(done.settled) == 300
    assert len(done.tasks) == 100
    verdicts = {each.id: each.verdict for each in done.settled}
    expected = {
        "failure": "failed",
        "timeout": "failed",
        "lost": "failed",
        "snoozed": "pending",
        "cancelled": "cancelled",
        "released": "pending",
    }
    assert verdicts == {each.id: expected[kind] for each, kind in zip(claimed, kinds, strict=True) if kind != "success"}


def test_a_row_that_somebody_holds_is_answered_again_in_the_careful_form_and_taken_later(database, dba, hire):
    add_many(dba, 4)
    worker = hire()
    held, free, held_too, free_too = worker.claim(4)
    with database.connect(autocommit=False) as dbas:
        do(dbas, "select from octop_tasks where id in (%s, %s) for update", held.id, held_too.id)
        with pytest.raises(errors.TryAgainError):  # 50 ms, then the whole call again
            worker.succeed(held, free)
        assert task(dba, free.id)["status"] == "running"
        done = worker.exchange(
            successes=[Success(held.fence), Success(free.fence)],
            outcomes=[Outcome(each.fence, OutcomeKind.FAILURE) for each in (held_too, free_too)],
            careful=True,
        )
        assert {each.id: each.verdict for each in done.settled} == {
            held.id: "again",
            held_too.id: "again",
            free_too.id: "failed",
        }
        assert task(dba, free.id)["status"] == "success"
        dbas.rollback()
    assert worker.succeed(held) == []
    assert worker.end(held_too) == "failed"


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_success_keeps_its_result_and_who_ran_it(database, dba, hire):
    task_id = add(dba)
    worker = hire()
    claimed = worker.claim_one()
    now = database.clock.advance(2)
    assert worker.succeed(claimed, result='{"a": [1, 2.5, null]}') == []
    found = task(dba, task_id)
    assert (found["status"], found["result"], found["completed_at"]) == ("success", {"a": [1, 2.5, None]}, now)
    assert (str(found["worker_id"]), found["attempt"], found["last_error"]) == (worker.id, 1, None)
    assert value(dba, "select count(*) from octop_attempts") == 0


def test_snoozed_and_released_use_no_try_and_differ_in_time(database, dba, hire):
    now = database.clock.advance(0)
    worker = hire()
    task_id = add(dba, max_retries=0)
    for n in range(1, 11):
        assert worker.end(worker.claim_one(), "released", error_message="deploy") == "pending"
        assert task(dba, task_id)["scheduled_at"] == now
        assert (task(dba, task_id)["retry_count"], task(dba, task_id)["attempt"]) == (0, n)
    assert worker.end(worker.claim_one(), "snoozed", delay_seconds=60.0) == "pending"
    found = task(dba, task_id)
    assert ((found["scheduled_at"] - now).total_seconds(), found["due_at"], found["retry_count"]) == (60, now, 0)
    assert worker.claim(1) == []
    assert column(dba, "select outcome from octop_attempts order by attempt") == ["released"] * 10 + ["snoozed"]


def test_C040_C041_C043_a_result_that_jsonb_cannot_keep_fails_alone_and_the_task_stays_claimed(dba, hire):
    worker = hire()
    for bad in ('"\\u0000"', "NaN", "{", '"\\ud800"', "[" * 20_000 + "]" * 20_000):
        add_many(dba, 2)
        good, odd = worker.claim(2)
        with pytest.raises(errors.OctopError) as refused:
            worker.exchange(successes=[Success(good.fence, "1"), Success(odd.fence, bad)])
        assert isinstance(refused.value, errors.InvalidPayloadError | errors.UnexpectedDatabaseError)
        assert {task(dba, each.id)["status"] for each in (good, odd)} == {"running"}
        assert worker.succeed(good, result="1") == []
        assert worker.end(odd, final=True, error_message="the result is not JSON") == "frozen"


def test_C042_a_failure_of_megabytes_is_recorded_short_and_long(dba, hire):
    task_id = add(dba, max_retries=0)
    worker = hire()
    message = "é" * 3_000_000
    traceback = "a" * 100_000 + "the end"
    assert worker.end(worker.claim_one(), error_class="x.Boom", error_message=message, traceback=traceback) == "frozen"
    found = task(dba, task_id)
    assert found["last_error"] == ("x.Boom: " + message)[:1024]
    ((short, long),) = rows(dba, "select error_message, traceback from octop_attempts")
    assert (len(short), len(long), long[-7:]) == (10_000, 50_000, "the end")


def test_C042_odd_text_in_a_failure_is_kept_as_it_is(dba, hire):
    for text in ["", "plain", "a'b\"c\\d", "\x01\x1b[31m", "\u202eRTL", "😀" * 2000, "\ufffe\uffff", "%s %(a)s {}"]:
        task_id = add(dba, max_retries=0)
        worker = hire()
        assert worker.end(worker.claim_one(), error_class="E", error_message=text, traceback=text) == "frozen"
        assert task(dba, task_id)["last_error"] == f"E: {text}"[:1024]
        assert rows(dba, "select error_message, traceback from octop_attempts where task_id = %s", task_id) == [
            (text, text)
        ]


def test_an_absurd_delay_is_bounded_and_never_stops_an_outcome(database, dba, hire):
    now = database.clock.advance(0)
    worker = hire()
    for kind in ("failure", "snoozed"):
        for delay, expected in ((-5.0, 0), (-1e308, 0), (1e308, 31536000), (0.0, 0), (0.25, 0.25)):
            task_id = add(dba)
            worker.end(worker.claim_one(), kind, delay_seconds=delay)
            assert (task(dba, task_id)["scheduled_at"] - now).total_seconds() == expected, (kind, delay)
            do(dba, "select octop_cancel(%s)", task_id)


def test_C047_an_outcome_of_an_unknown_kind_is_refused_and_the_task_can_still_be_ended(dba, hire):
    add(dba)
    worker = hire()
    claimed = worker.claim_one()
    for kind in ("success", "exploded", ""):
        with pytest.raises(psycopg.errors.CheckViolation):
            do(
                worker.connection,
                "select octop_exchange(%s, outcomes => jsonb_build_array(jsonb_build_object('id',"
                " %s::text, 'attempt', 1, 'claim_id', %s::text,"
                " 'outcome', %s::text)))",
                worker.id,
                claimed.id,
                claimed.claim_id,
                kind,
            )
    assert worker.succeed(claimed) == []


def test_final_freezes_at_once_whatever_is_left(dba, hire):
    worker = hire()
    task_id = add(dba, max_retries=5)
    assert worker.end(worker.claim_one(), final=True) == "frozen"
    assert task(dba, task_id)["retry_count"] == 0
    add(dba, max_retries=5, retry_policy='{"final": ["ValueError"]}')
    assert worker.end(worker.claim_one(), error_class="x.Sub", mro=("x.Sub", "ValueError", "Exception")) == "frozen"
    add(dba, max_retries=5, retry_policy='{"final": ["ValueError"]}')
    assert worker.end(worker.claim_one(), error_class="KeyError", mro=("KeyError", "LookupError")) == "failed"


def test_a_cancel_that_was_asked_for_wins_over_every_end_but_success(dba, hire):
    worker = hire()
    for kind in ENDS:
        task_id = add(dba)
        claimed = worker.claim_one()
        assert value(dba, "select octop_cancel(%s)", task_id) == "requested"
        hand_in(worker, kind, claimed)
        assert task(dba, task_id)["status"] == ("success" if kind == "success" else "cancelled"), kind
        assert task(dba, task_id)["completed_at"] is not None


def test_C137_a_lost_attempt_uses_a_try_and_the_next_ones_run_apart(dba, hire):
    task_id = add(dba, max_retries=2, retry_policy='{"delays": [0]}')
    worker = hire()
    isolated = []
    for _ in range(3):
        claimed = worker.claim_one()
        isolated.append(claimed.isolated)
        worker.end(claimed, "lost", error_class="WorkerLost")
    assert isolated == [False, True, True]
    found = task(dba, task_id)
    assert (found["status"], found["lost_count"], found["retry_count"]) == ("frozen", 3, 2)


def test_a_payload_that_python_may_not_decode_leaves_as_text(dba, hire):
    deep = "[" * 5000 + "]" * 5000
    for payload in ('{"a": 1e400}', f'{{"a": {2**63}}}', f'{{"a": {deep}}}'):
        do(dba, "select octop_enqueue_many(array['t'], array[%s])", payload)
    assert len(hire().claim(5)) == 3


def test_every_row_that_the_table_accepts_can_be_claimed_and_ended(dba, hire):
    do(
        dba,
        """
        insert into octop_tasks (task_type, queue, lane, tenant, payload, priority, scheduled_at, max_retries, timeout_seconds,
                                 retry_policy, tags, meta)
        select 't', 'default', lane, tenant, '{}', priority, '2000-01-01 00:00:00+00', retries, seconds, policy, tags, meta
          from unnest(array['', repeat('l', 200)]) lane, unnest(array['', repeat('x', 200)]) tenant, unnest(array[0, 9]) priority,
               unnest(array[null, 0, 1000]) retries, unnest(array[null, 1e-300, 2678400]::float8[]) seconds,
               unnest(array[null, '{}', '{"growth": 100, "base": 2678400, "cap": 0}',
                            '{"delays": [2678400], "final": [1, null, {}]}']::jsonb[]) policy,
               (values (null::text[], null::jsonb), (array['', 'x'], '{}')) v (tags, meta)
        """,
    )
    count = value(dba, "select count(*) from octop_tasks")
    assert count == 2 * 2 * 2 * 3 * 3 * 4 * 2
    worker = hire()
    claimed = []
    while got := worker.claim(200):
        claimed += got
    assert len(claimed) == count
    done = worker.exchange(outcomes=[Outcome(each.fence, OutcomeKind.FAILURE, error_class="E") for each in claimed])
    assert {each.verdict for each in done.settled} == {"failed", "frozen"}
    assert len(done.settled) == count


def test_owned_names_exactly_the_attempts_that_are_still_this_workers(dba, hire):
    add_many(dba, 3)
    worker = hire()
    kept, taken, ended = worker.claim(3)
    do(dba, "update octop_tasks set status = 'pending' where id = %s", taken.id)
    worker.succeed(ended)
    fences = [kept.fence, taken.fence, ended.fence, Fence(kept.id, 2, kept.claim_id)]
    assert run(worker.connection, calls.octop_owned(worker.id, fences)) == {kept.id}
    assert run(worker.connection, calls.octop_owned(str(uuid4()), fences)) == set()


def test_C062_no_transaction_is_open_between_claim_and_outcome(dba, hire):
    add(dba)
    worker = hire()
    claimed = worker.claim_one()
    state = value(dba, "select state from pg_stat_activity where pid = %s", worker.connection.info.backend_pid)
    assert state == "idle"
    assert worker.succeed(claimed) == []
