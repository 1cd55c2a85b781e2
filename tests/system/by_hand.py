"""Bring tasks where a worker would, by the functions that a worker calls, without a worker."""

from __future__ import annotations

import json
import uuid

from octop.engine.connect import open_connection


def enqueue(octop, *arguments):
    return octop("enqueue", *arguments).strip()


def claim(connection, count=10):
    """Register a worker and claim what is due, by the functions that a worker calls."""
    worker = str(uuid.uuid4())
    types = json.dumps([{"name": "fails"}])
    connection.execute(
        "select octop_register(%s::text::uuid, 'one', 'host', 1, null, '0', array['default'], %s::text::jsonb)",
        (worker, types),
    )
    rows = connection.execute(
        "select id, attempt, claim_id from octop_exchange(%s::text::uuid, array['default'], array[%s::integer], array['fails'])",
        (worker, count),
    ).fetchall()
    return worker, rows


def freeze(database, task_id, error_class="ValueError", error_message="no\nway"):
    """Let the attempt of a task fail; those that are due with it run on."""
    with open_connection(database.url, application_name="test") as connection:
        worker, rows = claim(connection)
        row = next(row for row in rows if row[0] == task_id)
        outcome = {
            "id": row[0],
            "attempt": row[1],
            "claim_id": row[2],
            "outcome": "failure",
            "error_class": error_class,
            "error_message": error_message,
            "traceback": f"Traceback (most recent call last):\n  File x\n{error_class}: {error_message}".replace(
                "\nway", " way"
            ),
        }
        connection.execute(
            "select octop_exchange(%s::text::uuid, outcomes => %s::text::jsonb)", (worker, json.dumps([outcome]))
        )


def finish(database, count=10):
    """Let what is due succeed."""
    with open_connection(database.url, application_name="test") as connection:
        worker, rows = claim(connection, count)
        if not rows:
            return
        ids, attempts, claims = (list(each) for each in zip(*rows, strict=True))
        connection.execute(
            "select octop_exchange(%s::text::uuid, done_ids => %s::text[]::uuid[], done_attempts => %s,"
            " done_claims => %s::text[]::uuid[], done_results => %s::text[])",
            (worker, ids, attempts, claims, ["3"] * len(ids)),
        )


def fill_shop(octop, database):
    """Five tasks by name: what they are is in the filters of the test below."""
    ids = {
        "frozen": enqueue(
            octop,
            "fails",
            "user=1",
            "--max-retries",
            0,
            "--tag",
            "vip",
            "--id",
            f"0{'1' * 7}-0000-7000-8000-{'0' * 12}",
        ),
    }
    freeze(database, ids["frozen"], "ValueError", "no user '42' (100%_sure)")
    ids["done"] = enqueue(octop, "fails", "--lane", "a:b")
    finish(database)
    ids["failed"] = enqueue(octop, "fails", '{"user": {"id": 42, "name": "Ann Lee"}, "n": 2.5}')
    freeze(database, ids["failed"], "KeyError", "user")
    ids["later"] = enqueue(
        octop, "send_mail", "--delay", "2h", "--queue", "mail", "--priority", 2, "--tenant", 'a"b, c'
    )
    ids["pending"] = enqueue(
        octop, "send_sms", '{"user": {"id": "42"}, "odd.name": "50%", "list": [7]}', "--tag", "a", "--tag", "b c"
    )
    return ids


def add_frozen(rows, count, **columns):
    """Put frozen tasks where they lie, past the engine: thousands in a moment."""
    values = {"task_type": "fails", "queue": "default", **columns}
    rows.execute(
        "insert into octop_tasks_frozen (id, task_type, queue, status, last_error)"
        " select octop_uuid7(), %s, %s, 'frozen', 'x' from generate_series(1, %s)",
        (values["task_type"], values["queue"], count),
    )


def statuses(rows):
    """Count the tasks by status."""
    return dict(rows.execute("select status, count(*) from octop_tasks group by 1").fetchall())
