"""`octop config` and `octop audit` on a real database: text, JSON, exit codes."""

import re

import pytest


def test_settings_are_listed_with_value_default_bounds_and_meaning(octop):
    row = next(each for each in octop.json("config", "list") if each["key"] == "worker.lease_seconds")
    assert (row["value"], row["default"], row["minimum"], row["maximum"]) == (30, 30, 0.5, 3600)
    line = next(each for each in octop("config", "list").splitlines() if each.startswith("worker.lease_seconds"))
    assert "0.5 to 3600" in line
    assert "loses its tasks" in line


def test_settings_are_sorted_and_an_alias_names_its_key(octop):
    keys = [each["key"] for each in octop.json("config", "list")]
    assert keys == sorted(keys)
    line = next(each for each in octop("config", "list").splitlines() if each.startswith("task.timeout_seconds"))
    assert line.endswith("the same as task.default_timeout_seconds")


def test_settings_are_changed_and_reset(octop):
    assert octop("config", "set", "worker.concurrency", 20) == "worker.concurrency is 20 now.\n"
    assert octop("config", "get", "worker.concurrency") == "20\n"
    assert octop("config", "reset", "worker.concurrency") == "worker.concurrency is 10 again.\n"
    assert octop.json("config", "get", "worker.concurrency")["value"] == 10
    assert "worker.grace_seconds is none now" in octop("config", "set", "worker.grace_seconds", "none")


def test_settings_that_must_agree_are_changed_together(octop):
    octop("config", "set", "worker.lease_seconds", 9, code=2)
    assert "at most a third" in octop.err
    assert "hint: Change both at once: octop config set worker.lease_seconds=9 worker.heartbeat_seconds=3" in octop.err
    octop("config", "set", "worker.heartbeat_seconds", 20, code=2)
    assert "octop config set worker.lease_seconds=60 worker.heartbeat_seconds=20" in octop.err
    octop("config", "set", "worker.lease_seconds=9", "worker.heartbeat_seconds=3")
    assert octop("config", "get", "worker.lease_seconds") == "9\n"
    # all or nothing
    octop("config", "set", "worker.concurrency=5", "nonsense=1", code=2)
    assert octop("config", "get", "worker.concurrency") == "10\n"


@pytest.mark.parametrize("value", ["0", "2.5", "many", "NaN", "1e999", "[1]", "null"])
def test_a_bad_setting_is_refused(octop, value):
    octop("config", "set", "worker.concurrency", value, code=2)
    assert "worker.concurrency" in octop.err


def test_an_unknown_setting_is_refused(octop):
    for arguments in (["get", "nonsense"], ["set", "nonsense", 1], ["reset", "nonsense"]):
        octop("config", *arguments, code=2)
        assert octop.err == "octop: there is no setting 'nonsense'\n  hint: octop config list shows all.\n"
    for arguments in (["get", "worker.leese_seconds"], ["set", "worker.leese_seconds", 1]):
        octop("config", *arguments, code=2)
        assert "hint: Did you mean worker.lease_seconds?" in octop.err


# --- where each value comes from --------------------------------------------------------------------------------------


def setting(rows, name):
    return next(each for each in rows if each["setting"] == name)


def test_show_tells_who_set_what_and_when(octop, database):
    ann = database.make_role("octop_operator", name="ann")
    octop("--dsn", database.url_as(ann), "config", "set", "worker.concurrency", 20)
    rows = octop.json("config", "show", "--origin")
    changed = setting(rows, "worker.concurrency")
    assert (changed["value"], changed["default"], changed["origin"], changed["set_by"]) == (20, 10, "operator", ann)
    assert changed["set_at"]
    assert setting(rows, "worker.lease_seconds") == {
        "setting": "worker.lease_seconds",
        "value": 30,
        "default": 30,
        "origin": "default",
        "set_by": None,
        "set_at": None,
    }
    line = next(each for each in octop("config", "show", "--origin").splitlines() if "worker.concurrency" in each)
    assert line.split()[:5] == ["worker.concurrency", "20", "10", "operator", ann]
    octop("config", "reset", "worker.concurrency")
    assert setting(octop.json("config", "show", "--origin"), "worker.concurrency")["origin"] == "default"
    assert set(octop.json("config", "show")[0]) == {"setting", "value"}
    assert octop("config", "show").splitlines()[0].split() == ["setting", "value"]


def test_a_change_in_plain_sql_is_the_operators_too(octop, database):
    with database.connect() as connection:
        connection.execute("update octop_config set value = '{\"value\": 60}' where key = 'task.timeout_seconds'")
        role = connection.execute("select session_user::text").fetchone()[0]
    rows = octop.json("config", "show", "--origin")
    for key in ("task.timeout_seconds", "task.default_timeout_seconds"):
        assert (setting(rows, key)["value"], setting(rows, key)["set_by"]) == (60, role)


def test_what_a_process_starts_with_names_flag_variable_line_or_default(octop, database, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\napp = "no"\n[tool.octop]\napp = "shop.tasks"\n')
    rows = octop.json("config", "show", "--origin")
    assert setting(rows, "dsn")["origin"] == "OCTOP_DSN"
    assert (setting(rows, "app")["value"], setting(rows, "app")["origin"]) == (
        "shop.tasks",
        f"{tmp_path}/pyproject.toml:4",
    )
    assert (setting(rows, "schema")["value"], setting(rows, "schema")["origin"]) == ("public", "default")
    (tmp_path / "octop.toml").write_text('# ours\nschema = "public"\n\n"app" = "other"\n')
    rows = octop.json("config", "show", "--origin", "--dsn", database.url)
    assert [setting(rows, key)["origin"] for key in ("dsn", "schema", "app")] == [
        "--dsn",
        f"{tmp_path}/octop.toml:2",
        f"{tmp_path}/octop.toml:4",
    ]
    assert octop("config", "show", "--origin", "-A", "mine").splitlines()[3].split()[:4] == [
        "app",
        "mine",
        "none",
        "--app",
    ]


def test_without_a_database_it_still_says_which_one_was_meant_and_hides_the_password(octop):
    rows = octop.json("--dsn", "postgresql://ann:secret@127.0.0.1:1/x", "config", "show", "--origin", code=4)
    assert [each["setting"] for each in rows] == ["dsn", "schema", "app"]
    assert rows[0]["value"] == "postgresql://ann:***@127.0.0.1:1/x"
    assert "Check that the server runs" in octop.err


# --- audit ------------------------------------------------------------------------------------------------------------


def test_the_audit_tells_who_did_what_the_latest_first(octop, database):
    ann = database.make_role("octop_operator", name="ann")
    task_id = octop("enqueue", "greet").strip()
    desk = database.url_as(ann)
    octop("--dsn", desk, "queues", "pause", "mail", "--reason", "night")
    octop("--dsn", desk, "queues", "set", "mail", "--limit", 5)
    octop("--dsn", desk, "types", "freeze", "send", "--reason", "incident 7")
    octop("config", "set", "worker.concurrency", 20)
    octop("tasks", "cancel", task_id, "--reason", "a slip")
    rows = octop.json("audit")
    assert [each["action"] for each in rows] == ["cancel", "config", "freeze", "set queue", "pause"]
    assert {each["role"] for each in rows[2:]} == {ann}
    lines = octop("audit").splitlines()
    assert lines[0].split() == ["at", "role", "application", "action", "subject", "what"]
    cells = [re.split(r"\s{2,}", each) for each in lines[1:]]
    assert [each[3:5] for each in cells] == [
        ["cancel", task_id],
        ["config", "worker.concurrency"],
        ["freeze", "send"],
        ["set queue", "mail"],
        ["pause", "mail"],
    ]
    assert "reason a slip" in cells[0][5]
    assert [each[5] for each in cells[1:]] == ["10 → 20", "incident 7", "worker_limit - → 5", "night"]
    for options, acts in (
        (["--action", "pause"], ["pause"]),
        (["--action", "freeze"], ["freeze"]),
        (["--action", "set queue"], ["set queue"]),
        (["--action", "freeze"], ["freeze"]),
        (["--subject", "mail"], ["set queue", "pause"]),
        (["--subject", task_id], ["cancel"]),
        (["--role", ann, "--limit", 1], ["freeze"]),
        (["--since", "1h", "--action", "config"], ["config"]),
        (["--role", "nobody"], []),
    ):
        assert [each["action"] for each in octop.json("audit", *options)] == acts
    octop("audit", "--role", "nobody")
    assert "No such act" in octop.err
    octop("audit", "--limit", 1)
    assert "--limit shows more" in octop.err
    with database.connect() as connection:
        connection.execute("update octop_audit set at = at - interval '2 hours' where action = 'config'")
    assert octop.json("audit", "--since", "1h", "--action", "config") == []
    octop("audit", "--since", "soon", code=2)


def test_the_audit_is_not_for_everybody(octop, database):
    octop("--dsn", database.url_as(database.make_role("octop_producer")), "audit", code=6)
    assert "permission denied" in octop.err


def test_on_a_narrow_terminal_they_fit_and_keep_their_keys(octop, narrow):
    octop("config", "set", "worker.concurrency", 20)
    octop(
        "types",
        "freeze",
        "a_task_type_with_a_rather_long_name",
        "--reason",
        "a reason that is longer than the line " * 3,
    )
    lines = narrow("config", "show", "--origin")
    assert any(each.startswith("worker.concurrency ") and " operator " in each for each in lines)
    assert any(each.startswith("worker.deadline_grace_seconds ") for each in lines)
    assert any("freeze" in each for each in narrow("audit"))
    assert any(each.startswith("a_task_type_with_a_rather_long_name ") for each in narrow("types", "list"))
