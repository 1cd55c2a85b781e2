"""`octop check`: what is queued against the code that is to be deployed."""

from __future__ import annotations

import json
import uuid
from datetime import date
from typing import Any

import pytest

from octop import Octop
from octop.model.errors import InvalidArgumentsError
from octop.testing import Server

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


def register(rows, types, queues=("default",), name="old"):
    policies = json.dumps([{"name": each} for each in types])
    rows.execute(
        "select octop_register(gen_random_uuid(), %s, 'host', 7, null, '0.1', %s, %s::jsonb)",
        (name, list(queues), policies),
    )


def findings(printed):
    return {(each["kind"], each["task_type"]): each for each in json.loads(printed)["findings"]}


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
def test_c127_names_that_nobody_registers_are_listed_and_an_alias_satisfies(deploy, rows):
    first = enqueue(rows, "old_name", {"day": "monday"}, queue="mail", scheduled_at="2031-01-01 00:00+00")
    enqueue(rows, "old_name", {"day": "tuesday"}, queue="mail")
    renamed = V1.replace("def old_name", "def new_name")
    printed = deploy(renamed, code=1)
    assert "error: old_name: no function is registered as old_name" in printed
    assert f"2 tasks: the oldest {first}" in printed
    assert "@octop.task(aliases=['old_name'])" in printed
    found = findings(deploy(renamed, "--json", code=1))["unknown_type", "old_name"]
    assert (found["count"], found["ids"], found["severity"]) == (2, [first], "error")
    deploy(renamed.replace('queue="mail"', 'queue="mail", aliases=["old_name"]'))


def test_c130_a_changed_signature_is_reported_with_the_ids_and_what_does_not_bind(deploy, rows):
    ids = [enqueue(rows, "f", {"x": number, "email": "a", "new": True}) for number in range(12)]
    deploy(V2)
    printed = deploy(V3, code=1)
    assert (
        "error: f: unexpected argument 'email': f(x: int, site: str | None = None, new: bool = False) -> None has no such parameter"
        in printed
    )
    assert "12 tasks: " in printed
    assert "and 2 more" in printed
    found = findings(deploy(V3, "--json", code=1))["unexpected_argument", "f"]
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
    assert found["missing_argument", "f"]["count"] == 4
    assert sorted(found["missing_argument", "f"]["ids"]) == sorted(ids)
    rows.execute("update octop_tasks set status = 'cancelled'")
    deploy(V1)


def test_values_that_do_not_read_as_the_annotation_are_found(deploy, rows):
    text = V1.replace("day: str", "day: date, kinds: list[int] | None = None").replace(
        "from octop", "from datetime import date\nfrom octop", 1
    )
    enqueue(rows, "old_name", {"day": date(2031, 1, 1).isoformat()}, queue="mail")
    wrong = [enqueue(rows, "old_name", {"day": each}, queue="mail") for each in ("monday", "tuesday")]
    odd = enqueue(rows, "old_name", {"day": "2031-01-01", "kinds": [1, "x"]}, queue="mail")
    printed = deploy(text, code=1)
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
    assert (found["kind"], found["ids"], found["sampled"]) == ("wrong_value", [odd], True)
    looked = answer["looked_at"]
    assert (looked["tasks"], looked["shapes"], looked["sample"]) == (3001, 2, 10)
    assert 2 <= looked["payloads"] <= 60, "about 10 by a hash of the id, and 2 for the shapes"
    assert "(--sample 10; --sample all reads all)" in deploy(V1, "--sample", "10", code=1)
    assert json.loads(deploy(V1, "--json", "--sample", "0", code=1))["looked_at"]["payloads"] == 2
    assert json.loads(deploy(V1, "--json", "--sample", "all", code=1))["looked_at"]["payloads"] == 3001


def test_tasks_that_need_newer_code_are_found(deploy, rows):
    enqueue(rows, "f", {"x": 1, "email": "a", "new": True}, min_version=3)
    assert "they need version 3 of f, and this code is version 1" in deploy(V1, code=1)
    deploy(V1.replace("@octop.task\n", "@octop.task(version=3)\n", 1))


def test_workers_of_other_code_are_told_of_and_count_only_if_asked(deploy, rows):
    register(rows, ["f", "gone"], queues=["default", "mail"], name="w1")
    register(rows, ["f", "old_name"], queues=["default", "mail"], name="w2")
    printed = deploy(V1)
    assert "info: 1 living worker serves a queue of old_name and does not know it\n  1 worker: w1" in printed
    assert "info: 1 living worker runs gone, which this code does not have\n  1 worker: w1" in printed
    assert "2 findings. Looked at" in printed
    deploy(V1, "--strict", code=1)
    rows.execute("update octop_workers set beat_at = now() - interval '1 hour'")
    assert "Fits." in deploy(V1, "--strict")


def test_a_queue_that_an_operator_chose_counts_for_workers(deploy, rows):
    register(rows, ["f"], queues=["default"])
    deploy(V1, "--strict")
    rows.execute("insert into octop_task_types (name, queue) values ('old_name', 'default')")
    assert "serves a queue of old_name" in deploy(V1, "--strict", code=1)


def test_task_types_of_another_application_are_left_alone(deploy, rows):
    enqueue(rows, "theirs")
    deploy(V1, code=1)
    register(rows, ["theirs"], queues=["theirs"])
    assert "1 task of types that workers of other applications run: left alone." in deploy(V1, "--strict")


def test_without_a_database_only_the_code_is_looked_at(deploy, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", "postgresql://nobody.invalid/nowhere")
    assert "Not at a database: --no-database." in deploy(V1, "--no-database")
    broken = V1.replace("day: str", "day: 'Day'")
    printed = deploy(broken, "--no-database", code=1)
    assert "error: old_name: an annotation of the task old_name can not be resolved" in printed
    assert findings(deploy(broken, "--no-database", "--json", code=1)).keys() == {("annotation", "old_name")}
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
