"""Holds of queues, task types, tenants and lanes: nothing of them starts, the rest does, all of it comes back, and nothing is left behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from tests.sql.crew import acts, add, column, do, refused, rows, task, value
from tests.sql.sessions import Running

KINDS = {
    "queue": ("'queue', 'mail'", {"queue": "sms"}),
    "task_type": ("'task_type', 'send'", {"task_type": "other"}),
    "tenant": ("'tenant', 'acme'", {"tenant": "bolt"}),
    "lane": ("'lane', 'a', queue => 'mail', tenant => 'acme'", {"lane": "b"}),
}
HELD = {"task_type": "send", "queue": "mail", "tenant": "acme", "lane": "a"}


def made(dba, **options):
    given = {**HELD, **options}
    return add(dba, given.pop("task_type"), **given)


def staff(hire):
    return hire(queues=["mail", "sms"], types=["send", "other"])


def everything(worker):
    """Claim until a call neither brings nor sets anything aside."""
    found = []
    for _ in range(50):
        answer = worker.exchange(10)
        found += [each.id for each in answer.tasks]
        if not answer.tasks and not answer.parked:
            return found
    raise AssertionError(found)


def begun(database, connection, what):
    """Do this in a thread on that connection, and return when it waits for a lock."""
    session: Any = SimpleNamespace(database=database, pid=connection.info.backend_pid)
    return Running(session, what).wait_until_blocked()


@pytest.mark.parametrize("kind", KINDS)
def test_a_hold_of_each_kind_holds_its_tasks_and_no_others_until_it_is_lifted(dba, operator, hire, kind):
    target, other = KINDS[kind]
    worker = staff(hire)
    held, free = [made(dba) for _ in range(3)], made(dba, **other)
    assert value(operator, f"select octop_hold({target}, reason => 'unpaid')") is True
    assert value(operator, f"select octop_hold({target}, reason => 'again')") is False
    assert everything(worker) == [free]
    late = made(dba)
    assert everything(worker) == []
    assert {(task(dba, each)["status"], task(dba, each)["blocked_by"]) for each in (*held, late)} == (
        {("pending", None)} if kind == "queue" else {("blocked", f"hold:{value(dba, 'select id from octop_holds')}")}
    )
    lifted = f"select octop_lift({target})"
    assert [value(operator, lifted), value(operator, lifted)] == [True, False]
    assert everything(worker) == [*held, late]
    assert value(dba, "select bool_and(attempt = 1 and retry_count = 0) from octop_tasks")
    worker.sweep()
    assert rows(dba, "select * from _octop_lifted_holds") == []


def test_a_lane_is_held_for_its_tenant_in_its_queue_alone(dba, operator, hire):
    worker = staff(hire)
    do(operator, "select octop_hold('lane', 'a', queue => 'mail', tenant => 'acme')")
    others = [made(dba, tenant="bolt"), made(dba, queue="sms"), made(dba, tenant="")]
    made(dba)
    assert sorted(everything(worker)) == sorted(others)


def test_a_task_under_several_holds_starts_when_none_is_left(dba, operator, hire):
    worker, task_id = staff(hire), made(dba)
    for target, _ in KINDS.values():
        do(operator, f"select octop_hold({target})")
    for target, _ in KINDS.values():
        assert everything(worker) == []
        do(operator, f"select octop_lift({target})")
    assert everything(worker) == [task_id]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hold_ends_by_itself_at_its_moment_and_tells_it_to_sleepers(database, dba, operator, hire, kind):
    target, _ = KINDS[kind]
    database.clock.advance(0)
    worker, task_id = staff(hire), made(dba)
    do(operator, f"select octop_hold({target}, ends_at => _octop_now() + interval '20 s')")
    assert everything(worker) == []
    assert value(dba, "select _octop_next_due('mail') - _octop_now() = interval '20 s'")
    assert run(worker.connection, calls.octop_settings()).held_queues == frozenset()  # asked for, or nobody saw the end
    database.clock.advance(19.999)
    worker.beat()
    assert everything(worker) == []
    database.clock.advance(0.001)
    worker.beat()
    assert everything(worker) == [task_id]  # without a sweep
    assert column(dba, "select id from octop_holds") == []


def test_the_sweep_takes_away_what_has_ended_and_brings_its_tasks_back(database, dba, operator, hire):
    database.clock.advance(0)
    worker, task_id = staff(hire), made(dba)
    do(operator, "select octop_hold('tenant', 'acme', ends_at => _octop_now() + interval '5 s')")
    everything(worker)
    database.clock.advance(5)
    worker.beat()
    assert worker.sweep().unparked == 1
    assert task(dba, task_id)["status"] == "pending"


def test_an_ended_hold_that_is_still_there_neither_holds_nor_stands_in_the_way(database, dba, operator, hire):
    database.clock.advance(0)
    staff(hire)
    do(operator, "select octop_pause('mail', 'lunch', _octop_now() + interval '5 s')")
    database.clock.advance(6)
    assert rows(dba, "select paused, pause_reason from octop_queue_summary where name = 'mail'") == [(False, None)]
    assert value(operator, "select octop_resume('mail')") is False
    do(operator, "select octop_pause('mail', 'lunch', _octop_now() + interval '5 s')")
    database.clock.advance(6)
    assert value(operator, "select octop_pause('mail', 'for good')") is True
    assert rows(dba, "select reason, ends_at from octop_holds") == [("for good", None)]


@pytest.mark.parametrize(
    "end",
    ["delete from octop_holds", "truncate octop_holds", "update octop_holds set ends_at = now() - interval '1 s'"],
)
def test_however_a_hold_ends_its_tasks_come_back(dba, operator, hire, end):
    worker, task_id = staff(hire), made(dba)
    do(operator, "select octop_hold('tenant', 'acme')")
    everything(worker)
    do(dba, end)
    assert everything(worker) == [task_id]


def test_what_comes_back_is_bounded_and_the_oldest_over_all_queues(dba, operator, hire):
    worker = staff(hire)
    do(
        dba,
        "insert into octop_tasks (task_type, queue, tenant, scheduled_at) select 'send', case when g %% 2 = 0 then 'mail' else 'sms' end, 'acme',"
        " _octop_now() - make_interval(secs => g) from generate_series(1, 2500) g".replace("%%", "%"),
    )
    do(operator, "select octop_hold('tenant', 'acme')")
    everything(worker)
    assert rows(dba, "select status, count(*) from octop_tasks group by 1") == [("blocked", 2500)]
    do(operator, "select octop_lift('tenant', 'acme')")
    assert rows(
        dba, "select status, count(*), extract(epoch from min(created_at - scheduled_at))::int from octop_tasks group by 1 order by 1"
    ) == [("blocked", 1500, 1), ("pending", 1000, 1501)]  # fmt: skip
    assert [worker.sweep().unparked for _ in range(2)] == [1500, 0]


def test_workers_with_room_bring_back_what_is_lifted_without_a_sweep(dba, operator, hire):
    worker = staff(hire)
    do(
        dba,
        "insert into octop_tasks (task_type, queue, tenant) select 'send', 'mail', 'acme' from generate_series(1, 3000)",
    )
    do(operator, "select octop_hold('tenant', 'acme')")
    everything(worker)
    do(operator, "select octop_lift('tenant', 'acme')")
    found = 0
    for _ in range(20):
        found += len(worker.claim(1000))
    assert found == 3000


@pytest.mark.parametrize("act", ["cancel", "retry", "delete by hand", "cancel by hand"])
def test_a_parked_task_can_be_acted_on(dba, operator, hire, act):
    worker, task_id = staff(hire), made(dba)
    do(operator, "select octop_hold('tenant', 'acme')")
    everything(worker)
    if act == "cancel":
        assert value(operator, "select octop_cancel(%s)", task_id) == "cancelled"
    elif act == "retry":
        said = refused("OC104", operator, "select octop_retry(%s)", task_id)
        assert "is blocked: the tenant acme is held" in said
        assert "select octop_lift('tenant', 'acme')" in said
        do(operator, "select octop_lift('tenant', 'acme')")
        assert everything(worker) == [task_id], "it goes on by itself"
        return
    elif act == "delete by hand":
        do(dba, "delete from octop_tasks where id = %s", task_id)
    else:
        do(dba, "update octop_tasks set status = 'cancelled' where id = %s", task_id)
    do(operator, "select octop_lift('tenant', 'acme')")
    assert everything(worker) == []
    worker.sweep()
    assert rows(dba, "select * from _octop_lifted_holds") == []


def test_who_retries_what_nobody_knows_is_told_to_start_a_worker(dba, operator, hire):
    worker = staff(hire)
    task_id = made(dba, task_type="strange")
    everything(worker)
    said = refused("OC104", operator, "select octop_retry(%s)", task_id)
    assert "is blocked: no living worker of its queue knows the type strange" in said
    assert "Start a worker that has it" in said


def test_a_unique_task_that_was_parked_is_replaced_moved_and_kept(dba, operator, hire):
    """Parked or not, it holds its key: what replaces its payload comes back with the hold's end, once."""
    worker = staff(hire)

    def enqueue(number, rule, **more):
        extra = "".join(f", {name} => {given}" for name, given in more.items())
        return dba.execute(
            "select id::text, created from octop_enqueue(%s, jsonb_build_object('user', 1, 'number', %s::integer), queue => 'mail', tenant => 'acme',"
            f" unique_by => array['user'], on_conflict => %s{extra})".encode(),
            (worker.types[0], number, rule),
        ).fetchone()

    task_id, created = enqueue(1, "keep")
    assert created
    do(operator, "select octop_hold('tenant', 'acme')")
    everything(worker)
    assert value(dba, "select status from octop_tasks where id = %s", task_id) == "blocked"
    assert enqueue(2, "replace", priority="1") == (task_id, False)
    assert enqueue(3, "keep") == (task_id, False)
    parked = "select status, payload ->> 'number', priority from octop_tasks where id = %s"
    assert dba.execute(parked.encode(), (task_id,)).fetchone() == ("blocked", "2", 1)
    assert enqueue(4, "move") == (task_id, False)
    assert dba.execute(parked.encode(), (task_id,)).fetchone() == ("blocked", "2", 1)
    assert everything(worker) == [], "it is held as before"
    do(operator, "select octop_lift('tenant', 'acme')")
    assert everything(worker) == [task_id]
    assert value(dba, "select count(*) from octop_tasks") == 1


def test_a_hold_and_an_unknown_type_hold_one_after_the_other(dba, operator, hire):
    worker = staff(hire)
    task_id = made(dba, task_type="new")
    do(operator, "select octop_hold('tenant', 'acme')")
    everything(worker)
    assert task(dba, task_id)["blocked_by"].startswith("hold:")
    do(operator, "select octop_lift('tenant', 'acme')")
    assert everything(worker) == []
    assert task(dba, task_id)["blocked_by"] == "task_type:new"
    do(operator, "select octop_hold('tenant', 'acme')")
    knows = hire(queues=["mail"], types=["new"])
    assert everything(knows) == []
    assert task(dba, task_id)["blocked_by"].startswith("hold:")
    do(operator, "select octop_lift('tenant', 'acme')")
    assert everything(knows) == [task_id]


# --- races ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_C078_an_exchange_that_has_read_the_holds_starts_nothing_that_is_enqueued_after_a_pause(
    database, dba, operator, hire, kind
):
    """The claim is stopped between its look at the holds and its look at the tasks: a pause and an enqueue are committed meanwhile."""
    target, _ = KINDS[kind]
    worker = staff(hire)
    do(
        dba,
        "alter function _octop_claim rename to _octop_claim_now;"
        "create function _octop_claim(q text, n integer, t text[], v integer[], h text[], a text, ma timestamptz[], mi uuid[], r octop_queues, b jsonb,"
        " out last_lane text, out tids tid[], out parked integer) language plpgsql as $$ begin"
        "  perform pg_advisory_xact_lock_shared(78);"
        "  select c.last_lane, c.tids, c.parked into last_lane, tids, parked from _octop_claim_now(q, n, t, v, h, a, ma, mi, r, b) c; end $$;",
    )
    with database.connect() as gate:
        do(gate, "begin; select pg_advisory_xact_lock(78)")
        do(dba, "alter function octop_exchange set lock_timeout = '20s'")
        claiming = begun(database, worker.connection, lambda: worker.exchange(10))
        do(operator, f"select octop_hold({target})")
        task_id = made(dba, scheduled_at="2020-01-01 00:00:00+00")  # due for who began earlier, too
        do(gate, "rollback")
        answer = claiming.result()
    assert (answer.tasks, answer.parked > 0) == ([], True)
    assert task(dba, task_id)["attempt"] == 0
    assert everything(worker) == []
    do(operator, f"select octop_lift({target})")
    assert everything(worker) == [task_id]


def test_nothing_is_left_behind_by_who_parks_while_the_hold_is_lifted(database, dba, operator, hire):
    worker, task_id = staff(hire), made(dba)
    do(operator, "select octop_hold('tenant', 'acme')")
    do(worker.connection, "begin")
    assert worker.exchange(10).parked == 1  # and does not commit yet
    lifted = begun(database, operator, lambda: do(operator, "select octop_lift('tenant', 'acme')"))
    do(worker.connection, "commit")
    lifted.result()
    assert everything(worker) == [task_id]


def test_who_claims_while_a_hold_is_being_lifted_neither_waits_nor_parks(database, dba, operator, hire):
    worker, task_id = staff(hire), made(dba)
    do(operator, "select octop_hold('tenant', 'acme')")
    do(operator, "begin")
    do(operator, "select octop_lift('tenant', 'acme')")
    assert (worker.exchange(10).parked, task(dba, task_id)["status"]) == (0, "pending")
    do(operator, "commit")
    assert everything(worker) == [task_id]


# --- who may, and what is refused -------------------------------------------------------------------------------------


def test_bad_holds_are_refused_and_nothing_is_written(dba, operator):
    for sqlstate, arguments in (
        ("OC113", "'type', 'x'"),
        ("OC113", "null, 'x'"),
        ("OC110", "'tenant', ''"),
        ("OC110", "'tenant', null"),
        ("OC110", "'tenant', repeat('x', 201)"),
        ("OC110", "'tenant', E'a\\n'"),
        ("OC110", "'lane', 'a'"),
        ("OC110", "'lane', '', queue => 'mail'"),
        ("OC110", "'lane', 'a', queue => 'mail', tenant => E'a\\n'"),
        ("OC113", "'tenant', 'acme', queue => 'mail'"),
        ("OC114", "'tenant', 'acme', ends_at => now() - interval '1 s'"),
        ("OC114", "'tenant', 'acme', ends_at => 'infinity'"),
    ):
        refused(sqlstate, operator, f"select octop_hold({arguments})")
    refused("OC113", operator, "select octop_lift('type', 'x')")
    assert rows(dba, "select * from octop_holds") == []
    assert acts(dba) == []


def test_what_a_hold_holds_cannot_be_changed_its_reason_and_end_can(dba, operator):
    do(operator, "select octop_hold('tenant', 'acme')")
    for change in ("target = 'bolt'", "kind = 'task_type'", "cause = 'exhaustion'"):
        refused("OC113", dba, f"update octop_holds set {change}")
    do(dba, "update octop_holds set reason = 'unpaid', ends_at = now() + interval '1 h'")


def test_only_an_operator_holds_and_the_audit_says_who(database, dba, operator):
    for role in ("octop_viewer", "octop_producer", "octop_worker"):
        with database.connect(role) as connection:
            for act in ("octop_hold('tenant', 'acme')", "octop_lift('tenant', 'acme')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    do(connection, f"select {act}")
    for target, _ in KINDS.values():
        do(operator, f"select octop_hold({target}, reason => 'x'), octop_lift({target})")
    assert [each[:4] for each in acts(dba)] == [
        ("octop_operator", "desk", action, subject)
        for pair, subject in ((("pause", "resume"), "mail"), (("freeze", "thaw"), "send"), (("hold", "lift"), "acme"), (("hold", "lift"), "a"))
        for action in pair
    ]  # fmt: skip
