"""octop_exchange: fenced, bounded, and no outcome or row can stop it."""

from __future__ import annotations

from dataclasses import replace
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
