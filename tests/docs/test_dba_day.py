"""A DBA's day, as the page tells it: each login with its psql, and all in one psql; the tables of the page tried out."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from octop.engine import script
from tests.docs.pages import HOW_TO, blocks
from tests.docs.story import Block, Story, blocks_of
from tests.servers import Database
from tests.sql.crew import Worker, add, ages, column, do, rows, value

PAGE = HOW_TO / "dba-day.md"
FIVE = ("owner", "producer", "worker", "operator", "viewer")


class Day:
    """What happens meanwhile, in a database of its own, with roles of its own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.prefix = f"s{uuid4().hex[:8]}_"
        database.roles.extend(self.prefix + each for each in ("app", "oncall", *FIVE))
        self.today = datetime.now(UTC).replace(hour=12)
        self.archived = f"octop_tasks_done_{self.today - timedelta(days=9):%Y%m%d}"
        self.ahead = f"octop_tasks_done_{self.today + timedelta(days=25):%Y%m%d}"
        self.left_open = contextlib.ExitStack()

    @property
    def rename(self) -> dict[str, str]:
        return {
            "shop_": self.prefix,
            "octop_tasks_done_20260131": self.archived,
            "octop_tasks_done_20270131": self.ahead,
        }

    @property
    def events(self) -> dict[str, Callable[[], object]]:
        return {
            "a program has opened a transaction and says nothing": self.open_transaction,
            "a worker has claimed a task and says nothing": self.claim,
            "the workers have been stopped": lambda: self.do("delete from octop_workers"),
            "one of them is in history": lambda: self.finish(0),
            "nine days have gone by": lambda: self.finish(9, 8),
            "two more days have gone by": lambda: self.finish(2),
            "somebody has made days far ahead": lambda: self.do("select octop_make_days(25)"),
        }

    def do(self, statement: str, *values: object) -> int:
        with self.database.connect() as connection:
            return do(connection, statement, *values)

    def claim(self) -> None:
        with self.database.connect() as connection:
            worker = Worker(connection, queues=["mail"], types=["send_welcome", "send_reminder"])
            worker.register()
            do(connection, "select * from octop_exchange(%s, '{mail}', '{1}', '{send_welcome}')", worker.id)

    def finish(self, *days_ago: int) -> None:
        """Leave tasks that ended with success at noon of these days."""
        with self.database.connect() as connection:
            worker = Worker(connection, queues=["old"], types=["send_reminder"])
            worker.register()
            for each in days_ago:
                do(connection, "insert into octop_tasks (task_type, queue) values ('send_reminder', 'old')")
                task = worker.claim_one()
                worker.succeed(task)
                at = self.today - timedelta(days=each)
                do(connection, "update octop_tasks set completed_at = %s where id = %s", at, task.id)
                do(connection, "select octop_make_days()")

    def open_transaction(self) -> None:
        login = self.database.url_as(f"{self.prefix}app")
        connection = self.left_open.enter_context(contextlib.closing(psycopg.connect(login)))
        connection.execute("insert into octop_tasks (task_type) values ('never_committed')")

    def roles(self) -> list[str]:
        with self.database.connect() as connection:
            names = "select rolname::text from pg_roles where starts_with(rolname, %s) order by 1"
            return [each.removeprefix(self.prefix) for each in column(connection, names, self.prefix)]


@pytest.fixture
def day(empty_database) -> Iterator[Day]:
    with empty_database.connect() as connection:
        do(connection, "revoke create on schema public from public")  # the default since PostgreSQL 15
    found = Day(empty_database)
    with found.left_open:
        yield found


def test_a_day_of_a_dba_with_psql_alone(day, tmp_path):
    database, copy = day.database, f"{day.prefix}history"
    story = Story(PAGE, tmp_path, url=database.url, rename=day.rename, events=day.events)
    try:
        with story:
            for block in blocks_of(PAGE):
                if "createuser" in block.body:
                    all_is_gone(day)
                story.step(block)
        dropped = "".join(next(each for each in story.printed if "octop_drop_days" in each).split())
        assert dropped == "octop_drop_days-----------------2(1row)"
        with Database(database.server, copy).connect() as connection:
            (lines,) = story.command("wc -l < octop_tasks.csv").split()
            assert value(connection, "select count(*) from octop_tasks") == int(lines) - 1 > 0
            assert value(connection, "select count(*) from octop_audit") > 3
            assert value(connection, "select octop_enqueue('again') is not null")
            assert value(connection, "select days_made from octop_sweep(octop_uuid7())") == 0, "nothing fails in it"
    finally:
        story.command(f"dropdb --force --if-exists {copy}")


def all_is_gone(day: Day) -> None:
    with day.database.connect() as connection:
        left = rows(
            connection,
            "select relname, relnamespace::regnamespace::text from pg_class where relname ~ '^_?octop_' and relkind <> 'i'",
        )
        assert left == [(day.archived, "archive")]
        for name, tasks in ((day.archived, 1), ("tasks", 3)):
            assert value(connection, f"select count(*) from archive.{name}") == tasks
    assert day.roles() == ["app", "oncall"]


def test_all_sql_of_the_page_may_be_pasted_into_one_psql_from_top_to_bottom(day, tmp_path):
    with Story(PAGE, tmp_path, url=day.database.url, rename=day.rename, events=day.events, one_psql=True) as story:
        for block in blocks_of(PAGE):
            if "octop sql uninstall" in block.body:
                break
            # beside it the shell of the page: the installation, the end of the open transaction, the day that is moved away
            if block.language in ("sql", "bash") or re.search(r"install\.sql|pg_terminate_backend", block.body):
                story.step(block)
            if block.language == "sql":
                story.step(Block("sql", "select current_user = session_user as same;", (), block.line))
                assert story.printed[-1].split()[2] == "t", f"line {block.line} leaves its role set"


def test_roles_that_an_uninstallation_has_left_go_like_any_others(day):
    place = script.Place("public", day.prefix)
    day.database.psql(script.install_script(place, "1"))
    day.database.psql(script.uninstall_script(place, "1"))
    assert day.roles() == sorted(FIVE)
    assert "not installed" in day.database.psql(script.uninstall_script(place, "1", roles=True), check=False)
    (drop,) = [each for each in blocks(PAGE, "sql") if each.startswith("DROP ROLE")]
    day.database.psql(drop.replace("shop_", day.prefix))
    assert day.roles() == []


# --- why a task does not run -----------------------------------------------------------------------------------------


def reasons() -> list[str]:
    """Return the conditions of the page's table."""
    text = PAGE.read_text().partition("| what the row says |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(.*?)` \|", text, re.MULTILINE)


def true_of(connection, task: str) -> list[str]:
    """Return those of the conditions that hold for a task, by the query of the page."""
    (query,) = [each for each in blocks(PAGE, "sql") if "AS frozen_type" in each]
    query = query.replace("(SELECT id FROM octop_tasks LIMIT 1)", f"'{task}'::uuid").rstrip().removesuffix(";")
    listed = ", ".join(f"(select {each} from page)" for each in reasons())
    ((*answers,),) = rows(connection, f"with page as ({query}) select {listed}")
    return [each for each, answer in zip(reasons(), answers, strict=True) if answer]


def test_each_reason_for_which_a_task_does_not_run_shows_in_its_line_alone(database):
    due, unserved, paused, scaled, frozen_type, unknown, frozen, silent = reasons()
    oncall = database.make_role("octop_operator")
    with database.connect() as dba, database.connect(oncall) as connection:
        worker = Worker(dba, queues=["q"], types=["t"])
        worker.register()

        def enqueue(task_type: str = "t", queue: str = "q", **options: object) -> str:
            return add(dba, task_type, queue=queue, **options)

        task = enqueue()
        assert true_of(connection, task) == []
        assert true_of(connection, str(uuid4())) == [], "no row, no reason"
        assert true_of(connection, enqueue(delay_seconds=60)) == [due]
        assert true_of(connection, enqueue(queue="nobody's")) == [unserved]
        assert true_of(connection, enqueue(task_type="misspelt")) == [unknown]
        assert true_of(connection, enqueue(min_version=2)) == [unknown]
        for begin, end, line in (
            ("octop_pause('q')", "octop_resume('q')", paused),
            ("octop_scale('q', 0)", "octop_scale('q', null)", scaled),
            ("octop_freeze('t')", "octop_thaw('t')", frozen_type),
        ):
            do(connection, f"select {begin}")
            assert true_of(connection, task) == [line]
            do(connection, f"select {end}")
            assert true_of(connection, task) == []
        (claimed,) = worker.claim()
        assert true_of(connection, claimed.id) == []
        ages(dba, 40, worker.id)
        assert true_of(connection, claimed.id) == [unserved, silent]
        do(dba, "delete from octop_workers")
        assert silent in true_of(connection, claimed.id)
        worker.register()
        do(dba, "update octop_tasks set max_retries = 0")
        do(connection, "select octop_lost(%s)", worker.id)
        worker.register()
        assert true_of(connection, claimed.id) == [frozen]


# --- alarms ----------------------------------------------------------------------------------------------------------


def test_each_alarm_is_silent_until_there_is_a_reason(database):
    (query,) = [each for each in blocks(PAGE, "sql") if "AS alarm" in each]
    oncall = database.make_role("octop_operator")
    with database.connect() as dba, database.connect(oncall) as connection:

        def alarms() -> list[str]:
            return sorted(column(connection, query))

        worker = Worker(dba, queues=["q"], types=["t", "u"])
        worker.register()
        worker.sweep()
        tasks = [add(dba, queue="q", max_retries=0) for _ in range(3)]
        assert alarms() == []

        stray = add(dba, queue="nobody's")
        assert alarms() == ["no worker serves the queue nobody's"]
        do(dba, "select octop_cancel(%s)", stray)
        do(dba, "update octop_tasks set scheduled_at = now() - interval '6 minutes' where id = %s", tasks[0])
        assert len(alarms()) == 1
        assert alarms()[0].startswith("the queue q is behind since ")
        do(connection, "select octop_pause('q')")
        assert alarms() == [], "who pauses knows it"
        do(dba, "update octop_holds set created_at = now() - interval '25 hours'")
        assert alarms() == ["paused for a day: the queue q"]
        do(connection, "select octop_resume('q')")

        worker.claim(3)
        assert alarms() == []
        ages(dba, 40, worker.id)
        assert alarms() == ["a worker on here is silent and holds tasks"]
        do(connection, "select octop_lost(%s)", worker.id)
        assert alarms() == ["3 tasks are frozen"]
        do(dba, "delete from octop_tasks")
        database.clock.advance(minutes=26)
        assert alarms() == [f"nobody does the chore {name}" for name in ("alerts", "days", "purge")]


# --- days ------------------------------------------------------------------------------------------------------------


def test_who_drops_days_hears_who_reads_them_as_the_page_says(database):
    (said,) = re.findall(r"`(octop: 2 days are over.*?)`", PAGE.read_text())
    with (
        database.connect() as dba,
        database.connect(database.make_role("octop_operator")) as oncall,
        database.connect(autocommit=False) as reader,
    ):
        notices: list[str | None] = []
        oncall.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        database.clock.advance(days=-9)
        do(dba, "select octop_make_days(1)")
        database.clock.advance(days=9)
        rows(reader, "select count(*) from octop_tasks")
        assert value(oncall, "select octop_drop_days(1)") == 0
        assert notices == [said.replace("4711", str(reader.info.backend_pid))]
        reader.rollback()
        assert value(oncall, "select octop_drop_days(1)") == 2
        assert value(oncall, "select octop_drop_days(1)") == 0
        assert value(oncall, "select octop_make_days(61)") > 0
        assert notices[1:] == ["octop: days are made at most 60 ahead, not 61"], "nothing to do: nothing is said"
