"""The how-to pages, each as one story: its Python, its SQL and its commands in the order in which they stand."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from octop.model.settings import load_settings
from tests.docs.pages import HOUSE, HOW_TO, at_once, blocks, commands, environment, octop

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
        (enqueue,) = [words for words in commands(page) if words[0] == "enqueue"]
        assert "hello, Eve" in at_once(*enqueue, url=database.url)
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
    grants, watch = blocks(page, "sql")
    assert ["sql", "install"] in commands(page)
    with empty_database.connect() as connection:
        connection.execute("revoke create on schema public from public")  # the default since PostgreSQL 15
    empty_database.psql(at_once("sql", "install", url="postgresql://nobody.invalid"))
    names = {
        name: f"{empty_database.name}_{name}" for name in ("my_app", "my_oncall")
    }  # roles belong to the whole server
    for name, role in names.items():
        grants = grants.replace(name, role)
        empty_database.roles.append(role)
    empty_database.psql(grants)
    (tmp_path / "tasks.py").write_text(blocks(HOUSE / "README.md", "python")[0])
    app, oncall = (empty_database.url_as(role) for role in names.values())
    subprocess.run(
        [sys.executable, "tasks.py"], cwd=tmp_path, env=environment(app), check=True, timeout=60, capture_output=True
    )
    octop("worker", "-A", "tasks:octop", "--drain", "--poll-only", folder=tmp_path, url=app)
    assert "success" in at_once("tasks", "list", url=oncall)
    empty_database.psql(watch, role=names["my_oncall"])
    for words in commands(page):
        if words[0] in ("queues", "config", "failures", "workers") or words[:2] == ["tasks", "list"]:
            at_once(*words, url=oncall)
    acts = empty_database.connect().execute(
        "select action, role from octop_audit where role = %s", (names["my_oncall"],)
    )
    assert len(acts.fetchall()) >= 4


def test_the_settings_page(database, tmp_path, monkeypatch):
    page = HOUSE / "docs" / "reference" / "settings.md"
    for text in blocks(page, "sql"):
        database.psql(text)
    for words in commands(page):
        if words[0] == "config":
            at_once(*words, url=database.url)
    (tmp_path / "octop.toml").write_text(blocks(page, "toml")[0])
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}).app == "shop.tasks:octop"


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
