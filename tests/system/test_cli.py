"""The command on a real database: text, JSON, exit codes. In process, so that forty commands take seconds."""

import json
import subprocess
import sys
import uuid

import psycopg
import pytest

from octop import __version__
from tests.system.by_hand import enqueue, finish, freeze

# --- enqueue ----------------------------------------------------------------------------------------------------------


def test_enqueue_prints_the_id_and_keeps_every_option(octop):
    task_id = enqueue(
        octop, "greet", "name=Ann", "n=3", "--queue", "mail", "--delay", "1h", "--priority", 2, "--max-retries", 0,
        "--timeout", "90s", "--tag", "a", "--tag", 'b,"c', "--tenant", "t", "--lane", "l",
    )  # fmt: skip
    task = octop.json("tasks", "show", task_id)
    assert task["payload"] == {"name": "Ann", "n": 3}
    assert (task["queue"], task["priority"], task["max_retries"], task["timeout_seconds"]) == ("mail", 2, 0, 90)
    assert (task["tags"], task["tenant"], task["lane"]) == (["a", 'b,"c'], "t", "l")
    assert task["attempts"] == []
    assert "It starts at" in task["next"]


def test_enqueue_reads_a_payload_from_stdin(database):
    answer = subprocess.run(
        [sys.executable, "-m", "octop", "--dsn", database.url, "enqueue", "greet", "-", "--json"],
        input='{"name": "Ann"}',
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout)["created"] is True
    assert answer.stderr == ""


def test_an_enqueue_with_an_id_of_ones_own_may_be_repeated(octop):
    task_id = str(uuid.uuid4())
    assert octop.json("enqueue", "greet", "--id", task_id) == {"id": task_id, "created": True}
    assert octop.json("enqueue", "greet", "--id", task_id) == {"id": task_id, "created": False}
    assert "already" in octop.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["greet", '{"a": NaN}'], "NaN"),
        (["greet", "[1]"], "JSON object"),
        (["greet", "--delay", "-1"], "not a length of time"),
        (["greet", "--delay", "1s", "--at", "2030-01-01T00:00Z"], "exclude each other"),
        (["greet", "--at", "2030-01-01T00:00:00"], "names no zone"),
        (["greet", "--at", "3999-01-01T00:00:00Z"], "between the years"),
        (["greet", "--priority", "42"], "42"),
        (["greet", "--max-retries", "-1"], "-1"),
        (["", "a=1"], "task type"),
        (["greet", "text=a\\u0000b", '{"x": 1}'], "neither"),
        (["greet", '{"text": "a\\u0000b"}'], "PostgreSQL can"),
        (["greet", "--nonsense"], "nonsense"),
        (["greet", "--user_id", "42"], "An argument of the task is written user_id=42"),
        (["greet", "--user_id=42"], "user_id=42"),
        (["greet", "--user_id"], "user_id=…"),
    ],
)
def test_enqueue_refuses_bad_input_and_writes_nothing(octop, arguments, says):
    octop("enqueue", *arguments, code=2)
    assert says in octop.err
    assert "Traceback" not in octop.err
    assert octop.json("tasks", "list") == []


def test_digits_that_are_meant_as_text_keep_their_quotes_and_the_help_says_so(octop):
    task_id = enqueue(octop, "greet", 'zip="01234"', "n=7", "name=Ann")
    assert octop.json("tasks", "show", task_id)["payload"] == {"zip": "01234", "n": 7, "name": "Ann"}
    told = octop("enqueue", "--help")
    assert """zip='"01234"'""" in told
    assert "how long to wait: --wait-timeout" in " ".join(told.split())


def test_a_payload_over_the_limit_is_refused(octop):
    octop("config", "set", "task.payload_bytes_max", 1024)
    octop("enqueue", "greet", f"text={'x' * 2000}", code=2)
    assert "task.payload_bytes_max" in octop.err


def test_enqueue_prints_the_same_object_whether_it_waits_or_not(octop, database):
    task_id = octop.json("enqueue", "fails")["id"]
    finish(database)
    # the same id again: it has ended already, so the wait ends at once
    answer = octop.json("enqueue", "fails", "--id", task_id, "--wait")
    assert answer == {
        "id": task_id,
        "created": False,
        "task_type": "fails",
        "status": "success",
        "attempt": 1,
        "result": 3,
        "last_error": None,
    }
    assert octop("enqueue", "fails", "--id", task_id, "--wait") == f"{task_id} success 3\n"
    cancelled = enqueue(octop, "fails")
    octop("tasks", "cancel", cancelled)
    assert octop.json("enqueue", "fails", "--id", cancelled, "--wait", code=1)["status"] == "cancelled"


# --- workers and tables -----------------------------------------------------------------------------------------------


def test_workers_are_listed(octop, database):
    assert octop.json("workers") == []
    octop("workers")
    assert "No worker is registered" in octop.err
    with database.connect() as connection:
        connection.execute(
            "select octop_register(%s::uuid, 'one', 'host', 4711, null, '0', array['mail'], '[]')", (uuid.uuid4(),)
        )
    (worker,) = octop.json("workers")
    assert [each["id"] for each in octop.json("workers", "list")] == [worker["id"]]
    octop("workers", "lost", code=2)
    assert (worker["name"], worker["host"], worker["pid"], worker["state"]) == ("one", "host", 4711, "alive")
    assert octop("workers").splitlines()[1].split()[0] == "one"


def test_tables_fit_into_80_columns_and_keep_ids_and_keys_whole(octop, narrow, database):
    task_id = enqueue(octop, "fails", "--max-retries", 0, "--queue", "default")
    freeze(database, task_id)
    enqueue(octop, "send_a_mail_with_a_long_name", "--queue", "a_queue_with_a_long_name")
    (line,) = (each for each in narrow("tasks", "list") if "frozen" in each)
    assert line.startswith(f"{task_id[:13]}")
    assert any(each.startswith(octop.json("failures")[0]["group_id"]) for each in narrow("failures"))
    assert any(each.startswith("a_queue_with_a_long_name ") for each in narrow("queues", "list"))
    assert narrow("workers")[0].startswith("worker")
    lines = narrow("config", "list")
    keys = [each.split()[0] for each in lines if not each.startswith(" ")]
    assert keys == [each["key"] for each in octop.json("config", "list")]
    assert any(each.startswith("worker.lease_seconds  30  0.5 to 3600") for each in lines)
    octop("config", "set", "worker.lease_seconds", 60)
    assert any(each.startswith("worker.lease_seconds  60  default 30, ") for each in narrow("config", "list"))


# --- the schema -------------------------------------------------------------------------------------------------------


def test_without_a_schema_everything_ends_with_5_and_says_what_to_do(octop, empty_database):
    for arguments in (["tasks", "list"], ["enqueue", "greet"], ["queues", "list"], ["config", "list"], ["failures"]):
        octop("--dsn", empty_database.url, *arguments, code=5)
        assert "Octop is not installed in schema public" in octop.err
        assert "octop migrate" in octop.err


def test_migrate_installs_and_says_what_is_there(octop, empty_database):
    octop("migrate", "status", "--dsn", empty_database.url, code=5)
    assert octop.json("migrate", "status", "--dsn", empty_database.url, code=5)["present"] is False
    told = octop("migrate", "--dsn", empty_database.url, "--schema", "jobs")
    assert told == f"Installed Octop {__version__} in the schema jobs.\n"
    again = octop.json("migrate", "--dsn", empty_database.url, "--schema", "jobs")
    assert (again["did"], again["missing"]) == ("nothing", [])
    assert "Nothing to do" in octop("migrate", "--dsn", empty_database.url, "--schema", "jobs")
    assert octop.json("migrate", "status", "--dsn", empty_database.url, "--schema", "jobs")["current"] is True
    octop("--dsn", empty_database.url, "--schema", "jobs", "enqueue", "greet")
    assert len(octop.json("--dsn", empty_database.url, "--schema", "jobs", "tasks", "list")) == 1


def test_a_schema_of_another_version_ends_with_5(octop, database):
    with database.connect() as connection:
        connection.execute("update octop_migrations set checksum = 'x', version = '0.0' where name = 'functions'")
    octop("migrate", "status", code=5)
    assert "octop migrate" in octop.err
    assert octop("migrate") == f"Upgraded the schema public from 0.0 to Octop {__version__}.\n"
    octop("migrate", "status")


def test_sql_prints_a_script_that_psql_runs_and_changes_nothing_itself(octop, empty_database, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", "postgresql://127.0.0.1:1/nowhere")
    script = octop("sql", "install")
    assert "is not installed in schema" in empty_database.psql(octop("sql", "upgrade"), check=False)
    assert 'to "octop_producer"' in octop("sql", "grants")
    assert 'to "my_producer"' in octop("sql", "grants", "--role-prefix", "my_")
    empty_database.psql(script)
    empty_database.psql(script)
    empty_database.psql(octop("sql", "upgrade"))
    assert octop.json("--dsn", empty_database.url, "migrate", "status")["current"] is True
    octop("sql", "install", "--schema", "pg_x", code=2)


def test_sql_uninstall_prints_what_takes_it_all_away(octop, database, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", "postgresql://127.0.0.1:1/nowhere")
    text = octop("sql", "uninstall")
    assert text.startswith(f'-- Octop {__version__}: removes schema "public"\'s objects with ALL TASKS AND HISTORY.')
    assert "if not 'false'::boolean then" in text
    assert "if not 'true'::boolean then" in octop("sql", "uninstall", "--force")
    assert octop("sql", "uninstall", "--roles") != text
    assert "'jobs'" in octop("sql", "uninstall", "--schema", "jobs")
    assert "'my_owner'" in octop("sql", "uninstall", "--role-prefix", "my_")
    database.psql(text)
    octop("--dsn", database.url, "migrate", "status", code=5)


# --- the ways to fail -------------------------------------------------------------------------------------------------


def test_c113_no_database_ends_with_4_and_shows_no_password(octop):
    octop("--dsn", "postgresql://ann:secret@127.0.0.1:1/x", "workers", code=4)
    assert "Check that the server runs" in octop.err
    assert "secret" not in octop.err
    octop("--dsn", "host=127.0.0.1 port=1 password=secret", "tasks", "list", "-v", code=4)
    assert "Traceback" in octop.err
    assert "secret" not in octop.err


def test_a_dsn_that_is_none_ends_with_2(octop, monkeypatch):
    octop("--dsn", "foo", "tasks", "list", code=2)
    assert "the DSN 'foo' is not a PostgreSQL URL or key=value words\n  hint: Write postgresql://" in octop.err
    monkeypatch.setenv("OCTOP_DSN", "mysql://ann:secret@db/shop")
    octop("migrate", code=2)
    assert "'mysql://ann:***@db/shop' (from OCTOP_DSN)" in octop.err
    octop("--dsn", "host=db and secret words", "tasks", "list", code=2)
    assert "secret" not in octop.err


def test_a_variable_that_means_nothing_is_told_and_does_no_harm(octop, monkeypatch):
    monkeypatch.setenv("OCTOP_SHEMA", "jobs")
    assert octop.json("tasks", "list") == []
    told = "octop: the environment variable OCTOP_SHEMA means nothing to Octop; did you mean OCTOP_SCHEMA?\n"
    assert octop.err == told


def test_a_role_without_rights_ends_with_6(octop, database):
    role = database.make_role()
    octop("--dsn", database.url_as(role), "tasks", "list", code=6)
    assert "permission denied" in octop.err


def test_a_producer_may_enqueue_look_at_its_task_and_cancel_it(octop, database):
    dsn = database.url_as(database.make_role("octop_producer"))
    task_id = octop("--dsn", dsn, "enqueue", "greet").strip()
    octop("--dsn", dsn, "tasks", "wait", task_id, "--timeout", "0.05", code=7)
    octop("--dsn", dsn, "tasks", "cancel", task_id)
    octop("--dsn", dsn, "queues", "pause", "default", code=6)


def test_c109_a_schema_with_a_poisoned_name_harms_nothing(octop, database):
    octop("--schema", 'x"; create table pwned(); --', "tasks", "list", code=5)
    with database.connect() as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("select from pwned")


def test_global_options_may_stand_before_and_after(octop):
    assert json.loads(octop("--json", "tasks", "list")) == []
    assert json.loads(octop("tasks", "list", "--json")) == []
    assert octop("--quiet", "queues", "pause", "mail") == ""


def test_nothing_is_asked_without_a_terminal(octop):
    octop("db", "reset", code=2)
    assert "--yes" in octop.err


def test_a_worker_needs_an_application(octop):
    octop("worker", code=2)
    assert "octop worker -A module:attribute" in octop.err


def test_a_worker_refuses_a_limit_that_is_none(octop):
    for wrong in ("mail=0", "mail=10001"):
        octop("worker", "-A", "octop.cli.demo.tasks:octop", "-q", wrong, code=2)
        assert "a limit is 1 to 10000" in octop.err


def test_an_application_that_does_not_import_shows_the_users_own_lines(database, tmp_path):
    (tmp_path / "shop.py").write_text("import goods\n")
    (tmp_path / "goods.py").write_text("def price():\n    raise ValueError('no price')\n\nprice()\n")
    command = [sys.executable, "-m", "octop", "--dsn", database.url, "worker", "-A", "shop"]

    def error(*more):
        answer = subprocess.run(
            [*command, *more], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert answer.returncode == 1
        return answer.stderr

    told = error()
    assert told.count("no price") == 2  # in the message, and in the line of source
    assert [line.split('"')[1] for line in told.splitlines() if line.startswith("  File")] == [
        str(tmp_path / "shop.py"),
        str(tmp_path / "goods.py"),
        str(tmp_path / "goods.py"),
    ]
    assert told.count("Correct the module") == 1
    assert "importlib" in error("-v")


def test_a_worker_refuses_a_schema_that_is_missing_and_a_database_that_is_away(octop, empty_database):
    octop("--dsn", empty_database.url, "worker", "-A", "octop.cli.demo.tasks:octop", code=5)
    assert "octop migrate" in octop.err
    octop("--dsn", "host=127.0.0.1 port=1", "worker", "-A", "octop.cli.demo.tasks:octop", code=4)


def test_a_worker_drains_and_ends_with_0(database, tmp_path):
    (tmp_path / "shop.py").write_text(
        "from octop import Octop\noctop = Octop()\n\n@octop.task\ndef add(a: int, b: int) -> int:\n    return a + b\n"
    )

    def run(*arguments):
        command = [sys.executable, "-m", "octop", "--dsn", database.url, *arguments]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert answer.returncode == 0, answer.stderr
        return answer

    task_id = run("enqueue", "add", "a=1", "b=2").stdout.strip()
    answer = run("worker", "-A", "shop:octop", "--drain", "-q", "default=3", "--name", "one", "--log-format", "json")
    assert {json.loads(line)["level"] for line in answer.stderr.splitlines()} == {"INFO"}
    assert run("tasks", "wait", task_id).stdout.strip() == f"{task_id} success 3"


def test_c107_a_worker_refuses_an_older_schema_and_names_the_command(database, tmp_path):
    with database.connect() as connection:
        connection.execute("update octop_migrations set checksum = 'x', version = '0.0.1' where name = 'functions'")
    command = [sys.executable, "-m", "octop", "--dsn", database.url, "worker", "-A", "octop.cli.demo.tasks:octop"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 5, answer.stderr
    assert "was installed by version 0.0.1" in answer.stderr
    assert "Run: octop migrate" in answer.stderr


def test_c107_a_worker_runs_on_when_the_schema_is_newer(database, tmp_path):
    with database.connect() as connection:
        connection.execute("update octop_migrations set checksum = 'x', version = '99' where name = 'functions'")
    command = [
        sys.executable,
        "-m",
        "octop",
        "--dsn",
        database.url,
        "worker",
        "-A",
        "octop.cli.demo.tasks:octop",
        "--drain",
    ]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert "is that of Octop 99" in answer.stderr


def test_version_is_printed(octop):
    assert set(octop.json("version")) == {"octop", "python", "platform"}
    assert octop("version").startswith("octop ")
