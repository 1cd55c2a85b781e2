"""The command on a real database: text, JSON, exit codes. In process, so that forty commands take seconds."""

import json
import re
import subprocess
import sys
import uuid

import psycopg
import pytest

from octop import __version__
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


def finish(database):
    """Let all that is due succeed."""
    with open_connection(database.url, application_name="test") as connection:
        worker, rows = claim(connection)
        ids, attempts, claims = (list(each) for each in zip(*rows, strict=True))
        connection.execute(
            "select octop_exchange(%s::text::uuid, done_ids => %s::text[]::uuid[], done_attempts => %s,"
            " done_claims => %s::text[]::uuid[], done_results => %s::text[])",
            (worker, ids, attempts, claims, ["3"] * len(ids)),
        )


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


def test_a_task_is_found_by_the_beginning_of_its_id_wherever_it_is(octop, database):
    ids = {status: f"{n}1234567-0000-7000-8000-000000000000" for n, status in enumerate(("done", "frozen", "live"))}
    for status, task_id in ids.items():
        if status != "live":
            enqueue(octop, "fails", "--max-retries", 0, "--id", task_id)
            finish(database) if status == "done" else freeze(database, task_id)
    enqueue(octop, "fails", "--id", ids["live"])
    for n, (status, found) in enumerate(zip(ids, ("success", "frozen", "pending"), strict=True)):
        task = octop.json("tasks", "show", f"{n}1234567")
        assert (task["id"], task["status"]) == (ids[status], found)
    octop("tasks", "wait", "01234567-0000")
    assert octop.json("tasks", "retry", "11234567") == [{"id": ids["frozen"], "retried_as": ids["frozen"]}]
    assert octop.json("tasks", "cancel", "21234567-00", "11234567")[0] == {"id": ids["live"], "verdict": "cancelled"}
    octop("tasks", "show", "31234567", code=3)
    assert "no task's id begins with 31234567" in octop.err


def test_a_beginning_that_fits_several_ids_is_refused_and_nothing_is_done(octop):
    ids = [f"01234567-0000-7000-8000-00000000000{n}" for n in range(2)]
    for task_id in ids:
        enqueue(octop, "greet", "--id", task_id)
    other = enqueue(octop, "greet")
    for act in (["show"], ["cancel", other], ["retry"], ["wait"]):
        octop("tasks", *act, "01234567", code=2)
        for task_id in ids:
            assert f"\n  {task_id}\n" in octop.err
    assert {each["status"] for each in octop.json("tasks", "list")} == {"pending"}


def test_a_producer_names_its_own_task_by_its_beginning(octop, database):
    dsn = database.url_as(database.make_role("octop_producer"))
    task_id = octop("--dsn", dsn, "enqueue", "greet", "--id", "01234567-0000-7000-8000-000000000000").strip()
    assert task_id in octop("--dsn", dsn, "tasks", "cancel", "01234567")


def test_an_act_on_many_names_each_that_failed_once_with_the_cure(octop):
    missing, task_id = str(uuid.uuid4()), enqueue(octop, "greet")
    octop("tasks", "cancel", missing, task_id, code=3)
    first, second = octop.err.splitlines()
    assert first == f"octop: there is no task {missing}"
    assert second.startswith("  hint: ")


def test_an_attempt_without_a_class_shows_no_stray_colon(octop, database):
    task_id = enqueue(octop, "fails")
    with database.connect() as connection:
        connection.execute(
            "insert into octop_attempts (task_id, attempt, tenant, queue, task_type, ended_at, outcome, error_message)"
            " values (%s, 1, '', 'default', 'fails', now(), 'lost', 'its worker died')",
            (task_id,),
        )
    assert "\n  its worker died\n" in octop("tasks", "show", task_id)


def test_failures_are_listed_with_where_and_how_often(octop, database):
    ids = []
    for most in (0, 5):
        ids.append(enqueue(octop, "fails", "--max-retries", most))
        freeze(database, ids[-1])
    rows = octop.json("failures")
    assert [(row["id"], row["status"], row["queue"], row["attempt"]) for row in rows] == [
        (ids[1], "failed", "default", 1),
        (ids[0], "frozen", "default", 1),
    ]
    assert octop("failures").split("\n")[0].split()[:5] == ["id", "type", "queue", "status", "attempt"]
    assert [each["id"] for each in octop.json("failures", "--limit", 1)] == [ids[1]]
    octop("failures", "--limit", 1)
    assert "--limit shows more" in octop.err


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


def test_an_act_on_a_queue_that_nobody_knows_is_done_and_noted(octop):
    for act in (["pause", "nosuch"], ["resume", "nosuch"], ["scale", "nosuch", 3]):
        octop("queues", *act)
        assert "no task and no worker uses the queue nosuch yet" in octop.err
    # an operator has named it meanwhile
    octop("queues", "scale", "nosuch", 4)
    assert "no task" not in octop.err
    enqueue(octop, "greet", "--queue", "mail")
    octop("queues", "pause", "mail")
    assert "no task" not in octop.err


def test_a_queue_is_reset_and_forgotten_when_nothing_uses_it(octop, database):
    octop("queues", "scale", "nosuch", 3)
    assert octop.json("queues", "reset", "nosuch") == {"queue": "nosuch", "changed": True, "forgotten": True}
    assert octop.json("queues", "list") == []
    assert "nothing was set" in octop("queues", "reset", "nosuch")
    enqueue(octop, "greet", "--queue", "mail")
    octop("queues", "scale", "mail", 3)
    with database.connect() as connection:
        connection.execute(
            "update octop_queues set max_retries = 9, retry_policy = '{\"delays\": [1]}',"
            " declared = '{\"timeout_seconds\": 60, \"retry_policy\": null}' where name = 'mail'"
        )
    assert octop.json("queues", "reset", "mail") == {"queue": "mail", "changed": True, "forgotten": False}
    with database.connect() as connection:
        values = "select worker_limit, max_retries, timeout_seconds, retry_policy from octop_queues where name = 'mail'"
        assert connection.execute(values).fetchone() == (None, None, 60, None)


def test_an_operator_resets_what_he_set(octop, database):
    dsn = database.url_as(database.make_role("octop_operator"))
    octop("--dsn", dsn, "queues", "scale", "mail", 3)
    assert octop.json("--dsn", dsn, "queues", "reset", "mail")["changed"] is True
    assert [each["worker_limit"] for each in octop.json("queues", "list")] in ([], [None])


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


def test_settings_are_sorted_and_an_alias_names_its_key(octop):
    keys = [each["key"] for each in octop.json("config", "list")]
    assert keys == sorted(keys)
    line = next(each for each in octop("config", "list").splitlines() if each.startswith("task.timeout_seconds"))
    assert line.endswith("the same as task.default_timeout_seconds")


@pytest.fixture
def narrow(octop, monkeypatch):
    """Run a command as on a terminal of 80 columns, and return its lines."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", octop(*arguments)).splitlines()
        assert max(map(len, lines)) <= 80
        return lines

    return run


def test_tables_fit_into_80_columns_and_keep_ids_and_keys_whole(octop, narrow, database):
    task_id = enqueue(octop, "fails", "--max-retries", 0, "--queue", "default")
    freeze(database, task_id)
    enqueue(octop, "send_a_mail_with_a_long_name", "--queue", "a_queue_with_a_long_name")
    for arguments in (["tasks", "list"], ["failures"]):
        (line,) = (each for each in narrow(*arguments) if "frozen" in each)
        assert line.startswith(f"{task_id} ")
    assert any(each.startswith("a_queue_with_a_long_name ") for each in narrow("queues", "list"))
    assert narrow("workers")[0].startswith("worker")
    lines = narrow("config", "list")
    keys = [each.split()[0] for each in lines if not each.startswith(" ")]
    assert keys == [each["key"] for each in octop.json("config", "list")]
    assert any(each.startswith("worker.lease_seconds  30  0.5 to 3600") for each in lines)
    octop("config", "set", "worker.lease_seconds", 60)
    assert any(each.startswith("worker.lease_seconds  60  default 30, ") for each in narrow("config", "list"))


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
