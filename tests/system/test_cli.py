"""The command on a real database: text, JSON, exit codes. In process, so that forty commands take seconds."""

import json
import subprocess
import sys
import uuid

import psycopg
import pytest

from octop.cli import entry
from octop.engine.connect import open_connection


class Command:
    """Runs `octop` as a shell would, less the start of Python."""

    def __init__(self, capsys):
        self.capsys = capsys

    def __call__(self, *arguments, code=0):
        self.capsys.readouterr()
        ended = entry.run([str(each) for each in arguments])
        printed = self.capsys.readouterr()
        assert ended == code, printed.err
        self.err = printed.err
        return printed.out

    def json(self, *arguments, code=0):
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def octop(database, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCTOP_DSN", database.url)
    for name in ("DATABASE_URL", "OCTOP_SCHEMA", "OCTOP_APP", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Command(capsys)


def enqueue(octop, *arguments):
    return octop("enqueue", *arguments).strip()


def claim(connection):
    """Register a worker and claim all that is due, by the functions that a worker calls."""
    worker = str(uuid.uuid4())
    types = json.dumps([{"name": "fails"}])
    connection.execute(
        "select octop_register(%s::text::uuid, 'one', 'host', 1, null, '0', array['default'], %s::text::jsonb)",
        (worker, types),
    )
    rows = connection.execute(
        "select id, attempt, claim_id from octop_exchange(%s::text::uuid, array['default'], array[10], array['fails'])",
        (worker,),
    ).fetchall()
    return worker, rows


def freeze(database, task_id):
    """Bring a task where a worker would, by the functions that a worker calls."""
    with open_connection(database.url, application_name="test") as connection:
        worker, rows = claim(connection)
        row = next(row for row in rows if row[0] == task_id)
        outcome = {
            "id": row[0],
            "attempt": row[1],
            "claim_id": row[2],
            "outcome": "failure",
            "error_class": "ValueError",
            "error_message": "no\nway",
            "traceback": "Traceback (most recent call last):\n  File x\nValueError: no way",
        }
        connection.execute(
            "select octop_exchange(%s::text::uuid, outcomes => %s::text::jsonb)", (worker, json.dumps([outcome]))
        )


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
        (["greet", '{"text": "a\\u0000b"}'], "PostgreSQL cannot keep"),
        (["greet", "--nonsense"], "nonsense"),
    ],
)
def test_enqueue_refuses_bad_input_and_writes_nothing(octop, arguments, says):
    octop("enqueue", *arguments, code=2)
    assert says in octop.err
    assert "Traceback" not in octop.err
    assert octop.json("tasks", "list") == []


def test_a_payload_over_the_limit_is_refused(octop):
    octop("config", "set", "task.payload_bytes_max", 1024)
    octop("enqueue", "greet", f"text={'x' * 2000}", code=2)
    assert "task.payload_bytes_max" in octop.err


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_the_latest_first_and_filtered(octop):
    first = enqueue(octop, "greet")
    second = enqueue(octop, "send", "--queue", "mail", "--tenant", "t")
    octop("tasks", "cancel", first)
    assert [each["id"] for each in octop.json("tasks", "list")] == [second, first]
    for option, value, expected in (
        ("--status", "cancelled", first),
        ("--queue", "mail", second),
        ("--type", "greet", first),
        ("--tenant", "t", second),
        ("--limit", 1, second),
    ):
        assert [each["id"] for each in octop.json("tasks", "list", option, value)] == [expected]
    assert octop.json("tasks", "list", "--since", "1h") != []
    lines = octop("tasks", "list").splitlines()
    assert lines[0].split()[:4] == ["id", "type", "queue", "status"]
    assert lines[1].split()[:4] == [second, "send", "mail", "pending"]
    octop("tasks", "list", "--status", "nonsense", code=2)


def test_an_empty_list_says_so_on_stderr(octop):
    assert octop("tasks", "list").count("\n") == 1
    assert "No such task" in octop.err


def test_a_frozen_task_shows_its_attempts_and_comes_back(octop, database):
    task_id = enqueue(octop, "fails", "--max-retries", 0)
    freeze(database, task_id)
    text = octop("tasks", "show", task_id)
    assert "status        frozen" in text
    assert "attempt 1: failure after" in text
    assert "ValueError: no way" in text
    assert f"octop tasks retry {task_id}" in text
    (attempt,) = octop.json("tasks", "show", task_id)["attempts"]
    assert (attempt["outcome"], attempt["error_class"]) == ("failure", "ValueError")
    assert octop.json("failures")[0]["id"] == task_id
    assert "no\\x0away" in octop("failures")
    octop("tasks", "wait", task_id, code=1)
    assert octop.json("tasks", "retry", task_id) == [{"id": task_id, "retried_as": task_id}]
    assert octop.json("tasks", "show", task_id)["status"] == "pending"


def test_a_task_that_ended_is_retried_as_a_new_one(octop):
    task_id = enqueue(octop, "greet", "name=Ann")
    assert octop.json("tasks", "cancel", task_id, "--reason", "why not") == [{"id": task_id, "verdict": "cancelled"}]
    (answer,) = octop.json("tasks", "retry", task_id)
    assert answer["retried_as"] != task_id
    assert octop.json("tasks", "show", answer["retried_as"])["retry_of"] == task_id
    assert "its repetition is" in octop("tasks", "retry", task_id)


def test_the_exit_code_of_acts_on_many_tasks_is_that_of_the_first_error(octop):
    task_id, missing = enqueue(octop, "greet"), str(uuid.uuid4())
    answers = octop.json("tasks", "cancel", missing, task_id, code=3)
    assert answers[1] == {"id": task_id, "verdict": "cancelled"}
    assert "there is no task" in answers[0]["error"]
    for act in ("show", "cancel", "retry", "wait"):
        octop("tasks", act, missing, code=3)


def test_wait_gives_up_with_7_and_ends_with_0_after_success(octop, database):
    task_id = enqueue(octop, "fails")
    octop("tasks", "wait", task_id, "--timeout", "0.1", code=7)
    octop("enqueue", "fails", "--wait-timeout", "100ms", code=7)
    assert "still pending" in octop.err
    with open_connection(database.url, application_name="test") as connection:
        worker, rows = claim(connection)
        ids, attempts, claims = (list(each) for each in zip(*rows, strict=True))
        connection.execute(
            "select octop_exchange(%s::text::uuid, done_ids => %s::text[]::uuid[], done_attempts => %s, done_claims => %s::text[]::uuid[],"
            " done_results => %s::text[])",
            (worker, ids, attempts, claims, ['{"a": 1}'] * len(ids)),
        )
    assert octop("tasks", "wait", task_id).strip() == f'{task_id} success {{"a": 1}}'
    (answer,) = octop.json("tasks", "wait", task_id)
    assert (answer["status"], answer["result"]) == ("success", {"a": 1})
    octop("tasks", "cancel", task_id, code=8)
    assert "has finished with success" in octop.err


# --- queues, workers, config ------------------------------------------------------------------------------------------


def test_a_queue_is_paused_with_a_reason_and_resumed(octop):
    enqueue(octop, "greet", "--queue", "mail")
    assert octop.json("queues", "pause", "mail", "--reason", "night") == {
        "queue": "mail",
        "paused": True,
        "changed": True,
    }
    assert "was paused already" in octop("queues", "pause", "mail")
    (queue,) = octop.json("queues", "list")
    assert (queue["name"], queue["waiting"], queue["paused"], queue["pause_reason"]) == ("mail", 1, True, "night")
    assert octop("queues", "list").splitlines()[1].split()[-1] == "night"
    assert "runs again" in octop("queues", "resume", "mail")
    assert "was not paused" in octop("queues", "resume", "mail")


def test_a_queue_is_scaled_and_given_back(octop):
    octop("queues", "scale", "mail", 7)
    assert octop.json("queues", "list")[0]["worker_limit"] == 7
    octop("queues", "scale", "mail", "reset")
    assert octop.json("queues", "list")[0]["worker_limit"] is None
    for wrong in ("many", "-1", "2.5"):
        octop("queues", "scale", "mail", wrong, code=2)
    octop("queues", "scale", "mail", 1_000_000, code=2)
    assert "0 to 10000" in octop.err


def test_workers_are_listed(octop, database):
    assert octop.json("workers") == []
    octop("workers")
    assert "No worker is registered" in octop.err
    with database.connect() as connection:
        connection.execute(
            "select octop_register(%s::uuid, 'one', 'host', 4711, null, '0', array['mail'], '[]')", (uuid.uuid4(),)
        )
    (worker,) = octop.json("workers")
    assert (worker["name"], worker["host"], worker["pid"], worker["state"]) == ("one", "host", 4711, "alive")
    assert octop("workers").splitlines()[1].split()[0] == "one"


def test_settings_are_listed_with_value_default_bounds_and_meaning(octop):
    row = next(each for each in octop.json("config", "list") if each["key"] == "worker.lease_seconds")
    assert (row["value"], row["default"], row["minimum"], row["maximum"]) == (30, 30, 0.5, 3600)
    line = next(each for each in octop("config", "list").splitlines() if each.startswith("worker.lease_seconds"))
    assert "0.5 to 3600" in line
    assert "loses its tasks" in line


def test_settings_are_changed_and_reset(octop):
    assert octop("config", "set", "worker.concurrency", 20) == "worker.concurrency is 20 now.\n"
    assert octop("config", "get", "worker.concurrency") == "20\n"
    assert octop("config", "reset", "worker.concurrency") == "worker.concurrency is 10 again.\n"
    assert octop.json("config", "get", "worker.concurrency")["value"] == 10
    assert "worker.grace_seconds is none now" in octop("config", "set", "worker.grace_seconds", "none")


def test_settings_that_must_agree_are_changed_together(octop):
    octop("config", "set", "worker.lease_seconds", 9, code=2)
    assert "at most a third" in octop.err
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
        assert "nonsense" in octop.err


# --- the schema -------------------------------------------------------------------------------------------------------


def test_without_a_schema_everything_ends_with_5_and_says_what_to_do(octop, empty_database):
    for arguments in (["tasks", "list"], ["enqueue", "greet"], ["queues", "list"], ["config", "list"], ["failures"]):
        octop("--dsn", empty_database.url, *arguments, code=5)
        assert "Octop is not installed in schema public" in octop.err
        assert "octop migrate" in octop.err


def test_migrate_installs_and_says_what_is_there(octop, empty_database):
    octop("migrate", "status", "--dsn", empty_database.url, code=5)
    assert octop.json("migrate", "status", "--dsn", empty_database.url, code=5)["present"] is False
    assert "has the tables" in octop("migrate", "--dsn", empty_database.url, "--schema", "jobs")
    assert octop.json("migrate", "--dsn", empty_database.url, "--schema", "jobs")["missing"] == []
    assert octop.json("migrate", "status", "--dsn", empty_database.url, "--schema", "jobs")["current"] is True
    octop("--dsn", empty_database.url, "--schema", "jobs", "enqueue", "greet")
    assert len(octop.json("--dsn", empty_database.url, "--schema", "jobs", "tasks", "list")) == 1


def test_a_schema_of_another_version_ends_with_5(octop, database):
    with database.connect() as connection:
        connection.execute("update octop_migrations set checksum = 'x' where name = 'functions'")
    octop("migrate", "status", code=5)
    assert "octop migrate" in octop.err
    octop("migrate")
    octop("migrate", "status")


def test_sql_prints_a_script_that_psql_runs_and_changes_nothing_itself(octop, empty_database, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", "postgresql://127.0.0.1:1/nowhere")
    script = octop("sql", "install")
    assert octop("sql", "upgrade") == script
    assert 'to "octop_producer"' in octop("sql", "grants")
    assert 'to "my_producer"' in octop("sql", "grants", "--role-prefix", "my_")
    empty_database.psql(script)
    empty_database.psql(script)
    assert octop.json("--dsn", empty_database.url, "migrate", "status")["current"] is True
    octop("sql", "install", "--schema", "pg_x", code=2)


# --- the ways to fail -------------------------------------------------------------------------------------------------


def test_no_database_ends_with_4_and_shows_no_password(octop):
    octop("--dsn", "postgresql://ann:secret@127.0.0.1:1/x", "workers", code=4)
    assert "Check that the server runs" in octop.err
    assert "secret" not in octop.err
    octop("--dsn", "host=127.0.0.1 port=1 password=secret", "tasks", "list", "-v", code=4)
    assert "Traceback" in octop.err
    assert "secret" not in octop.err


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


def test_a_schema_with_a_poisoned_name_harms_nothing(octop, database):
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


def test_a_worker_runs_on_when_the_schema_is_newer(database, tmp_path):
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
