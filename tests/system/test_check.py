"""`octop check`: what is queued against the code that is to be deployed."""

from __future__ import annotations

import json
import re
import sys
import uuid
from datetime import date
from typing import Any

import pytest

from octop import Octop
from octop.model.errors import InvalidArgumentsError
from octop.testing import Server
from tests.system.provoked import provokes, saw

V1 = """
from octop import Octop

octop = Octop()


@octop.task
def f(x: int, email: str, new: bool) -> None: ...


@octop.task(queue="mail")
def old_name(day: str) -> None: ...
"""
V2 = V1.replace("x: int, email: str, new: bool", "x: int, email: str, site: str | None = None, new: bool = False")
V3 = V1.replace("x: int, email: str, new: bool", "x: int, site: str | None = None, new: bool = False")


@pytest.fixture
def deploy(octop, tmp_path, monkeypatch):
    """Write a version of the module under a name of its own, and check it."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(text, *arguments, code=0):
        name = f"code_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(text)
        return octop("check", "-A", f"{name}:octop", *arguments, code=code)

    return run


def enqueue(rows, task_type, payload=None, **columns):
    names = ", ".join(["task_type", "payload", *columns])
    values = [task_type, json.dumps(payload or {}), *columns.values()]
    row = rows.execute(
        f"insert into octop_tasks ({names}) values ({', '.join(['%s'] * len(values))}) returning id", values
    ).fetchone()
    return str(row[0])


def register(rows, types, queues=("default",), name="old", **versions):
    policies = json.dumps([{"name": each, "version": versions.get(each, 1)} for each in types])
    rows.execute(
        "select octop_register(gen_random_uuid(), %s, 'host', 7, null, '0.1', %s, %s::jsonb)",
        (name, list(queues), policies),
    )


def findings(printed):
    found = json.loads(printed)["findings"]
    saw(each["id"] for each in found)
    return {(each["id"], each["task_type"]): each for each in found}


@pytest.mark.all_versions
def test_what_fits_is_said_with_what_was_looked_at(deploy, rows):
    enqueue(rows, "f", {"x": 1, "email": "a", "new": True})
    enqueue(rows, "old_name", {"day": "monday"}, queue="mail")
    printed = deploy(V1)
    assert printed.startswith("Fits. Looked at code_")
    assert "with 2 task types" in printed
    assert "2 queued tasks of 2 types: the names of all arguments, every value; 0 living workers." in printed
    looked = json.loads(deploy(V1, "--json"))["looked_at"]
    assert (looked["tasks"], looked["shapes"], looked["payloads"], looked["sample"]) == (2, 2, 2, 1000)


@pytest.mark.all_versions
@provokes("tasks.unknown_type")
def test_c127_names_that_nobody_registers_are_listed_and_an_alias_satisfies(deploy, rows):
    first = enqueue(rows, "old_name", {"day": "monday"}, queue="mail", scheduled_at="2031-01-01 00:00+00")
    enqueue(rows, "old_name", {"day": "tuesday"}, queue="mail")
    renamed = V1.replace("def old_name", "def new_name")
    printed = deploy(renamed, code=1)
    assert "  error   old_name: no function is registered as old_name  [tasks.unknown_type]" in printed
    assert f"2 tasks: the oldest {first}" in printed
    assert "@octop.task(aliases=['old_name'])" in printed
    found = findings(deploy(renamed, "--json", code=1))["tasks.unknown_type", "old_name"]
    assert (found["count"], found["ids"], found["severity"]) == (2, [first], "error")
    deploy(renamed.replace('queue="mail"', 'queue="mail", aliases=["old_name"]'))


@provokes("tasks.unexpected_argument")
def test_c130_a_changed_signature_is_reported_with_the_ids_and_what_does_not_bind(deploy, rows):
    ids = [enqueue(rows, "f", {"x": number, "email": "a", "new": True}) for number in range(12)]
    deploy(V2)
    printed = deploy(V3, code=1)
    assert (
        "  error   f: unexpected argument 'email': f(x: int, site: str | None = None, new: bool = False) -> None has no such parameter"
        in printed
    )
    assert "12 tasks: " in printed
    assert "and 2 more" in printed
    found = findings(deploy(V3, "--json", code=1))["tasks.unexpected_argument", "f"]
    assert found["count"] == 12
    assert len(set(found["ids"])) == 10
    assert set(found["ids"]) < set(ids)
    assert found["ids"][0] == min(ids)


def test_c130_arguments_are_bound_by_name_whatever_stands_before_them_now(postgres):
    came: list[dict[str, object]] = []

    def version(text):
        app = Octop()
        scope: dict[str, Any] = {"came": came}
        exec(f"def f({text}):\n came.append(dict(locals()))\n", scope)  # noqa: S102 - three versions of one function
        return app, app.task(scope["f"])

    v1, f = version("x, email, new")
    v2, _ = version("x, email, site=None, new=False")
    v3, _ = version("x, site=None, new=False")
    with Server(postgres.url()) as server, server.database() as place:
        with place.override(v1):
            f.enqueue_sync(1, "a", True)
        place.drain(v2)
        assert came == [{"x": 1, "email": "a", "site": None, "new": True}]
        with place.override(v1):
            f.using(max_retries=0).enqueue_sync(2, "b", True)
        with pytest.raises(InvalidArgumentsError, match="unexpected argument 'email'"):
            place.drain(v3)
        assert len(came) == 1, "the body was not entered"


@provokes("tasks.unexpected_argument")
def test_a_renamed_argument_is_one_finding_that_names_both(deploy, rows):
    task_id = enqueue(rows, "old_name", {"day": "monday"})
    printed = deploy(V1.replace("old_name(day: str)", "old_name(weekday: str)"), "--json", code=1)
    ((_, finding),) = findings(printed).items()
    assert finding["ids"] == [task_id]
    assert "'day'" in finding["what"]
    assert "'weekday' is missing" in finding["what"]
    assert "renamed" in finding["hint"]


@provokes("tasks.missing_argument")
def test_a_missing_argument_and_frozen_running_and_parked_tasks_count(deploy, rows):
    ids = [enqueue(rows, "f", {"x": 1}) for _ in range(3)]
    rows.execute("update octop_tasks_live set status = 'blocked', blocked_by = 'task_type:f' where id = %s", (ids[0],))
    register(rows, ["f"])
    rows.execute("update octop_tasks_live set status = 'running', attempt = 1 where id = %s", (ids[1],))
    ids.append(enqueue(rows, "f", {"x": 2}))
    rows.execute("set session_replication_role = replica")  # as the engine, past the guards of those who act by hand
    rows.execute("update octop_tasks set status = 'frozen' where id = %s", (ids[3],))
    rows.execute("reset session_replication_role")
    found = findings(deploy(V1, "--json", code=1))
    assert found["tasks.missing_argument", "f"]["count"] == 4
    assert sorted(found["tasks.missing_argument", "f"]["ids"]) == sorted(ids)
    rows.execute("update octop_tasks set status = 'cancelled'")
    deploy(V1)


@provokes("tasks.wrong_value")
def test_values_that_do_not_read_as_the_annotation_are_found(deploy, rows):
    text = V1.replace("day: str", "day: date, kinds: list[int] | None = None").replace(
        "from octop", "from datetime import date\nfrom octop", 1
    )
    enqueue(rows, "old_name", {"day": date(2031, 1, 1).isoformat()}, queue="mail")
    wrong = [enqueue(rows, "old_name", {"day": each}, queue="mail") for each in ("monday", "tuesday")]
    odd = enqueue(rows, "old_name", {"day": "2031-01-01", "kinds": [1, "x"]}, queue="mail")
    printed = deploy(text, code=1)
    assert findings(deploy(text, "--json", code=1)).keys() == {("tasks.wrong_value", "old_name")}
    assert "can not read a payload: $.day: " in printed
    assert f"2 tasks: {wrong[0]}, {wrong[1]}" in printed
    assert "can not read a payload: $.kinds[1]: " in printed
    assert f"1 task: {odd}" in printed


def test_the_oldest_of_each_shape_is_read_whatever_the_sample(deploy, rows):
    rows.execute(
        """insert into octop_tasks (task_type, payload)
           select 'f', jsonb_build_object('x', n, 'email', 'a', 'new', true) from generate_series(1, 3000) n"""
    )
    odd = enqueue(rows, "f", {"x": "seven", "email": "a", "new": True})
    answer = json.loads(deploy(V1, "--json", "--sample", "10", code=1))
    (found,) = answer["findings"]
    assert (found["id"], found["ids"], found["sampled"]) == ("tasks.wrong_value", [odd], True)
    looked = answer["looked_at"]
    assert (looked["tasks"], looked["shapes"], looked["sample"]) == (3001, 2, 10)
    assert 2 <= looked["payloads"] <= 60, "about 10 by a hash of the id, and 2 for the shapes"
    assert "(--sample 10; --sample all reads all)" in deploy(V1, "--sample", "10", code=1)
    assert json.loads(deploy(V1, "--json", "--sample", "0", code=1))["looked_at"]["payloads"] == 2
    assert json.loads(deploy(V1, "--json", "--sample", "all", code=1))["looked_at"]["payloads"] == 3001


@provokes("tasks.needs_newer_code")
def test_tasks_that_need_newer_code_are_found(deploy, rows):
    enqueue(rows, "f", {"x": 1, "email": "a", "new": True}, min_version=3)
    (found,) = findings(deploy(V1, "--json", code=1)).values()
    assert found["what"] == "f: they need version 3 of f, and this code is version 1"
    deploy(V1.replace("@octop.task\n", "@octop.task(version=3)\n", 1))


@provokes("workers.lacks_type", "workers.knows_more")
def test_workers_of_other_code_are_told_of_and_count_only_if_asked(deploy, rows):
    register(rows, ["f", "gone"], queues=["default", "mail"], name="w1")
    register(rows, ["f", "old_name"], queues=["default", "mail"], name="w2")
    printed = deploy(V1)
    assert "info    1 living worker serves a queue of old_name and does not know it  [workers.lacks_type]" in printed
    assert "info    1 living worker runs gone, which this code does not have  [workers.knows_more]" in printed
    assert printed.count("          - 1 worker: w1\n") == 2
    assert "2 findings. Looked at" in printed
    found = findings(deploy(V1, "--json", "--strict", code=1))
    assert [each["severity"] for each in found.values()] == ["info", "info"]
    rows.execute("update octop_workers set beat_at = now() - interval '1 hour'")
    assert "Fits." in deploy(V1, "--strict")


@provokes("workers.older_code")
def test_workers_below_the_new_version_of_a_type_are_told_of(deploy, rows):
    new = V1.replace('queue="mail"', 'queue="mail", version=3')
    register(rows, ["f", "old_name"], queues=["default", "mail"], name="w1")
    register(rows, ["f", "old_name"], queues=["default", "mail"], name="w2", old_name=2)
    register(rows, ["f", "old_name"], queues=["default", "mail"], name="w3", old_name=3)
    register(rows, ["f", "old_name"], queues=["default"], name="w4")  # would not run it in any case
    found = findings(deploy(new, "--json"))["workers.older_code", None]
    assert found["what"] == "2 living workers have older code than version 3 of old_name"
    assert (found["count"], found["ids"], found["severity"]) == (2, ["w1", "w2"], "info")
    assert found["hint"] == "Tasks enqueued by the new code will wait for new workers while the old ones run."
    assert "Fits." in deploy(V1, "--strict")


def test_on_a_terminal_findings_have_colours_and_fit(deploy, rows, monkeypatch):
    register(rows, ["f", "gone"], queues=["default", "mail"], name="w1")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = deploy(V1)
    assert "\x1b[36m  info    \x1b[0m1 living worker serves a queue of old_name and" in text
    findings_alone = re.sub(r"\x1b\[[0-9;]*m", "", text).partition("2 findings.")[0].splitlines()
    assert any(line.startswith("          hint: What is enqueued") for line in findings_alone)
    assert max(map(len, findings_alone)) <= 60


def test_a_queue_that_an_operator_chose_counts_for_workers(deploy, rows):
    register(rows, ["f"], queues=["default"])
    deploy(V1, "--strict")
    rows.execute("insert into octop_task_types (name, queue) values ('old_name', 'default')")
    assert "serves a queue of old_name" in deploy(V1, "--strict", code=1)


def test_c127_a_rename_is_found_while_the_old_workers_live_even_if_they_know_none_of_the_new_names(deploy, rows):
    enqueue(rows, "old_name", {"day": "monday"}, queue="mail")
    renamed = V1.replace("def old_name", "def new_name").replace("def f(", "def g(")
    register(rows, ["f", "old_name"], queues=["default", "mail"])
    found = findings(deploy(renamed, "--json", code=1))
    assert found["tasks.unknown_type", "old_name"]["severity"] == "error"
    assert "@octop.task(aliases=['old_name'])" in found["tasks.unknown_type", "old_name"]["hint"]
    assert (
        found["workers.knows_more", None]["what"] == "1 living worker runs f, old_name, which this code does not have"
    )
    deploy(renamed.replace('queue="mail"', 'queue="mail", aliases=["old_name"]'))


def test_c127_an_application_with_one_type_whose_queue_an_operator_chose(deploy, rows):
    one = "from octop import Octop\n\noctop = Octop()\n\n\n@octop.task\ndef new_name(day: str) -> None: ...\n"
    enqueue(rows, "old_name", {"day": "monday"}, queue="post")
    register(rows, ["old_name"], queues=["post"])
    deploy(one)  # nothing ties the two together
    rows.execute("insert into octop_task_types (name, queue) values ('new_name', 'post')")
    assert "[tasks.unknown_type]" in deploy(one, code=1)


def test_a_type_that_an_old_worker_of_ours_knows_beside_our_others_is_ours(deploy, rows):
    enqueue(rows, "gone", queue="elsewhere")
    register(rows, ["gone", "f"], queues=["elsewhere"])
    assert "[tasks.unknown_type]" in deploy(V1, code=1)


@provokes("tasks.of_others")
def test_task_types_of_another_application_are_only_worth_knowing(deploy, rows):
    first = enqueue(rows, "theirs", queue="theirs")
    enqueue(rows, "theirs", queue="theirs")
    deploy(V1, code=1)  # nobody knows them
    register(rows, ["theirs"], queues=["theirs"])
    found = findings(deploy(V1, "--json"))
    assert found.keys() == {("tasks.of_others", "theirs")}
    assert (found["tasks.of_others", "theirs"]["count"], found["tasks.of_others", "theirs"]["ids"]) == (2, [first])
    deploy(V1, "--strict", code=1)
    register(rows, ["theirs"], queues=["theirs", "mail"])  # one who would park our own tasks, too
    assert "let that have a queue of its own" in deploy(V1, code=1)


@provokes("code.annotation")
def test_without_a_database_only_the_code_is_looked_at(deploy, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", "postgresql://nobody.invalid/nowhere")
    assert "Not at a database: --no-database." in deploy(V1, "--no-database")
    broken = V1.replace("day: str", "day: 'Day'")
    printed = deploy(broken, "--no-database", code=1)
    assert "  error   an annotation of the task old_name can not be resolved" in printed
    assert findings(deploy(broken, "--no-database", "--json", code=1)).keys() == {("code.annotation", "old_name")}
    deploy(V1, code=4)


def test_a_module_that_does_not_import_is_shown_with_its_own_frames(octop, deploy):
    deploy("def helper():\n    return 1 / 0\n\nhelper()\n", code=1)
    assert "does not import: ZeroDivisionError: division by zero" in octop.err
    assert "in helper\n" in octop.err
    assert "importlib" not in octop.err


def test_exit_codes_of_usage_and_of_a_schema_that_is_missing(octop, deploy, empty_database, monkeypatch):
    octop("check", code=2)
    assert "octop check -A module:attribute" in octop.err
    deploy(V1, "--sample", "some", code=2)
    monkeypatch.setenv("OCTOP_DSN", empty_database.url)
    deploy(V1, code=5)
    assert "octop migrate" in octop.err


def test_a_viewer_may_check(deploy, database, rows, monkeypatch):
    enqueue(rows, "f", {"x": 1, "email": "a", "new": True})
    monkeypatch.setenv("OCTOP_DSN", database.url_as(database.make_role("octop_viewer")))
    assert "Fits." in deploy(V1)


def test_payloads_are_read_in_pages(deploy, database, rows):
    rows.execute(
        """insert into octop_tasks (task_type, payload)
           select 'f', jsonb_build_object('x', n, 'email', 'a', 'new', true) from generate_series(1, 1000) n"""
    )
    from octop.engine import queued
    from octop.engine.connect import open_connection

    with open_connection(database.url, application_name="test") as connection:
        with queued.sample(connection, None, {"f": 1000}, []) as read:
            next(read)
            (cursor,) = rows.execute(
                "select query from pg_stat_activity where datname = current_database() and application_name = 'test'"
            ).fetchall()
            assert cursor[0] == f'FETCH FORWARD {queued.PAGE_ROWS} FROM "octop_check"'
            assert sum(1 for _ in read) == 999


def test_without_a_name_check_and_worker_take_tasks_py_as_dev_does(octop, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    for command in ("check", "worker", "dev"):
        octop(command, code=2)
        assert f"octop {command} -A module:attribute" in octop.err
    (tmp_path / "tasks.py").write_text("from octop import Octop\n\noctop = Octop()\n\n@octop.task\ndef send(): ...\n")
    assert "tasks with 1 task type" in octop("check", "--no-database") + octop.err
    monkeypatch.delitem(sys.modules, "tasks")
