"""`octop queues` on a real database: text, JSON, exit codes, and that running workers follow."""

import json
import uuid

import click
import pytest


def enqueue(octop, *arguments):
    return octop("enqueue", *arguments).strip()


def hire(connection, *, queues, types=(), name="one"):
    """Register a worker by the function that workers call."""
    worker = str(uuid.uuid4())
    connection.execute(
        "select octop_register(%s::text::uuid, %s, 'host', 4711, null, '0', %s, %s::text::jsonb)",
        (worker, name, list(queues), json.dumps([{"name": each} for each in types])),
    )
    return worker


def test_a_queue_is_paused_with_a_reason_and_resumed(octop):
    enqueue(octop, "greet", "--queue", "mail")
    assert octop.json("queues", "pause", "mail", "--reason", "night") == {
        "queue": "mail",
        "paused": True,
        "changed": True,
    }
    assert octop("queues", "pause", "mail") == "Queue mail was paused already.\n"
    assert octop("queues", "pause", "mail", "--reason", "night") == "Queue mail was paused already.\n"
    assert octop("queues", "pause", "mail", "--reason", "lunch") == (
        "Queue mail was paused already. The reason stays: night. For another one: octop queues resume mail first.\n"
    )
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
        assert f"0 or more, or the word reset, not {wrong}" in octop.err.replace("'", "")
    assert octop("queues", "scale", "mail", 0) == (
        "Queue mail: nothing of it starts. To pause it, with a reason: octop queues pause mail\n"
    )
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


def test_at_a_terminal_an_act_on_a_queue_that_nobody_knows_is_asked_about(octop, rows, monkeypatch):
    hire(rows, queues=["slow"])
    monkeypatch.setattr("octop.cli.policy.can_ask", lambda: True)
    questions = []
    monkeypatch.setattr(click, "confirm", lambda text, err: questions.append(text))  # no
    for act in (["pause", "slwo"], ["scale", "slwo", 2], ["set", "slwo", "--limit", 2]):
        octop("queues", *act, code=1)
        said = "octop: no task and no worker uses the queue slwo yet; did you mean slow?\nNothing was done.\n"
        assert octop.err == said
    assert questions == ["Pause it all the same?", "Set its limit all the same?", "Set it all the same?"]
    assert [each["name"] for each in octop.json("queues", "list")] == ["slow"]
    octop("queues", "pause", "slow")  # known
    octop("queues", "resume", "slwo")  # does no harm
    octop("queues", "pause", "slwo", "--yes")
    assert len(questions) == 3
    monkeypatch.setattr(click, "confirm", lambda text, err: True)
    octop("queues", "scale", "other", 2)
    assert {each["name"]: each["worker_limit"] for each in octop.json("queues", "list")}["other"] == 2


def test_a_queue_is_reset_and_forgotten_when_nothing_uses_it(octop, database):
    octop("queues", "scale", "nosuch", 3)
    assert octop.json("queues", "reset", "nosuch") == {"queue": "nosuch", "changed": True, "forgotten": True}
    assert octop.json("queues", "list") == []
    assert "nothing was set" in octop("queues", "reset", "nosuch")
    octop("queues", "scale", "nosuch", 3)
    assert octop("queues", "reset", "nosuch") == "Queue nosuch is forgotten: nothing uses it.\n"
    enqueue(octop, "greet", "--queue", "mail")
    octop("queues", "scale", "mail", 3)
    with database.connect() as connection:
        connection.execute(
            "update octop_queues set max_retries = 9, retry_policy = '{\"delays\": [1]}',"
            " declared = '{\"timeout_seconds\": 60, \"retry_policy\": null}' where name = 'mail'"
        )
    assert octop.json("queues", "reset", "mail") == {"queue": "mail", "changed": True, "forgotten": False}
    octop("queues", "scale", "mail", 3)
    told = "Queue mail: what the application declared and the workers' own flags hold again.\n"
    assert octop("queues", "reset", "mail") == told
    with database.connect() as connection:
        values = "select worker_limit, max_retries, timeout_seconds, retry_policy from octop_queues where name = 'mail'"
        assert connection.execute(values).fetchone() == (None, None, 60, None)


def test_an_operator_resets_what_he_set(octop, database):
    dsn = database.url_as(database.make_role("octop_operator"))
    octop("--dsn", dsn, "queues", "scale", "mail", 3)
    assert octop.json("--dsn", dsn, "queues", "reset", "mail")["changed"] is True
    assert [each["worker_limit"] for each in octop.json("queues", "list")] in ([], [None])


# --- show and set -----------------------------------------------------------------------------------------------------


def test_show_says_what_waits_who_set_what_who_serves_and_why_it_is_paused(octop, rows):
    hire(rows, queues=["mail"], types=["send"])
    enqueue(octop, "send", "--queue", "mail")
    enqueue(octop, "send", "--queue", "mail", "--delay", "1h")
    enqueue(octop, "stranger", "--queue", "mail")
    octop("queues", "set", "mail", "--limit", 5, "--timeout", "2m", "--retry-delays", "1,10s,5m")
    octop("queues", "pause", "mail", "--reason", "night")
    row = octop.json("queues", "show", "mail")
    assert (row["waiting"], row["due"], row["running"], row["blocked"]) == (3, 2, 0, 0)
    assert (row["worker_limit"], row["timeout_seconds"], row["max_retries"]) == (5, 120, None)
    assert row["retry_policy"] == {"delays": [1, 10, 300]}
    role = rows.execute("select session_user::text").fetchone()[0]
    assert row["origins"]["worker_limit"]["origin"] == "operator"
    assert row["origins"]["worker_limit"]["role"] == role
    assert row["origins"]["max_retries"] == {"origin": None, "role": None, "at": None}
    assert (row["pause_reason"], row["paused_by"]) == ("night", role)
    assert [(each["name"], each["pid"]) for each in row["served_by"]] == [("one", 4711)]
    assert row["task_types"] == [{"name": "send", "waiting": 2}, {"name": "stranger", "waiting": 1}]
    text = octop("queues", "show", "mail")
    for part in (
        "waiting       3 (2 due, the oldest for ",
        f"limit         5  (operator {role}, ",
        "max retries   -\n",
        "time limit    2m  (operator ",
        f"paused        by {role}, ",
        ": night\n",
        "workers       one (host, pid 4711, alive, runs 0 of 5)\n",
        "task types    send (2 waiting)\n              stranger (1 waiting)\n",
    ):
        assert part in text


def test_show_tells_the_applications_declaration_from_the_operators_word(octop, rows):
    hire(rows, queues=["mail"])
    rows.execute(
        'update octop_queues set declared = \'{"max_retries": 4, "timeout_seconds": 60}\', max_retries = 4,'
        " timeout_seconds = 90 where name = 'mail'"
    )
    row = octop.json("queues", "show", "mail")
    assert (row["origins"]["max_retries"]["origin"], row["origins"]["timeout_seconds"]["origin"]) == (
        "application",
        "operator",
    )
    assert "max retries   4  (application)\n" in octop("queues", "show", "mail")
    # default: what the application declared, not nothing
    assert octop.json("queues", "set", "mail", "--timeout", "default")["timeout_seconds"] == 60
    assert octop.json("queues", "show", "mail")["origins"]["timeout_seconds"]["origin"] == "application"


def test_a_queue_that_nobody_knows_is_not_shown(octop):
    enqueue(octop, "greet", "--queue", "mail")
    octop("queues", "pause", "newsletter")
    octop("queues", "scale", "reports", 1)
    octop("queues", "show", "reprots", code=3)
    assert octop.err == (
        "octop: there is no queue reprots\n  hint: Did you mean reports? octop queues list shows all.\n"
    )
    assert octop.json("queues", "show", "newsletter")["paused"] is True
    assert octop.json("queues", "show", "mail")["waiting"] == 1


def test_set_changes_what_is_named_and_nothing_else_and_is_audited(octop, rows):
    hire(rows, queues=["mail"])
    assert octop("queues", "set", "mail", "--limit", 5, "--max-retries", 7) == (
        "Queue mail: limit is 5 now, max retries is 7 now.\n"
    )
    policy = '{"base": 2, "cap": 60, "final": ["ValueError"]}'
    assert octop.json("queues", "set", "mail", "--retry-policy", policy) == {
        "queue": "mail",
        "worker_limit": 5,
        "max_retries": 7,
        "timeout_seconds": None,
        "retry_policy": json.loads(policy),
    }
    for word in ("default", "null", "none"):
        octop("queues", "set", "mail", "--limit", 3)
        assert octop.json("queues", "set", "mail", "--limit", word)["worker_limit"] is None
    acts = rows.execute("select detail from octop_audit where subject = 'mail' and action = 'set queue' order by seq")
    first = acts.fetchone()[0]
    assert (first["from"].get("worker_limit"), first["to"]["worker_limit"]) == (None, 5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "nothing to set"),
        (["--limit", "-1"], "0<=x<=10000"),
        (["limit=3"], "Did you mean --limit 3?"),
        (["max_retries=3"], "Did you mean --max-retries 3?"),
        (["wrong=3"], "unexpected extra argument"),
        (["--limit", "10001"], "0<=x<=10000"),
        (["--limit", "many"], "many"),
        (["--max-retries", "1001"], "0<=x<=1000"),
        (["--timeout", "0"], "above 0 and at most 31 days"),
        (["--timeout", "32d"], "above 0 and at most 31 days"),
        (["--timeout", "soon"], "not a length of time"),
        (["--retry-policy", "[1]"], "not a JSON object"),
        (["--retry-policy", "{"], "not JSON"),
        (["--retry-policy", '{"bse": 1}'], "a retry policy cannot have bse = 1"),
        (["--retry-policy", '{"growth": 0.5}'], "growth"),
        (["--retry-delays", "1,soon"], "not a length of time"),
        (["--retry-delays", "1s", "--retry-policy", "{}"], "exclude each other"),
    ],
)
def test_a_bad_value_is_refused_with_what_and_why_and_nothing_is_set(octop, options, says):
    octop("queues", "set", "mail", *options, code=2)
    assert says in octop.err
    assert octop.json("queues", "list") == []


def test_an_operator_sets_and_a_viewer_does_not(octop, database):
    operator = database.url_as(database.make_role("octop_operator"))
    octop("--dsn", operator, "queues", "set", "mail", "--max-retries", 2)
    octop("--dsn", operator, "queues", "set", "mail", "--max-retries", "default", "--limit", 2)
    viewer = database.url_as(database.make_role("octop_viewer"))
    octop("--dsn", viewer, "queues", "set", "mail", "--limit", 1, code=6)
    assert octop.json("--dsn", viewer, "queues", "show", "mail")["worker_limit"] == 2


def test_a_running_worker_follows_the_limit_that_is_set(octop, start):
    octop("queues", "set", "q", "--limit", 0)
    start().ready()
    task_id = enqueue(octop, "noop", "--queue", "q")
    octop("tasks", "wait", task_id, "--timeout", "0.2", code=7)
    octop("queues", "set", "q", "--limit", 2)
    octop("tasks", "wait", task_id, "--timeout", "20")
