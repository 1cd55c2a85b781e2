"""`octop tasks list`, `show`, `why`, `wait`, and acts on ids: text, JSON, exit codes, help."""

import json
import uuid

import pytest

from octop.cli import entry
from octop.engine.connect import open_connection
from tests.system.by_hand import claim, enqueue, fill_shop, finish, freeze


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
    for options, expected in (
        (["--status", "cancelled,pending"], [second, first]),
        (["--status", "cancelled", "--status", "pending"], [second, first]),
        (["--queue", "mail", "--queue", "default", "--type", "greet"], [first]),
    ):
        assert [each["id"] for each in octop.json("tasks", "list", *options)] == expected
    octop("tasks", "list", "--status", "canceled,pending", code=2)
    assert "there is no status 'canceled'; did you mean cancelled? Statuses: pending, running" in octop.err


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
    assert octop.json("failures")[0]["example_task_id"] == task_id
    octop("tasks", "wait", task_id, code=1)
    assert octop.json("tasks", "retry", task_id) == [{"id": task_id, "retried_as": task_id}]
    assert octop.json("tasks", "show", task_id)["status"] == "pending"
    finish(database)
    text = octop("tasks", "show", task_id)
    assert "status        success" in text
    assert "error before  ValueError: no" in text, "the try that went well had none"
    assert "last_error" not in text


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


# --- lists and filters ------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(octop, database):
    return fill_shop(octop, database)


FOUND = [
    ([], "pending later done failed frozen"),
    (["status:failed,frozen"], "failed frozen"),
    (["-status:success,pending"], "failed frozen"),
    (["!status:success", "not:status:failed", "-type:send_*"], "frozen"),
    (["type:send_*"], "pending later"),
    (["type:*s*", "type:*ms"], "pending"),
    (["type:send%"], ""),
    (["type:send?mail"], ""),
    (["type:send.mail"], ""),
    (["queue:mail"], "later"),
    (["-queue:mail"], "pending done failed frozen"),
    (["lane:a:b"], "done"),
    (['lane:"a:b"'], "done"),
    (['lane:""', "queue:default"], "pending failed frozen"),
    ([r"tenant:a\"b\, c"], "later"),
    (["tenant:a*"], "later"),
    (["tag:vip"], "frozen"),
    (["tag:*"], "pending frozen"),
    (["tag:a", "tag:b c"], "pending"),
    (["-tag:*"], "later done failed"),
    (["error:USER"], "failed frozen"),
    (["error:100%_s"], "frozen"),
    (["error:100%%"], ""),
    (["error:no*42"], "frozen"),
    (["error:(100"], "frozen"),
    (["-error:*"], "pending later done"),
    (["priority:2"], "later"),
    (["priority:..4"], "later"),
    (["priority:>2", "type:send_*"], "pending"),
    (["-priority:3..9"], "later"),
    (["attempt:1.."], "done failed frozen"),
    (["retries:>0"], "failed"),
    (["scheduled:>+1h"], "later"),
    (["scheduled:+1h..+3h"], "later"),
    (["created:-1h", "scheduled:<=now", "status:pending"], "pending"),
    (["created:<-1h"], ""),
    (["completed:-1h.."], "done"),
    (["-completed:-1h.."], "pending later failed frozen"),
    (["started:-1h..,+1h..+2h"], "done failed frozen"),
    (["due:<=now"], "done failed frozen"),
    (["id:01111111"], "frozen"),
    (["id:0111-1111-0000"], "frozen"),
    (["-id:01111111"], "pending later done failed"),
    (["payload.user.id:42"], "pending failed"),
    (['payload.user.id:"42"'], "pending failed"),
    (["payload.user.id:>41"], "failed"),
    (["payload.user.id:..42"], "failed"),
    (["payload.n:2.50"], "failed"),
    (["payload.user.name:Ann Lee"], "failed"),
    (["payload.user.name:ann*"], ""),
    (["payload.user:*"], "pending failed frozen"),
    (['payload."odd.name":50%'], "pending"),
    (["payload.list.0:7"], "pending"),
    (["-payload.user.id:42"], "later done frozen"),
    (["worker:one"], "done frozen"),
    (["worker:ho*"], "done frozen"),
    (["queue:'; drop table octop_tasks; --"], ""),
    (["queue:" + "x" * 1900], ""),
    (["type:été邮件😀"], ""),
    ([r"type:\\\"%_[a-z]{2}(x|y)+?^$.\*"], ""),
]


def test_a_filter_finds_what_it_says(octop, shop):
    names = {task_id: name for name, task_id in shop.items()}
    for words, expected in FOUND:
        found = sorted(names[each["id"]] for each in octop.json("tasks", "list", *words))
        assert found == sorted(expected.split()), words


def test_options_and_words_go_together_in_any_place(octop, shop):
    for words in (
        ["--queue", "default", "-tag:a", "status:pending,frozen"],
        ["-tag:a", "--status", "frozen", "--limit", 5],
        ["--type", "fails", "-payload.hash:1", "status:frozen"],  # -h is the help of click, and -p nothing
    ):
        assert [each["id"] for each in octop.json("tasks", "list", *words)] == [shop["frozen"]]
    assert len(json.loads(octop("--json", "tasks", "list", "status:*", "--", "-tag:a", "status:frozen"))) == 1
    octop("tasks", "cancel", "--yes", "-status:success", "--reason", "-type: it begins like a word", "status:frozen")
    assert octop.json("tasks", "show", shop["frozen"])["last_error"] == "-type: it begins like a word"
    octop("tasks", "list", "--statsu", "x", code=2)
    assert "--status" in octop.err
    octop("tasks", "list", "-z", code=2)
    octop("tasks", "list", "-statsu:failed", code=2)
    assert "filter word '-statsu:failed': there is no key 'statsu'" in octop.err
    assert "Did you mean status?" in octop.err


def test_keys_and_statuses_are_completed(monkeypatch, capsys):
    monkeypatch.setenv("_OCTOP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "3")
    for typed, offered in (
        ("sta", ["status:", "started:"]),
        ("status:f", ["status:failed", "status:frozen"]),
        ("pay", ["payload."]),
    ):
        monkeypatch.setenv("COMP_WORDS", f"octop tasks retry {typed}")
        entry.run([])
        assert capsys.readouterr().out.split() == [f"plain,{each}" for each in offered]


def test_the_help_of_every_command_that_takes_a_filter_shows_its_grammar(octop):
    for command in (
        ["tasks", "list"],
        ["tasks", "retry"],
        ["tasks", "cancel"],
        ["tasks", "delete"],
        ["tasks", "export"],
        ["failures"],
    ):
        text = octop(*command, "--help")
        assert "FILTER" in text
        assert "status:failed,frozen" in text
        assert "octop help filters" in text
    topic = octop("help", "filters")
    for word in ("payload.user.id:42", "created:>-1h", "2030-01-31T09:00:00+08:00", "-key:value"):
        assert word in topic
    assert octop("help", "tasks", "why") == octop("tasks", "why", "--help")
    assert octop("help").startswith("Usage: octop ")
    octop("help", "wombat", code=2)
    octop("help", "filter", code=2)
    assert "there is no command and no topic 'filter'; did you mean filters? Topics: filters" in octop.err
    octop("help", "tasks", "lst", code=2)
    assert "'tasks lst'; did you mean list?" in octop.err
    assert "Topics: filters" in octop.err


# --- why --------------------------------------------------------------------------------------------------------------


def test_why_names_all_that_a_task_waits_for_with_the_cure(octop, database, rows):
    task_id = enqueue(octop, "fails", "--delay", "1h", "--queue", "mail")
    octop("queues", "pause", "mail", "--reason", "incident 7")
    octop("queues", "scale", "mail", 0)
    rows.execute("select octop_freeze('fails', 'bad deploy')")
    found = octop.json("tasks", "why", task_id)
    assert (found["id"], found["status"]) == (task_id, "pending")
    assert [each["code"] for each in found["reasons"]] == [
        "queue_paused",
        "type_frozen",
        "not_due",
        "no_worker",
    ]
    text = octop("tasks", "why", task_id[:18])
    for says in (
        "is paused (incident 7), by ",
        "To go on: octop queues resume mail",
        "is frozen (bad deploy), by ",
        "To go on: octop types thaw fails",
        "It starts at",
        "No living worker serves the queue mail and knows the type fails",
    ):
        assert says in text
    octop("queues", "resume", "mail")
    octop("queues", "scale", "mail", "reset")
    rows.execute("select octop_thaw('fails')")
    assert [each["code"] for each in octop.json("tasks", "why", task_id)["reasons"]] == ["not_due", "no_worker"]
    octop("tasks", "why", str(uuid.uuid4()), code=3)


def codes(octop, task_id):
    return [each["code"] for each in octop.json("tasks", "why", task_id)["reasons"]]


def test_why_tells_apart_who_is_missing(octop, database, rows):
    task_id = enqueue(octop, "fails", "--queue", "mail")
    with open_connection(database.url, application_name="test") as connection:
        worker, _ = claim(connection)  # serves default, knows fails
        assert "though some know the type fails" in octop("tasks", "why", task_id)
        rows.execute("update octop_workers set queues = '{mail}', task_types = '{other}'")
        assert "do not know the type fails" in octop("tasks", "why", task_id)
        rows.execute("update octop_workers set task_types = '{fails}', versions = '{1}'")
        assert codes(octop, task_id) == ["waits_for_room"]
        rows.execute("update octop_tasks set min_version = 2 where id = %s", (task_id,))
        assert "older than version 2 of the type fails" in octop("tasks", "why", task_id)
        rows.execute("update octop_workers set versions = '{2}', beat_at = now() - interval '1 hour'")
        assert "octop workers" in octop("tasks", "why", task_id)
        rows.execute("delete from octop_workers")
        assert codes(octop, task_id) == ["no_worker"]


def test_why_of_every_other_status(octop, database, rows, shop):
    assert codes(octop, shop["frozen"]) == ["retries_used_up"]
    assert "no user '42'" in octop("tasks", "why", shop["frozen"])
    assert codes(octop, shop["failed"])[0] in {"waits_for_retry", "waits_for_room"}  # its second may be over
    assert "Retry 1 of 3." in octop("tasks", "why", shop["failed"])
    assert codes(octop, shop["done"]) == ["succeeded"]
    octop("tasks", "cancel", shop["pending"])
    assert codes(octop, shop["pending"]) == ["cancelled"]
    running = enqueue(octop, "fails")
    with open_connection(database.url, application_name="test") as connection:
        claim(connection)
    assert codes(octop, running) == ["runs"]
    octop("tasks", "cancel", running)
    assert codes(octop, running) == ["cancel_requested"]
    rows.execute(
        "update octop_tasks_live set status = 'blocked', blocked_by = 'task_type:fails' where id = %s", (running,)
    )
    assert codes(octop, running) == ["coming_back"]


def test_an_error_of_several_lines_is_printed_as_lines_when_a_task_was_waited_for(octop, database):
    task_id = enqueue(octop, "fails", "--max-retries", 0)
    freeze(database, task_id, "ValueError", "no user\nhint: make one \x1b[31m")
    for waits in (["tasks", "wait", task_id], ["enqueue", "fails", "--id", task_id, "--wait"]):
        assert octop(*waits, code=1) == f"{task_id} frozen ValueError: no user\n  hint: make one \\x1b[31m\n"


def test_show_begins_with_what_one_looks_for_and_ends_with_the_engines_own(octop, database):
    task_id = enqueue(octop, "fails", "n=1", "--max-retries", 1, "--lane", "l")
    freeze(database, task_id)
    lines = octop("tasks", "show", task_id).splitlines()
    names = [line.split()[0] for line in lines[: lines.index("")]]
    assert names[:6] == ["id", "task_type", "status", "queue", "payload", "last_error"]
    assert names.index("scheduled_at") < names.index("attempt") < names.index("lane") < names.index("seq")
    assert names[-1] == "lost_count"
    later = [line for line in lines if line.startswith("next")]
    assert "Retry 1 of 1. It starts at" in later[0]


def test_a_cancelled_task_says_by_whom_and_why_and_its_reason_is_no_error(octop, database):
    task_id = enqueue(octop, "fails")
    octop("tasks", "cancel", task_id, "--reason", "wrong order")
    text = octop("tasks", "show", task_id)
    role = octop.json("audit")[0]["role"]
    assert f"cancelled     by {role}: wrong order" in text
    assert "last_error" not in text
    cancelled = octop.json("tasks", "show", task_id)["cancelled"]
    assert (cancelled["by"], cancelled["reason"]) == (role, "wrong order")
    assert "cancelled: wrong order" in octop("tasks", "list")
    plain = enqueue(octop, "fails")
    octop("tasks", "cancel", plain)
    assert f"cancelled     by {role}\n" in octop("tasks", "show", plain)
    assert octop.json("tasks", "show", enqueue(octop, "fails"))["cancelled"] is None
