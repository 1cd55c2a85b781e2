"""Health probes of real workers: green while they can do their work, idle or busy, and red when they can not, for whatever reason."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
from psycopg import sql

from octop.worker.health import Health
from tests.system.apps.probing import Probe
from tests.system.apps.running import enqueue, one, status, stopped, until


def test_a_worker_is_green_when_idle_and_when_full_and_not_before_it_has_begun(start, rows, tmp_path):
    file = tmp_path / "health"
    file.write_text(json.dumps(Health("ok", healthy=True, why=[], processes=[]).as_json()))  # of an earlier worker
    rows.execute("begin; lock table octop_workers")  # nobody registers
    worker = start(health_port=0, health_file=str(file), queues={"q": 2})
    probe = Probe(worker)
    until(lambda: probe()[1]["processes"][0]["pid"], "a process is there", worker.log)
    code, body = probe()
    assert (code, body["status"], body["ready"]) == (503, "starting", False)
    assert body["why"] == [f"worker process {body['processes'][0]['pid']} has not registered with the database yet"]
    assert not file.exists()
    rows.execute("rollback")
    probe.green()
    ids = [enqueue(rows, "nap", {"seconds": 60}) for _ in range(2)]
    until(lambda: {status(rows, each) for each in ids} == {"running"}, "its places are full", worker.log)
    claimed_at = one(rows, "select max(started_at) from octop_tasks")
    # longer than anything that is borne: a full worker asks for nothing, and that is no illness
    until(lambda: one(rows, "select now() > %s + interval '4 seconds'", claimed_at), "time has passed")
    until(lambda: probe.code("/readyz") == 200, "it is still ready", worker.log)
    body = probe()[1]
    assert (body["status"], body["healthy"], body["ready"]) == ("ok", True, True)
    (process,) = body["processes"]
    assert (process["pid"], process["state"], process["healthy"]) == (worker.pids()[0], "working", True)
    assert process["heartbeat_age_seconds"] < 2.5
    assert process["able_age_seconds"] < 2.5
    assert json.loads(file.read_text())["healthy"]
    before = file.stat().st_mtime_ns
    until(lambda: file.stat().st_mtime_ns > before, "the file is refreshed", worker.log)


def test_a_worker_that_stops_is_healthy_and_not_ready(start, rows, tmp_path):
    file = tmp_path / "health"
    worker = start(health_port=0, health_file=str(file), grace_seconds=20)
    probe = Probe(worker).green()
    assert probe.code("/readyz") == 200
    until(file.exists, "the file is there", worker.log)
    task_id = enqueue(rows, "nap", {"seconds": 4})
    until(lambda: status(rows, task_id) == "running", "it runs", worker.log)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: probe.code("/readyz") == 503, "it is not ready", worker.log)
    code, body = probe()
    assert (code, body["status"], body["healthy"], body["ready"]) == (200, "stopping", True, False)
    assert body["processes"][0]["state"] == "stopping"
    until(lambda: not json.loads(file.read_text())["ready"], "the file says so, too", worker.log)
    assert worker.wait() == 0, worker.text()
    assert not file.exists()
    assert status(rows, task_id) == "success"


def test_red_while_a_process_is_stopped_and_green_again(start, rows, tmp_path):
    file = tmp_path / "health"
    worker = start(health_port=0, health_file=str(file), processes=2)
    probe = Probe(worker).green()
    (pid, _) = [row["pid"] for row in probe()[1]["processes"]]
    with stopped(pid):
        why = [f"worker process {pid} is stopped by a signal or a debugger"]
        until(lambda: probe.red()["why"] == why, "it alone is red", worker.log)
        until(lambda: [row["healthy"] for row in probe()[1]["processes"]] == [False, True], "the other works")
        until(lambda: not file.exists(), "the file is gone", worker.log)
    probe.green()
    until(file.exists, "the file is there", worker.log)
    assert f"health: red: {why[0]}" in worker.text()
    assert worker.text().count("health: green") >= 2


def test_no_answer_and_an_old_file_while_the_supervisor_is_stopped(start, tmp_path):
    file = tmp_path / "health"
    worker = start(health_port=0, health_file=str(file))
    probe = Probe(worker).green()
    until(file.exists, "the file is there", worker.log)
    with stopped(worker.process.pid):
        with socket.create_connection(("127.0.0.1", probe.port), timeout=1) as door:
            door.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            with pytest.raises(TimeoutError):
                door.recv(1)
        os.utime(file, (0, 0))
    until(lambda: file.exists() and file.stat().st_mtime > 0, "it is refreshed again", worker.log)
    probe.green()


@pytest.mark.long
def test_red_when_claims_or_beats_are_refused_and_green_when_they_are_accepted_again(start, rows, database):
    login = database.make_role("octop_worker", "octop_producer", name="jobs")
    (exchange,) = rows.execute(
        "select oid::regprocedure::text from pg_proc where proname = 'octop_exchange'"
    ).fetchone()
    worker = start(
        dsn=database.url_as(login), health_port=0, application="tests.system.apps.prompt:octop", unable_seconds=0.5
    )
    probe = Probe(worker).green()

    def while_it_lasts(begin, end, words):
        rows.execute(begin.encode())
        if begin.startswith("revoke"):
            enqueue(rows, "noop")  # which wakes it
        try:
            body = probe.red(words)
        finally:
            rows.execute(end.encode())
        probe.green()
        return body["processes"][0]

    process = while_it_lasts("begin; lock table octop_queues", "rollback", "has not accepted its exchange")
    assert process["heartbeat_age_seconds"] < 2.5, "it is beaten for all the time, and gets nothing"
    process = while_it_lasts(
        f"revoke execute on function {exchange} from octop_worker",
        f"grant execute on function {exchange} to octop_worker",
        "its exchange is refused: permission denied for function octop_exchange",
    )
    assert process["heartbeat_age_seconds"] < 2.5
    while_it_lasts(f"revoke octop_worker from {login}", f"grant octop_worker to {login}", "permission denied")
    while_it_lasts(
        "alter schema public rename to elsewhere", "alter schema elsewhere rename to public", 'schema "public" does not'
    )
    task_id = enqueue(rows, "nap", {"seconds": 0})
    until(lambda: status(rows, task_id) == "success", "it works", worker.log)


def test_c059_red_while_the_database_is_away(start, rows, database):
    worker = start(health_port=0)
    probe = Probe(worker).green()
    name = sql.Identifier(database.name)
    database.server.execute(sql.SQL("alter database {} allow_connections false").format(name))
    try:
        rows.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        body = probe.red()
    finally:
        database.server.execute(sql.SQL("alter database {} allow_connections true").format(name))
    assert body["status"] == "failing"
    assert "no database answers" in body["why"][0]
    assert database.name not in json.dumps(body), "nothing of the DSN is told to whoever asks"
    probe.green()


@pytest.mark.long
def test_red_while_a_task_holds_the_event_loop(start, rows):
    worker = start(health_port=0)
    probe = Probe(worker).green()
    task_id = enqueue(rows, "block", {"seconds": 6})
    body = probe.red()
    assert f"can not work: its event loop is held by the task block {task_id}" in body["why"][0]
    probe.green()


def test_what_is_no_probe_is_told_so_and_harms_nothing(start, rows):
    worker = start(health_port=0)
    probe = Probe(worker).green()
    assert probe("/")[0] == 200
    assert probe("/healthz?from=kubelet")[0] == 200
    assert probe("/healthz", method="HEAD") == (200, None)
    assert probe("/health") == (404, {"why": ["ask /healthz or /readyz"]})
    assert probe("/healthz", method="POST")[0] == 405
    silent = [socket.create_connection(("127.0.0.1", probe.port)) for _ in range(60)]
    with socket.create_connection(("127.0.0.1", probe.port)) as noise:
        noise.sendall(os.urandom(20_000))
    for each in silent:
        each.close()
    probe.green()
    task_id = enqueue(rows, "nap", {"seconds": 0})
    until(lambda: status(rows, task_id) == "success", "it works", worker.log)
    assert "Traceback" not in worker.text()


def test_a_door_that_can_not_be_had_is_refused_before_anything_starts(octop, tmp_path):
    (tmp_path / "tasks.py").write_text("from octop import Octop\n\noctop = Octop()\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        octop("worker", "--health-port", port, code=2)
    assert f"the health port 127.0.0.1:{port} can not be had" in octop.err
    octop("worker", "--health-file", tmp_path / "nowhere" / "health", code=2)
    assert "can not be written: No such file or directory" in octop.err
    octop("worker", "--health-host", "0.0.0.0", code=2)
    assert "--health-port" in octop.err
