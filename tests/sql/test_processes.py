"""octop_wanted_processes: grows with backlog and age at once, shrinks after a time without need, and stays between its bounds."""

from __future__ import annotations

from uuid import uuid4

import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model.errors import InvalidOptionError
from tests.sql.crew import Worker as Crew
from tests.sql.crew import add, add_many, do

SUPERVISOR = str(uuid4())


@pytest.fixture
def ask(database):
    with database.connect("octop_worker") as connection:

        def ask(processes=1, quiet=0, *, minimum=1, maximum=8, queues=("default",), supervisor=SUPERVISOR):
            return run(
                connection,
                calls.octop_wanted_processes(
                    supervisor, queues, processes=processes, minimum=minimum, maximum=maximum, quiet=quiet
                ),
            )

        yield ask


def many(dba, count, *, queue, lane="", tenant="", task_type="t"):
    do(
        dba,
        "insert into octop_tasks (task_type, queue, lane, tenant) select %s, %s, %s, %s from generate_series(1, %s::integer)",
        *(task_type, queue, lane, tenant, count),
    )


def test_it_grows_with_the_age_of_the_oldest_due_task(database, dba, ask):
    database.clock.advance(0)
    add(dba)
    assert ask().processes == 1, "a moment ago: somebody will take it"
    database.clock.advance(2)
    found = ask()
    assert (found.processes, found.due, found.oldest_seconds) == (2, 1, 2.0)
    assert ask(8).processes == 8
    do(dba, "select octop_config_set('worker.scale_age_seconds', '10')")
    assert ask().processes == 1


def test_it_grows_with_the_backlog_twice_where_that_is_worth_it(database, dba, ask):
    database.clock.advance(0)
    add_many(dba, 350)
    assert [ask(count).processes for count in (1, 2, 3, 4)] == [2, 4, 6, 4]
    do(dba, "select octop_config_set('worker.scale_backlog', '1000')")
    assert ask(1).processes == 1


def test_what_nobody_may_start_now_is_no_reason(database, dba, ask):
    add(dba, delay_seconds=3600)
    add(dba, queue="paused")
    add(dba, queue="none")
    add(dba, queue="others")
    do(dba, "select octop_pause('paused'), octop_scale('none', 0)")
    database.clock.advance(60)
    assert ask(queues=("default", "paused", "none")).due == 0
    assert ask(queues=("default", "others", "others")).due == 1


def test_a_queue_whose_limit_is_full_is_no_reason_until_a_place_is_free(database, dba, ask):
    database.clock.advance(0)
    do(dba, """select octop_set_queue('one', '{"global_limit": 1}')""")
    with database.connect("octop_worker") as connection:
        worker = Crew(connection, queues=("one",))
        worker.register()
        add_many(dba, 3, queue="one")
        assert ask(queues=("one",)).due == 3
        (task,) = worker.claim()
        assert ask(queues=("one",)).due == 0
        worker.succeed(task)
        assert ask(queues=("one",)).due == 2


@pytest.mark.parametrize("rules", ['{"lane_limit": 1}', '{"lane_rate": 0.001}', '{"ordered": true}'])
def test_lanes_that_let_nothing_start_are_no_reason_until_one_does(database, dba, ask, rules):
    database.clock.advance(0)
    do(dba, "select octop_set_queue('lanes', %s)", rules)
    with database.connect("octop_worker") as connection:
        many(dba, 500, queue="lanes", lane="a")
        many(dba, 500, queue="lanes", lane="b")
        database.clock.advance(60)
        worker = Crew(connection, queues=("lanes",))
        worker.register()
        # of each lane one may start, whatever waits behind it
        assert ask(queues=("lanes",)).due == 2
        tasks = worker.claim(10)
        assert len(tasks) == 2
        assert ask(4, queues=("lanes",)).due == 0
        assert ask(4, queues=("lanes",)).processes == 4, "it does not grow"
        # a task without a lane, and one of a lane that is open, are reasons
        add(dba, queue="lanes", lane="c")
        add(dba, queue="lanes")
        assert ask(queues=("lanes",)).due == 2
        worker.succeed(*tasks)
        assert ask(queues=("lanes",)).due == (2 if "rate" in rules else 4)


def test_what_is_held_by_type_tenant_or_lane_is_no_reason(database, dba, ask):
    database.clock.advance(0)
    many(dba, 300, queue="q", lane="a")
    many(dba, 300, queue="q", tenant="acme")
    many(dba, 300, queue="q", task_type="held")
    assert ask(queues=("q",)).due == 900
    do(dba, "select octop_hold('lane', 'a', 'q'), octop_hold('tenant', 'acme')")
    assert ask(queues=("q",)).due == 300
    do(dba, "select octop_freeze('held')")
    database.clock.advance(60)
    found = ask(4, queues=("q",))
    assert (found.due, found.processes, found.oldest_seconds) == (0, 4, 0)
    do(dba, "select octop_lift('tenant', 'acme')")
    assert ask(queues=("q",)).due == 300


def test_a_look_at_many_lanes_reads_as_much_as_one_at_few(dba, ask):
    do(dba, """select octop_set_queue('lanes', '{"lane_limit": 1}')""")
    seen = {}
    for first, last in ((1, 1_000), (1_001, 20_000)):
        do(
            dba,
            "insert into octop_tasks (task_type, queue, lane) select 't', 'lanes', 'lane ' || n from generate_series(%s::integer, %s) n",
            first,
            last,
        )
        do(dba, "vacuum analyze octop_tasks_live")
        seen[last] = rows_read(dba, "lanes")
        assert ask(queues=("lanes",)).due == 200
    assert seen[20_000] <= seen[1_000] + 10, seen
    assert seen[1_000] < 2_000, seen


def test_tasks_in_lanes_and_of_any_priority_count(database, dba, ask):
    database.clock.advance(0)
    for number in range(3):
        add(dba, lane=f"l{number}", priority=number)
        add(dba, priority=9 - number)
    add(dba, lane="l", delay_seconds=600)
    database.clock.advance(5)
    found = ask()
    assert (found.due, found.oldest_seconds) == (6, 5.0)


def test_it_shrinks_by_one_after_a_time_without_need_and_no_sooner(dba, ask):
    quiet, seen = 0, []
    for _ in range(13):
        found = ask(4, quiet)
        quiet = found.quiet
        seen.append(found.processes)
    assert seen == [4, 4, 4, 4, 4, 3] * 2 + [4], "each sixth look of five seconds"
    assert ask(1, 100).processes == 1


def test_a_moment_of_need_begins_the_time_anew(database, dba, ask):
    assert ask(4, 4).quiet == 5
    add(dba)
    assert ask(4, 5).quiet == 0


def test_processes_that_all_run_something_are_needed(database, dba, ask):
    supervisor = str(uuid4())
    with database.connect("octop_worker") as connection:
        worker = Crew(connection)
        worker.register()
        do(dba, "update octop_workers set supervisor_id = %s", supervisor)
        add(dba)
        claimed = worker.claim_one()
        assert ask(1, 50, minimum=0, supervisor=supervisor).processes == 1
        assert ask(2, 50, supervisor=supervisor).processes == 1, "the other one ran nothing"
        worker.succeed(claimed)
        assert ask(1, 50, minimum=0, supervisor=supervisor).processes == 0


def test_it_stays_between_its_bounds_and_refuses_those_that_are_none(ask):
    assert ask(1, minimum=3).processes == 3
    assert ask(9, maximum=4).processes == 4
    for bounds in ({"minimum": 5, "maximum": 4}, {"minimum": -1}, {"maximum": 257}, {"processes": -1}):
        with pytest.raises(InvalidOptionError, match="processes must be 0 to 256"):
            ask(**bounds)


def test_a_million_future_tasks_in_front_are_not_read(dba, ask):
    do(
        dba,
        "insert into octop_tasks (task_type, scheduled_at) select 't', now() + interval '1 day' from generate_series(1, 20000)",
    )
    add(dba)
    do(dba, "vacuum analyze octop_tasks_live")
    assert rows_read(dba, "default") < 10


def rows_read(dba, queue):
    """Return how many rows a look at a queue fetches by indexes."""
    fetched = "select sum(idx_tup_fetch) from pg_stat_xact_user_tables where relname = 'octop_tasks_live'"
    with dba.transaction():
        before = dba.execute(fetched).fetchone()
        dba.execute("select * from _octop_due_in(%s)", (queue,))
        after = dba.execute(fetched).fetchone()
    return after[0] - before[0]
