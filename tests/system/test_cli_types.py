"""`octop types` on a real database: text, JSON, exit codes, and that running workers follow."""

import click
import pytest

from tests.system.apps.running import status, until
from tests.system.test_cli_queues import enqueue, hire


def declare(connection, policies):
    connection.execute("select octop_declare_task_types(%s::text::jsonb)", (policies,))


def test_types_are_listed_with_what_waits_and_who_knows_them(octop, rows):
    assert octop.json("types", "list") == []
    octop("types", "list")
    assert "No task type yet" in octop.err
    hire(rows, queues=["mail"], types=["send"])
    declare(rows, '[{"name": "send", "queue": "mail", "max_retries": 4, "timeout_seconds": 90, "run_in": "loop"}]')
    enqueue(octop, "send")
    enqueue(octop, "send")
    enqueue(octop, "stranger")
    octop("types", "freeze", "send", "--reason", "incident 7")
    found = {row["name"]: row for row in octop.json("types", "list")}
    assert set(found) == {"send", "stranger"}
    send, stranger = found["send"], found["stranger"]
    assert (send["known"], send["queue"], send["workers"], send["waiting"]) == (True, "mail", 1, 2)
    assert (send["frozen"], send["freeze_reason"], send["counts_cut"]) == (True, "incident 7", False)
    assert (stranger["known"], stranger["workers"], stranger["waiting"], stranger["frozen"]) == (False, 0, 1, False)
    lines = octop("types", "list").splitlines()
    assert lines[0].split()[:4] == ["type", "queue", "runs", "in"]
    assert lines[1].split() == ["send", "mail", "loop", "4", "1m", "30s", "2", "0", "0", "1", "incident", "7"]
    assert lines[2].split() == ["stranger", "-", "-", "-", "-", "1", "0", "0", "0", "no"]


def test_show_tells_who_set_what_and_who_knows_it(octop, rows):
    hire(rows, queues=["mail"], types=["send"])
    declare(rows, '[{"name": "send", "max_retries": 4, "description": "Send a mail."}]')
    octop("types", "set", "send", "--priority", 1)
    row = octop.json("types", "show", "send")
    role = rows.execute("select session_user::text").fetchone()[0]
    assert row["origins"]["max_retries"]["origin"] == "application"
    assert (row["origins"]["priority"]["origin"], row["origins"]["priority"]["role"]) == ("operator", role)
    assert row["origins"]["queue"]["origin"] is None
    assert [(each["name"], each["pid"], each["version"]) for each in row["known_by"]] == [("one", 4711, 1)]
    text = octop("types", "show", "send")
    for part in (
        "what it does  Send a mail.\n",
        "max retries   4  (application)\n",
        f"priority      1  (operator {role}, ",
        "known by      one (host, pid 4711, alive)\n",
        "frozen        no\n",
    ):
        assert part in text
    octop("types", "freeze", "send", "--reason", "incident 7")
    assert ": incident 7\n" in octop("types", "show", "send")
    octop("types", "freeze", "send", "--reason", "another")
    assert octop("types", "freeze", "send", "--reason", "another") == (
        "Type send was frozen already. The reason stays: incident 7. For another one: octop types thaw send first.\n"
    )
    octop("types", "show", "sned", code=3)
    assert octop.err == "octop: there is no task type sned\n  hint: Did you mean send? octop types list shows all.\n"


def test_set_and_reset_change_what_is_named_and_survive_a_deployment(octop, rows):
    policies = '[{"name": "send", "max_retries": 4, "retry_policy": {"delays": [1]}}]'
    declare(rows, policies)
    told = octop("types", "set", "send", "--max-retries", 9, "--timeout", "2m", "--queue", "default")
    assert told == "Type send: queue is default now, max retries is 9 now, time limit is 2m now.\n" or (
        sorted(told.removeprefix("Type send: ").rstrip(".\n").split(", "))
        == ["max retries is 9 now", "queue is default now", "time limit is 2m now"]
    )
    declare(rows, policies.replace("4", "5"))
    values = octop.json("types", "set", "send", "--retry-delays", "1s,1m")
    assert values == {
        "task_type": "send",
        "queue": "default",
        "priority": None,
        "max_retries": 9,
        "timeout_seconds": 120,
        "retry_policy": {"delays": [1, 60]},
        "freeze_type_on_exhaustion": None,
    }
    # taken back: what the code says now
    assert octop.json("types", "set", "send", "--max-retries", "default", "--queue", "none")["max_retries"] == 5
    assert octop.json("types", "reset", "send") == {
        "task_type": "send",
        "changed": True,
        "forgotten": False,
    }
    row = octop.json("types", "show", "send")
    assert (row["max_retries"], row["timeout_seconds"], row["queue"], row["retry_policy"]) == (
        5,
        None,
        None,
        {"delays": [1]},
    )
    assert octop("types", "reset", "send") == "Type send: nothing was set.\n"
    acts = [each["action"] for each in octop.json("audit", "--subject", "send")]
    assert acts[:3] == ["set task type", "set task type", "set task type"]
    octop("types", "set", "send", "--priority", 3)
    assert octop("types", "reset", "send") == "Type send: what the application declared holds again.\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "nothing to set"),
        (["--priority", "10"], "0<=x<=9"),
        (["retry-delays=1s,2s"], "Did you mean --retry-delays 1s,2s?"),
        (["--queue", ""], "queue"),
        (["--queue", "x" * 201], "queue"),
        (["--retry-policy", '{"delays": []}'], "a retry policy cannot have delays"),
    ],
)
def test_a_bad_value_is_refused_with_what_and_why(octop, rows, options, says):
    declare(rows, '[{"name": "send"}]')
    octop("types", "set", "send", *options, code=2)
    assert says in octop.err


def test_a_type_that_no_worker_has_declared_cannot_be_set_and_may_be_frozen(octop):
    for act in (["set", "nosuch", "--priority", 1], ["reset", "nosuch"], ["show", "nosuch"]):
        octop("types", *act, code=3)
        assert "there is no task type nosuch" in octop.err
    octop("types", "freeze", "nosuch")
    assert "no worker has declared the task type nosuch yet" in octop.err
    assert [each["name"] for each in octop.json("types", "list")] == ["nosuch"]


def test_a_type_that_nothing_names_is_forgotten_when_that_is_asked_for(octop, database, rows):
    declare(rows, '[{"name": "resize"}, {"name": "send"}]')
    assert octop("types", "reset", "resize") == "Type resize: nothing was set.\n"
    task_id = enqueue(octop, "resize")
    octop("types", "reset", "resize", "--forget", code=8)
    assert "resize is not forgotten: a worker, an unfinished task or a freeze names it" in octop.err
    octop("tasks", "cancel", task_id)
    octop("types", "freeze", "resize")
    octop("types", "reset", "resize", "--forget", code=8)
    octop("types", "thaw", "resize")
    rows.execute("update octop_task_types set priority = 3 where name = 'resize'")
    assert octop.json("types", "reset", "resize", "--forget") == {
        "task_type": "resize",
        "changed": True,
        "forgotten": True,
    }
    hire(rows, queues=["mail"], types=["send"])
    octop("types", "reset", "send", "--forget", code=8)
    assert [each["name"] for each in octop.json("types", "list")] == ["send"]
    octop("types", "reset", "resize", "--forget", code=3)


def test_at_a_terminal_a_freeze_of_a_type_that_nobody_knows_is_asked_about(octop, rows, monkeypatch):
    declare(rows, '[{"name": "boom"}]')
    monkeypatch.setattr("octop.cli.policy.can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, err: text != "Freeze it all the same?")
    octop("types", "freeze", "bom", code=1)
    assert octop.err == ("octop: no worker has declared the task type bom yet; did you mean boom?\nNothing was done.\n")
    octop("types", "thaw", "bom")
    octop("types", "freeze", "boom")
    assert {each["name"] for each in octop.json("types", "list")} == {"boom"}
    octop("types", "freeze", "bom", "--yes")
    assert {each["name"] for each in octop.json("types", "list")} == {"boom", "bom"}


def test_show_doubts_a_type_that_only_tasks_name(octop, rows):
    declare(rows, '[{"name": "send_welcome"}]')
    enqueue(octop, "send_welcom")
    octop("types", "show", "send_welcom")
    assert octop.err == "octop: no worker has ever declared the task type send_welcom; did you mean send_welcome?\n"
    octop("types", "show", "send_welcome")
    assert octop.err == ""


def test_a_slip_of_the_fingers_is_told_with_what_may_have_been_meant(octop, rows):
    enqueue(octop, "send_welcome")
    assert octop.err == ""  # no worker has ever declared anything
    declare(rows, '[{"name": "send_welcome"}, {"name": "charge"}]')
    task_id = enqueue(octop, "send_welcom")
    doubt = "o worker has ever declared the task type send_welcom; did you mean send_welcome?"
    assert octop.err == f"octop: n{doubt}\n"
    assert f"N{doubt}" in octop("tasks", "why", task_id)
    assert "type_never_declared" in [each["code"] for each in octop.json("tasks", "why", task_id)["reasons"]]
    enqueue(octop, "zzz")
    assert octop.err == "octop: no worker has ever declared the task type zzz\n"
    known = enqueue(octop, "charge")
    assert octop.err == ""
    assert "type_never_declared" not in str(octop.json("tasks", "why", known))
    octop("types", "freeze", "send_welcom")
    assert "the task type send_welcom yet; did you mean send_welcome?" in octop.err
    octop("queues", "scale", "mail", 3)
    octop("queues", "pause", "mial")
    assert "uses the queue mial yet; did you mean mail?" in octop.err


def test_a_type_that_is_one_of_many_is_known(octop, rows):
    rows.execute("insert into octop_task_types (name) select 'a' || g from generate_series(1, 1000) g")
    declare(rows, '[{"name": "send"}]')
    for act in ("freeze", "thaw"):
        octop("types", act, "send")
        assert octop.err == ""


def test_freeze_and_thaw_say_whether_they_changed_anything(octop, rows, database):
    declare(rows, '[{"name": "send"}]')
    operator = database.url_as(database.make_role("octop_operator"))
    assert octop("--dsn", operator, "types", "freeze", "send") == "Type send is frozen.\n"
    assert octop.json("types", "freeze", "send") == {"task_type": "send", "frozen": True, "changed": False}
    assert octop("--dsn", operator, "types", "thaw", "send") == "Type send runs again.\n"
    assert octop("types", "thaw", "send") == "Type send was not frozen.\n"
    viewer = database.url_as(database.make_role("octop_viewer"))
    octop("--dsn", viewer, "types", "freeze", "send", code=6)


def test_a_freeze_stops_a_type_on_a_running_worker_and_survives_its_restart(octop, rows, start):
    worker = start().ready()
    octop("types", "freeze", "noop", "--reason", "incident 7")
    task_id = enqueue(octop, "noop", "--queue", "q")
    until(lambda: status(rows, task_id) == "blocked", "the claim has parked it", worker.log)
    assert worker.stop() == 0
    worker = start().ready()
    other = enqueue(octop, "nap", "seconds=0", "--queue", "q")
    octop("tasks", "wait", other, "--timeout", "20")
    assert status(rows, task_id) == "blocked"
    octop("types", "thaw", "noop")
    octop("tasks", "wait", task_id, "--timeout", "20")
