"""The how-to pages, each as one story: its Python, its SQL and its commands in the order in which they stand."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner

from octop.cli.root import root
from octop.model.settings import load_settings
from tests.docs.pages import HOUSE, HOW_TO, at_once, blocks, commands, environment, octop
from tests.docs.story import Story

STORY = """
import ast, asyncio, inspect, sys
code = compile(open("story.py").read(), "story.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
answer = eval(code, {"__name__": "story"})
if inspect.iscoroutine(answer):
    asyncio.run(answer)
"""


def printed(code: str) -> list[str]:
    """Return what a story prints, as the comments behind or below each print say."""
    return re.findall(r"^ *print\(.*\)(?:  |\n)# (.*)$", code, re.MULTILINE)


@contextlib.contextmanager
def worker(folder: Path, url: str) -> Iterator[None]:
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "octop", "worker", "-A", "tasks:octop", "--grace", "1"],
            cwd=folder,
            env=environment(url),
            stderr=log,
        )
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, (folder / "worker.log").read_text()
        finally:
            process.kill()
            process.wait()


def test_write_tasks(database, tmp_path):
    page = HOW_TO / "write-tasks.md"
    found = blocks(page, "python")
    (tmp_path / "tasks.py").write_text("\n\n".join(each for each in found if each.startswith("# tasks.py")))
    story = "\n".join(each for each in found if not each.startswith("# tasks.py"))
    (tmp_path / "story.py").write_text(story)
    with worker(tmp_path, database.url):
        told = subprocess.run(
            [sys.executable, "-c", STORY],
            cwd=tmp_path,
            env=environment(database.url),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert told.returncode == 0, told.stderr + (tmp_path / "worker.log").read_text()
        assert told.stdout.splitlines() == printed(story)
        for text in blocks(page, "sql"):
            database.psql(text)
        lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
        (enqueue,) = [line for line in lines if line.startswith("octop enqueue")]
        assert "hello, Eve" in at_once(*shlex.split(enqueue)[1:], url=database.url)
    with database.connect() as connection:
        # what the page promises about a payload that does not fit
        connection.execute(
            "update octop_tasks set status = 'cancelled' where status in ('pending', 'blocked', 'failed')"
        )
        connection.execute(
            "insert into octop_tasks (task_type, payload, max_retries) values ('greet', '{\"nam\": 1}', 0)"
        )
        octop("worker", "-A", "tasks.py", "--drain", folder=tmp_path, url=database.url)
        (row,) = connection.execute("select last_error from octop_tasks where status = 'frozen'").fetchall()
        assert "unexpected argument 'nam'" in row[0]


def test_run_in_production(empty_database, tmp_path):
    page = HOW_TO / "run-in-production.md"
    with empty_database.connect() as connection:
        connection.execute("revoke create on schema public from public")  # the default since PostgreSQL 15
    rename = {name: f"{empty_database.name}_{name}" for name in ("my_app", "my_oncall")}  # roles belong to the server
    empty_database.roles.extend(rename.values())
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(blocks(HOUSE / "README.md", "python")[0])
    with Story(page, tmp_path, url=empty_database.url, rename=rename) as story:
        story.run()
        assert "welcome, 5" in story.command("octop enqueue send_welcome user_id=5 --wait --wait-timeout 30")
    oncall = empty_database.url_as(rename["my_oncall"])
    for words in commands(page):
        if words[0] in ("failures", "workers") or words[:2] in (["tasks", "list"], ["queues", "list"]):
            at_once(*words, url=oncall)
    acts = empty_database.connect().execute(
        "select action, role from octop_audit where role = %s", (rename["my_oncall"],)
    )
    assert len(acts.fetchall()) >= 4


def test_the_settings_page(database, tmp_path, monkeypatch):
    page = HOUSE / "docs" / "reference" / "settings.md"
    Story(page, tmp_path, url=database.url).run()
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}).app == "shop.tasks:octop"


@pytest.mark.parametrize("name", ["filters", "doctor"])
def test_the_lines_of_a_page_of_reference(name, database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = HOUSE / "docs" / "reference" / f"{name}.md"
    lines = [line for language in ("", "bash") for block in blocks(page, language) for line in block.splitlines()]
    lines = [line for line in lines if line.startswith("octop ")]
    assert len(lines) >= 4
    for line in lines:
        answer = CliRunner().invoke(root, shlex.split(line, comments=True)[1:], env={"OCTOP_DSN": database.url})
        # the doctor ends with 1 when it finds something, as it may on a server of the tests
        assert answer.exit_code in ((0, 1) if name == "doctor" else (0,)), f"{line}: {answer.output}"


def test_how_a_task_lives(database, tmp_path):
    def freeze() -> None:
        with database.connect() as connection:
            connection.execute("insert into octop_tasks (task_type, max_retries) values ('charge', 0)")
            worker = uuid4()
            connection.execute(
                """select octop_register(%s, '', '', 1, null, '', '{default}', '[{"name": "charge"}]')""", [worker]
            )
            connection.execute("select * from octop_exchange(%s, '{default}', '{1}', '{charge}')", [worker])
            connection.execute("select octop_lost(%s)", [worker])

    page = HOUSE / "docs" / "explanation" / "how-a-task-lives.md"
    Story(page, tmp_path, url=database.url, events={"a task has frozen": freeze}).run()
    row = database.connect().execute("select status, retry_count from octop_tasks").fetchone()
    assert row == ("pending", 0)


def test_article_index(database):
    unique, plain, better = blocks(HOW_TO / "article-index.md", "sql")
    twin = """insert into octop_tasks (task_type, payload) values ('send', '{"user_id": 42}')"""
    with database.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            connection.execute(unique.replace("on octop_tasks_live ", "on octop_tasks "))
        assert refused.value.sqlstate == "0A000"
        for statement in (unique, plain, "reset role", twin):
            connection.execute(statement)
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(twin)
        # what the first condition lets through and the better one does not: a twin of a parked task
        park = "update octop_tasks_live set status = 'blocked', blocked_by = 'task_type:send' where status = 'pending'"
        register = (
            """select octop_register(gen_random_uuid(), '', '', 1, null, '', '{default}', '[{"name": "send"}]')"""
        )
        for statement in (park, twin, park):
            connection.execute(statement)
        # one of the two comes back, the other stays parked, and no worker is kept from starting
        connection.execute(register)
        found = connection.execute("select status, count(*) from octop_tasks group by 1 order by 1").fetchall()
        assert found == [("blocked", 1), ("pending", 1)]
        for statement in ("delete from octop_tasks", better, "reset role", twin, park):
            connection.execute(statement)
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(twin)
        connection.execute(register)


def test_the_job_of_pg_cron_enqueues_once_a_night_as_the_file_does(database):
    folder = HOUSE / "examples" / "nightly_report"
    (statement,) = blocks(folder / "README.md", "sql")
    (job,) = (each.replace("''", "'") for each in re.findall(r", '\n(.*)'\);", statement, re.DOTALL))
    (file,) = re.findall(r"^SELECT.*(?=;)", (folder / "enqueue.sql").read_text(), re.MULTILINE | re.DOTALL)
    assert job.split() == file.split()
    with database.connect(database.make_role("octop_producer")) as login:
        ((one, new),) = login.execute(job.encode()).fetchall()
        assert login.execute(job.encode()).fetchall() == [(one, False)]
        assert new
    with database.connect(database.make_role()) as nobody, pytest.raises(psycopg.errors.InsufficientPrivilege):
        nobody.execute(job.encode())
