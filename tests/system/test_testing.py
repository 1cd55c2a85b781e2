"""octop.testing: a database per test, a drain on the real engine, assertions, the clock, applications that are pointed at it."""

from __future__ import annotations

import asyncio
import doctest
import os
import subprocess
import sys
import textwrap
import traceback
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from octop import Cancel, Context, Octop, Retry, Snooze, Status
from octop.engine import throwaway
from octop.engine.throwaway import Throwaways, fingerprint, url_of
from octop.model.errors import ConfigurationError, InvalidOptionError, InvalidTimeError, NotPermittedError
from octop.testing import DrainLimitError, Server, active, bent_clock, server
from tests.servers import HOUSE

NINE = datetime(2031, 1, 6, 9, tzinfo=UTC)


@pytest.fixture(scope="session")
def testing(postgres):
    """The test databases of this run, on the server of the run."""
    with Server(postgres.url()) as server:
        yield server


@pytest.fixture
def octop():
    made = Octop("postgresql://nobody.invalid/production")

    @made.task(queue="mail", max_retries=2, retry=[60, 600])
    async def send(user_id: int, note: str = "") -> str:
        return f"sent to {user_id}{note}"

    @made.task
    def report(day: date) -> dict[str, date]:
        return {"day": day}

    @made.task(max_retries=1)
    def refuse(number: int) -> None:
        message = f"no {number}"
        raise ValueError(message)

    yield made
    made.close()


@pytest.fixture
def place(testing, octop):
    with testing.database() as made, made.override(octop):
        yield made


# --- databases --------------------------------------------------------------------------------------------------------


@pytest.mark.all_versions
def test_each_database_is_a_copy_of_a_template_that_is_made_once(postgres):
    made = f"octop_template_{fingerprint('public')}"
    with Server(postgres.url()) as server:
        with server.database() as first, server.database() as second:
            assert first.name != second.name
            with psycopg.connect(first.dsn, autocommit=True) as connection:
                connection.execute("insert into octop_tasks (task_type) values ('only here')")
            assert [task.task for task in first.enqueued()] == ["only here"]
            assert second.enqueued() == []
            names = existing(postgres, "octop_te%")
            assert {first.name, second.name} <= names
            oid = ask(postgres.url(), "select oid from pg_database where datname = %s", made)
        assert not {first.name, second.name} & existing(postgres, "octop_te%"), "dropped at the end"
    with Server(postgres.url()) as server, server.database():
        assert ask(postgres.url(), "select oid from pg_database where datname = %s", made) == oid
    with pytest.raises(psycopg.OperationalError, match="not currently accepting connections"):
        psycopg.connect(postgres.url(made))


def test_a_database_is_dropped_whoever_is_connected_and_whatever_the_test_raised(postgres, testing):
    names, connections = [], []

    def body():
        with testing.database() as made:
            names.append(made.name)
            connections.append(psycopg.connect(made.dsn))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert not existing(postgres, "octop_test_%") & set(names)
    with pytest.raises(psycopg.OperationalError):
        connections[0].execute("select 1")


def test_another_schema_has_its_own_template(testing):
    app = Octop(schema="jobs")

    @app.task
    def work() -> str:
        return "done"

    with testing.database("jobs") as made, made.override(app):
        work.enqueue_sync()
        assert made.clock.freeze(NINE) == NINE
        assert [ran.result for ran in made.drain()] == ["done"]
        assert ask(made.dsn, "select count(*) from jobs.octop_tasks where status = 'success'") == 1


PROCESS = """
import sys
from octop.testing import Server

with Server(sys.argv[1]) as server, server.database() as database:
    print(database.name, flush=True)
    sys.stdin.readline()
"""


def process(postgres, *, text=PROCESS):
    return subprocess.Popen(
        [sys.executable, "-c", text, postgres.url()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_processes_that_want_the_template_at_once_make_one(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        # as after an upgrade: nobody has it
        name = f"octop_template_{fingerprint('public')}"
        if name in existing(postgres, "octop_te%"):
            connection.execute(f"alter database {name} is_template false")
            connection.execute(f"drop database {name}")
    many = [process(postgres) for _ in range(4)]
    names = {each.stdout.readline().strip() for each in many}
    assert len(names) == 4
    assert names < existing(postgres, "octop_te%")
    for each in many:
        each.communicate("\n", timeout=30)
        assert each.returncode == 0
    assert not names & existing(postgres, "octop_te%")


def test_databases_of_a_run_that_was_killed_are_dropped_by_the_next_those_of_living_ones_stay(postgres):
    killed, living = process(postgres), process(postgres)
    names = [each.stdout.readline().strip() for each in (killed, living)]
    killed.kill()
    killed.communicate()
    wait_for(
        postgres,
        "select not exists (select from pg_locks where locktype = 'advisory' and objid = %s)",
        int(names[0].split("_")[3], 16),
    )
    with Server(postgres.url()) as server, server.database():
        there = existing(postgres, "octop_test_%")
    assert (names[0] in there, names[1] in there) == (False, True)
    living.communicate("\n", timeout=30)


def test_the_oldest_templates_go(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        old = [f"octop_template_{number:016x}" for number in range(5)]
        for name in old:
            connection.execute(f"create database {name} template template0 is_template true")
        throwaways = Throwaways(postgres.url())
        try:
            throwaways._drop_old_templates()
        finally:
            throwaways.close()
        left = existing(postgres, "octop_template_0000%")
        assert left < set(old)
        assert old[-1] in left
        assert len(existing(postgres, "octop_template_%")) == 3
        for name in left:
            connection.execute(f"alter database {name} is_template false")
            connection.execute(f"drop database {name}")


def test_a_login_that_may_not_create_databases_is_told_so(postgres, empty_database):
    role = empty_database.make_role()
    with (
        Server(empty_database.url_as(role)) as server,
        pytest.raises(NotPermittedError, match="permission denied"),
        server.database(),
    ):
        pass


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("postgresql://ann:s%40x@db:5433/shop?sslmode=require", "postgresql://ann:s%40x@db:5433/t?sslmode=require"),
        ("host=/run/pg user=ann", "postgresql:///t?user=ann&host=/run/pg"),
        ("fallback_application_name=octop", "postgresql:///t?fallback_application_name=octop"),
    ],
)
def test_any_dsn_becomes_a_url_of_another_database(dsn, url):
    made = url_of(dsn, "t")
    assert made == url
    assert psycopg.conninfo.conninfo_to_dict(made) == {**psycopg.conninfo.conninfo_to_dict(dsn), "dbname": "t"}


@pytest.mark.slow
def test_without_a_server_a_private_one_runs_as_long_as_somebody_tests(postgres, tmp_path):
    story = textwrap.dedent(
        """
        import pathlib, sys
        from octop.engine import private_database
        from octop.testing import Server, server
        folder = pathlib.Path(sys.argv[1])
        folder.mkdir()
        folder.chmod(0o711)
        server.private_folder = lambda: folder
        with Server() as one:
            with Server() as two, two.database() as database:
                assert database.enqueued() == []
            with one.database() as database:
                assert private_database.status(folder / "server") is not None
        assert private_database.status(folder / "server") is None
        (folder / "server" / "data" / "PG_VERSION").write_text("9")   # another version's data, or a broken disk
        with Server() as one, one.database(keep=True) as database:
            print(database.enqueued())
        import psycopg
        psycopg.connect(database.dsn).close()   # it was kept, and its server runs on
        with Server() as one, one.database():
            pass
        assert private_database.status(folder / "server") is None
        private_database.reset(folder / "server")
        """
    )
    folder = postgres.directory.parent / f"private-{os.getpid()}"
    environment = {name: value for name, value in os.environ.items() if name != "OCTOP_TEST_DSN"}
    answer = subprocess.run(
        [sys.executable, "-c", story, folder],
        env=environment,
        cwd=HOUSE,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (0, "[]\n"), answer.stderr


# --- drain ------------------------------------------------------------------------------------------------------------


@pytest.mark.all_versions
def test_drain_runs_what_is_due_on_the_real_engine_and_says_what_ran(place, octop):
    send, report = octop.named("send"), octop.named("report")
    send.enqueue_sync(42)
    handle = report.enqueue_sync(date(2031, 1, 6))
    send.using(delay=60).enqueue_sync(43)
    ran = place.drain()
    assert [(each.task, each.status, each.result) for each in ran] == [
        ("send", Status.SUCCESS, "sent to 42"),
        ("report", Status.SUCCESS, {"day": date(2031, 1, 6)}),
    ]
    assert (ran[0].arguments, ran[0].queue, ran[0].attempt, ran[0].error) == ({"user_id": 42}, "mail", 1, None)
    assert handle.result_sync(timeout=1) == {"day": date(2031, 1, 6)}
    assert place.drain() == []
    assert ask(place.dsn, "select count(*) from octop_workers") == 0
    assert [task.payload for task in place.enqueued()] == [{"user_id": 43}]


def test_drain_runs_what_tasks_enqueue_also_in_queues_that_nobody_named(place, octop):
    send = octop.named("send")

    @octop.task
    async def fan_out() -> None:
        for number in range(3):
            await send.using(queue="elsewhere", lane=f"lane {number}").enqueue(number)

    fan_out.enqueue_sync()
    ran = place.drain()
    assert [each.task for each in ran] == ["fan_out", "send", "send", "send"]
    assert len(ran.of("send")) == 3


def test_the_worst_priority_comes_last_and_what_is_paused_stays(place, octop):
    send = octop.named("send")
    for priority in (9, 0, 5):
        send.using(priority=priority).enqueue_sync(priority)
    assert [ran.arguments["user_id"] for ran in place.drain()] == [0, 5, 9]
    send.enqueue_sync(1)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("select octop_pause('mail')")
    assert place.drain() == []
    assert len(place.enqueued(send)) == 1


def test_tasks_of_unknown_types_and_hundreds_of_lanes_do_not_stand_in_the_way(place, octop):
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute(
            "insert into octop_tasks (task_type, queue) select 'stranger', 'mail' from generate_series(1, 60)"
        )
        connection.execute(
            """insert into octop_tasks (task_type, queue, lane, payload, scheduled_at)
               select 'send', 'mail', 'lane ' || lpad(n::text, 4, '0'), jsonb_build_object('user_id', n), now() + interval '1 day'
                 from generate_series(1, 1500) n"""
        )
    octop.named("send").using(lane="zz").enqueue_sync(7)
    assert [ran.arguments for ran in place.drain()] == [{"user_id": 7}]
    assert {task.status for task in place.enqueued("stranger")} == {Status.BLOCKED}


def test_a_failure_is_raised_with_the_tasks_own_traceback(place, octop):
    octop.named("refuse").enqueue_sync(7)
    with pytest.raises(ValueError, match="no 7") as raised:
        place.drain()
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.name, last.filename) == ("refuse", __file__)
    (note,) = raised.value.__notes__
    assert note.startswith("the task refuse ")
    assert note.endswith("attempt 1, is failed now")


def test_several_failures_are_raised_together(place, octop):
    for number in range(2):
        octop.named("refuse").enqueue_sync(number)
    octop.named("send").enqueue_sync(1)
    with pytest.raises(ExceptionGroup, match=r"2 of 3 tasks failed: refuse \(2\)") as raised:
        place.drain()
    assert [str(error) for error in raised.value.exceptions] == ["no 0", "no 1"]
    assert all(traceback.extract_tb(each.__traceback__)[-1].name == "refuse" for each in raised.value.exceptions)


def test_failures_may_be_looked_at_instead(place, octop):
    octop.named("refuse").enqueue_sync(7)
    ran = place.drain(raise_failures=False)
    assert [(each.status, str(each.error)) for each in ran.failures] == [(Status.FAILED, "no 7")]
    assert ask(place.dsn, "select error_message from octop_attempts") == "no 7"


def test_with_scheduled_delays_and_retries_come_to_their_end(place, octop):
    tries = []

    @octop.task(max_retries=2, retry=[60, 600])
    def second_time_lucky(context: Context) -> int:
        tries.append(context.attempt)
        if context.attempt < 3:
            raise OSError
        return context.attempt

    place.clock.freeze(NINE)
    second_time_lucky.using(delay=3600).enqueue_sync()
    ran = place.drain(with_scheduled=True)
    assert tries == [1, 2, 3]
    assert [each.status for each in ran] == [Status.FAILED, Status.FAILED, Status.SUCCESS]
    assert ran.failures == [], "it succeeded in the end"
    assert place.clock.now() == NINE + timedelta(hours=1, seconds=660)


def test_until_goes_no_further(place, octop):
    place.clock.freeze(NINE)
    send = octop.named("send")
    for hours in (1, 2, 3):
        send.using(delay=hours * 3600).enqueue_sync(hours)
    assert [ran.arguments["user_id"] for ran in place.drain(until=timedelta(hours=2))] == [1, 2]
    assert place.clock.now() == NINE + timedelta(hours=2)
    assert [ran.arguments["user_id"] for ran in place.drain(until=NINE + timedelta(hours=4))] == [3]
    assert place.clock.now() == NINE + timedelta(hours=4)


def test_a_task_that_enqueues_itself_for_ever_is_found_out(place, octop):
    @octop.task
    def again() -> None:
        again.enqueue_sync()

    again.enqueue_sync()
    with pytest.raises(DrainLimitError, match="after 5 tasks, and there is more to do; it ran again 5 times") as raised:
        place.drain(max_tasks=5)
    assert "enqueue each other" in raised.value.hint
    (left,) = place.enqueued()
    assert left.status == Status.PENDING, "what was claimed is given back"


def test_a_task_that_does_not_end_is_named(place, octop):
    began = []

    @octop.task
    async def waits() -> None:
        began.append(True)
        await asyncio.Event().wait()

    waits.enqueue_sync()
    seconds = 0.1
    while True:  # on a busy machine the time may be over before the task has begun
        with pytest.raises(DrainLimitError, match=rf"after {seconds:g} s: ") as raised:
            place.drain(seconds=seconds)
        (left,) = place.enqueued()
        assert (left.task, left.status) == ("waits", Status.PENDING)
        if began:
            break
        seconds *= 2
    assert "still running: waits" in str(raised.value)


def test_concurrency_lets_tasks_wait_for_each_other(place, octop):
    @octop.task
    async def inner() -> int:
        return 7

    @octop.task
    async def outer() -> int:
        return await (await inner.enqueue()).result(timeout=5)

    outer.enqueue_sync()
    with pytest.raises(DrainLimitError, match="still running: outer") as stopped:
        place.drain(seconds=0.3)
    assert "concurrency=2" in stopped.value.hint
    assert {ran.task: ran.result for ran in place.drain(concurrency=2)} == {"outer": 7, "inner": 7}


def test_snooze_cancel_and_retry_are_no_failures_and_a_time_limit_is_one(place, octop):
    @octop.task
    def snoozes() -> object:
        return Snooze(60)

    @octop.task
    def cancels() -> None:
        reason = "not needed"
        raise Cancel(reason)

    @octop.task
    def wants_again() -> None:
        raise Retry(delay=60)

    @octop.task(timeout=0.05, max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(30)

    for each in (snoozes, cancels, wants_again):
        each.enqueue_sync()
    assert [ran.status for ran in place.drain()] == [Status.PENDING, Status.CANCELLED, Status.FAILED]
    slow.enqueue_sync()
    with pytest.raises(Exception, match=r"over its time limit of 0\.05 s"):
        place.drain()


def test_an_exit_of_a_task_does_not_end_the_test_run(place, octop):
    @octop.task(max_retries=0)
    def leaves() -> None:
        sys.exit(3)

    leaves.enqueue_sync()
    with pytest.raises(Exception, match=r"leaves .* is frozen now: it raised SystemExit\(3\)"):
        place.drain()


def test_a_result_that_postgresql_can_not_keep_fails_its_task(place, octop):
    @octop.task
    def too_deep() -> object:
        return {"text": "\x00"}

    too_deep.enqueue_sync()
    with pytest.raises(Exception, match="NUL|\\\\u0000|x00"):
        place.drain()
    assert ask(place.dsn, "select status from octop_tasks") == "frozen"


def test_process_tasks_and_hooks_run_here(place, octop, monkeypatch):
    told = []
    octop.on_worker_start(lambda: told.append("start"))
    octop.on_worker_stop(lambda: told.append("stop"))
    octop.on_freeze(lambda context, error: told.append(f"freeze {error}"))

    @octop.middleware
    async def around(context, call_next):
        told.append(f"before {context.task_type}")
        return await call_next()

    @octop.task(run_in="process")
    def pid() -> int:
        return os.getpid()

    pid.enqueue_sync()
    octop.named("refuse").using(max_retries=0).enqueue_sync(1)
    ran = place.drain(raise_failures=False)
    assert ran[0].result == os.getpid()
    assert told == ["start", "before pid", "before refuse", "freeze no 1", "stop"]


def test_drain_inside_a_loop_says_what_to_do(place):
    async def story():
        with pytest.raises(ConfigurationError, match="running event loop") as refused:
            place.drain()
        return refused.value.hint, await place.drain_async()

    hint, ran = asyncio.run(story())
    assert "await drain_async()" in hint
    assert ran == []


def test_a_lock_that_the_test_itself_holds_is_reported(place, octop):
    @octop.task
    def locked() -> None:
        holder.execute("select from octop_tasks for update")

    locked.enqueue_sync()
    with psycopg.connect(place.dsn) as holder, pytest.raises(DrainLimitError, match="holds a lock"):
        place.drain(seconds=0.3)


# --- assertions -------------------------------------------------------------------------------------------------------


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


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.all_versions
def test_the_clock_stands_runs_and_goes_back(place, octop):
    before = place.clock.now()
    assert place.clock.freeze(NINE) == NINE == place.clock.now()
    assert place.clock.travel(hours=1, minutes=30) == NINE + timedelta(minutes=90)
    assert place.clock.travel(timedelta(minutes=-90)) == NINE
    octop.named("send").using(at=NINE + timedelta(seconds=1)).enqueue_sync(1)
    assert place.drain() == []
    place.clock.travel(seconds=1)
    assert len(place.drain()) == 1
    place.clock.reset()
    assert timedelta() <= place.clock.now() - before < timedelta(minutes=2)
    ahead = place.clock.travel(days=1)
    assert ahead - before >= timedelta(days=1)
    assert place.clock.now() > ahead, "it runs on"
    assert place.clock.freeze() >= ahead


def test_the_clock_takes_aware_moments_only_and_only_in_a_test_database(place, testing, postgres):
    with pytest.raises(InvalidTimeError, match="naive"):
        place.clock.freeze(datetime(2031, 1, 1))
    for wrong in ({}, {"by": timedelta(1), "hours": 1}, {"fortnights": 1}):
        with pytest.raises(InvalidOptionError):
            place.clock.travel(**wrong)
    from octop.testing import Database

    with pytest.raises(ConfigurationError, match="'octop' can not be moved"):
        Database(postgres.url(), "octop", "public").clock.travel(hours=1)
    with testing.database() as other:
        place.clock.freeze(NINE)
        assert other.clock.now() < NINE, "each database has its own"
        assert ask(other.dsn, "select to_regclass('_octop_test_clock') is null")


# --- applications -----------------------------------------------------------------------------------------------------


def test_an_application_is_pointed_at_the_database_and_back(testing, octop):
    send = octop.named("send")
    before = octop.settings
    with testing.database() as outer, outer.override(octop):
        send.enqueue_sync(1)
        with testing.database() as inner, inner.override(octop):
            send.enqueue_sync(2)
            assert active.current() is inner
            assert [ran.result for ran in inner.drain()] == ["sent to 2"]
        send.enqueue_sync(3)
        assert (
            ask(
                outer.dsn,
                "select count(*) from pg_stat_activity where datname = %s and application_name = 'octop client'",
                inner.name,
            )
            == 0
        )
        assert active.current() is outer
        assert [ran.result for ran in outer.drain()] == ["sent to 1", "sent to 3"]
    assert octop.settings is before
    with pytest.raises(ConfigurationError, match="no test database is in use"):
        active.current()


def test_async_code_finds_its_way_too_and_leaves_no_connection(testing, octop):
    send = octop.named("send")

    async def story():
        with testing.database() as made:
            async with made.override(octop):
                handle = await send.enqueue(5)
                assert await octop.enqueue_many(send.call(number) for number in range(3)) == 3
                ran = await made.drain_async(concurrency=2)
                assert await handle.result(timeout=1) == "sent to 5"
            clients = "select count(*) from pg_stat_activity where datname = %s and application_name = 'octop client'"
            wait_for_dsn(made.dsn, clients.replace("count(*)", "count(*) = 0"), made.name)
            return len(ran)

    assert asyncio.run(story()) == 4


def test_without_an_application_drain_asks_which(testing, octop):
    with testing.database() as made:
        with pytest.raises(ConfigurationError, match="which application"):
            made.drain()
        with made.override(octop):
            octop.named("send").enqueue_sync(1)
        assert len(made.drain(octop)) == 1


def test_enqueue_in_a_transaction_of_the_test(place, octop):
    send = octop.named("send")
    engine = create_engine(place.dsn.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        send.using(connection=session).enqueue_sync(1)
        place.assert_not_enqueued(send)
        session.rollback()
        send.using(connection=session).enqueue_sync(2)
        session.commit()
    engine.dispose()
    place.assert_enqueued(send, args=(2,), count=1)


def test_the_examples_of_the_docstrings_run(place, postgres, monkeypatch):
    monkeypatch.setenv("OCTOP_TEST_DSN", postgres.url())
    names = {"database": place, "datetime": datetime, "UTC": UTC}
    for module in (bent_clock, server, throwaway):
        result = doctest.testmod(module, extraglobs=names)
        assert result.attempted
        assert not result.failed


# --- how the tests ask --------------------------------------------------------------------------------------------------


def ask(url, question, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question, values or None).fetchone()
        return row and row[0]


def existing(postgres, pattern):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        return {
            row[0] for row in connection.execute("select datname from pg_database where datname like %s", (pattern,))
        }


def wait_for(postgres, condition, *values):
    wait_for_dsn(postgres.url(), condition, *values)


def wait_for_dsn(url, condition, *values):
    with psycopg.connect(url, autocommit=True, options="-c statement_timeout=20s") as connection:
        for _ in range(2000):
            row = connection.execute(condition, values or None).fetchone()
            if row and row[0]:
                return
            connection.execute("select pg_sleep(0.005)")
    pytest.fail(f"it did not come: {condition}")
