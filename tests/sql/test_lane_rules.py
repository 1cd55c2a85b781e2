"""Rules of lanes: limits of each, strict order, turns and weights; and priorities that age."""

from __future__ import annotations

from tests.sql.crew import add, do, limit, rows, value


def test_a_lane_limit_holds_for_each_lane_of_each_tenant_and_leaves_the_others_alone(dba, hire):
    limit(dba, lane_limit=2)
    for lane, tenant in (("a", ""), ("a", "x"), ("b", ""), ("", "")):
        for _ in range(5):
            add(dba, lane=lane, tenant=tenant)
    worker = hire()
    got = worker.claim(100)
    by_lane: dict[tuple[str, str], int] = {}
    for each in got:
        by_lane[each.lane, each.tenant] = by_lane.get((each.lane, each.tenant), 0) + 1
    assert by_lane == {("a", ""): 2, ("a", "x"): 2, ("b", ""): 2, ("", ""): 5}
    assert worker.claim(100) == []
    (one, *_) = [each for each in got if (each.lane, each.tenant) == ("a", "x")]
    worker.succeed(one)
    assert [(each.lane, each.tenant) for each in worker.claim(100)] == [("a", "x")]


def test_a_strict_order_goes_by_enqueue_and_its_head_holds_up_the_lane(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ordered=True)
    late = add(dba, lane="a", priority=9)
    soon = add(dba, lane="a", priority=0)
    other = add(dba, lane="b")
    worker = hire()
    got = {each.id: each for each in worker.claim(10)}
    assert got.keys() == {late, other}
    assert worker.claim(10) == []
    assert worker.end(got[late], delay_seconds=10.0) == "failed"
    assert worker.claim(10) == []  # a failed head holds it up
    database.clock.advance(11)
    worker.beat()
    (again,) = worker.claim(10)
    assert again.id == late
    assert worker.end(again, final=True) == "frozen"
    assert worker.claim(10) == []  # and so does a frozen one
    do(dba, "select octop_retry(%s)", late)
    (again,) = worker.claim(10)
    assert again.id == late
    assert worker.end(again, final=True) == "frozen"
    do(dba, "select octop_cancel(%s)", late)
    assert [each.id for each in worker.claim(10)] == [soon]


def test_who_ends_a_head_that_held_up_its_lane_wakes_those_who_sleep(database, dba, hire):
    limit(dba, ordered=True)
    worker = hire()
    for way in (
        "select octop_cancel(%s)",
        "select octop_delete(%s)",
        "update octop_tasks set status = 'cancelled' where id = %s",
    ):
        head, behind = add(dba, lane="a"), add(dba, lane="a")
        assert worker.end(worker.claim_one(), final=True) == "frozen"
        do(dba, "select octop_sleep(%s::uuid, '{default}', 5)", worker.id)
        with database.connect() as ear:
            ear.execute("listen octop_wake")
            do(dba, way, head)
            assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["default"], way
        claimed = worker.claim_one()
        assert claimed.id == behind
        worker.succeed(claimed)


def test_behind_a_head_that_waits_nobody_is_told_to_hurry(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ordered=True)
    add(dba, lane="a", delay_seconds=60.0)
    add(dba, lane="a")
    worker = hire()
    assert worker.claim(5) == []
    assert value(dba, "select _octop_limits_due('default')") is None
    assert value(dba, "select _octop_next_due('default') - _octop_now()").total_seconds() == 60
    assert rows(dba, "select head_id is not null, held_up_by, room from octop_lanes('default')") == [(True, None, 0)]


def test_lanes_take_turns_by_their_weights_also_one_at_a_time(dba, hire):
    limit(dba, lane_weights='{"a": 3}')
    for lane in ("a", "b", "c"):
        for _ in range(30):
            add(dba, lane=lane)
    worker = hire()
    lanes: dict[str, str] = {}
    got = []
    for _ in range(20):
        answer = worker.exchange(1, lanes_after=lanes)
        lanes.update(answer.lanes)
        got += [each.lane for each in answer.tasks]
    assert "".join(got) == "aaabc" * 4
    many = worker.exchange(20, lanes_after=lanes)
    assert "".join(sorted(each.lane for each in many.tasks)) == "a" * 12 + "b" * 4 + "c" * 4


def test_C075_what_has_waited_long_is_before_what_is_new_and_better(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ageing_seconds=10.0)
    old = add(dba, priority=9)
    database.clock.advance(35)
    better = [add(dba, priority=priority) for priority in (4, 5, 6)]
    laned = {lane: [add(dba, priority=9, lane=lane, queue="l") for _ in range(1)] for lane in ("a", "b")}
    worker = hire()
    worker.beat()
    assert [each.id for each in worker.claim(1)] == [better[0]]
    assert [each.id for each in worker.claim(1)] == [better[1]]
    assert [each.id for each in worker.claim(1)] == [old]
    assert [each.id for each in worker.claim(1)] == [better[2]]
    limit(dba, "l", ageing_seconds=10.0)
    database.clock.advance(100)
    for lane in laned:
        add(dba, priority=0, lane=lane, queue="l")
    other = hire(queues=["l"])
    assert {each.id for each in other.claim(2)} == {each for (each,) in laned.values()}


def test_C075_beside_a_stream_of_urgent_tasks_the_others_start_within_their_bound(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ageing_seconds=10.0)
    low = [add(dba, priority=9) for _ in range(10)]
    worker = hire()
    started: list[tuple[str, int]] = []
    # ten tasks a second may start, and as many urgent ones come: the low ones get nothing from strict priorities
    for second in range(130):
        worker.beat()
        for _ in range(10):
            add(dba, priority=0)
        claimed = worker.claim(10)
        started += [(each.id, second) for each in claimed]
        worker.succeed(*claimed)
        database.clock.advance(1)
    when = {task_id: second for task_id, second in started if task_id in low}
    assert list(when) == sorted(low), "of one moment: by id"
    assert max(when.values()) <= 92, "nine steps of ten seconds, and what stands before them"
    assert min(when.values()) >= 80


def test_a_lane_with_few_tasks_gets_its_share_beside_one_with_many(dba, hire):
    limit(dba, global_limit=10)
    do(dba, "insert into octop_tasks (task_type, lane) select 't', 'a' from generate_series(1, 20000)")
    for _ in range(100):
        add(dba, lane="b")
    worker, done, exchanges = hire(), 0, 0
    lanes: dict[str, str] = {}
    while done < 100:
        answer = worker.exchange(10, lanes_after=lanes)
        lanes.update(answer.lanes)
        worker.succeed(*answer.tasks)
        done += sum(each.lane == "b" for each in answer.tasks)
        exchanges += 1
    assert exchanges <= 20, "alone it would take ten"


def test_lanes_behind_frozen_blocked_and_full_heads_are_reached(dba, hire):
    limit(dba, ordered=True, lane_limit=1)
    for lane in range(300):
        add(dba, lane=f"a {lane:03}")
        add(dba, lane=f"a {lane:03}")
    worker = hire()
    lanes: dict[str, str] = {}
    for _ in range(10):  # all heads fail for good
        answer = worker.exchange(100, lanes_after=lanes)
        lanes.update(answer.lanes)
        for each in answer.tasks:
            worker.end(each, final=True)
    assert value(dba, "select count(*) from octop_tasks where status = 'frozen'") == 300
    open_ = add(dba, lane="b")
    found: list[str] = []
    for _ in range(4):
        answer = worker.exchange(5, lanes_after=lanes)
        lanes.update(answer.lanes)
        found += [each.id for each in answer.tasks]
    assert found == [open_]
