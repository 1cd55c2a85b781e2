"""`octop doctor` through a real PgBouncer, in both of its modes that Octop can work with, and through a pooler that it can not ask."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from tests.pooler import pgbouncer
from tests.sql.crew import value
from tests.system.doctor import SHORT_OF_A_WHOLE_SERVER
from tests.system.provoked import provokes

SKIPPED = [word for each in SHORT_OF_A_WHOLE_SERVER for word in ("--skip", each)]


@provokes("connections.pooler")
def test_c067_a_pooler_in_transaction_mode_is_told_with_what_to_do(doctor, database, monkeypatch):
    with pgbouncer(database.url) as through:
        finding = doctor.one("connections.pooler", "--dsn", through)
        assert finding["what"] == (
            "a connection pooler in transaction mode stands in front of the database: no LISTEN through it"
        )
        (cure,) = finding["cure"]
        assert cure["in"] == "shell"
        assert cure["run"].startswith("octop worker -A MODULE:ATTRIBUTE --poll-only --dsn ")
        assert "a DSN that leads past it" in finding["hint"]
        monkeypatch.setenv("OCTOP_DSN", through)
        text = doctor("--only", "connections", code=0)
        assert "info    a connection pooler in transaction mode stands in front" in text
        assert "$ octop worker -A MODULE:ATTRIBUTE --poll-only\n" in text
        doctor("--only", "connections", "--strict", code=1)
    assert doctor.findings("--only", "connections", "--dsn", database.url, code=0) == []


@pytest.mark.parametrize("size", [1, 3])
def test_c067_every_check_can_be_asked_through_a_pooler_and_leaves_nothing_in_its_sessions(doctor, database, size):
    with pgbouncer(database.url, size=size) as through:
        found = doctor.findings(*SKIPPED, "--dsn", through, code=0)
        assert [each["id"] for each in found] == ["connections.pooler"]
        assert "in transaction mode" in found[0]["what"]
        doctor.database.psql("drop index octop_tasks_live_ready")
        assert "schema.index_missing" in {each["id"] for each in doctor.findings(*SKIPPED, "--dsn", through, code=1)}
        with doctor.database.connect() as connection:
            left = "select count(*) from pg_stat_activity where datname = current_database() and state ^@ 'idle in transaction'"
            assert value(connection, left) == 0


def test_a_pooler_in_session_mode_is_told_to_be_harmless(doctor, database):
    with pgbouncer(database.url, mode="session") as through:
        finding = doctor.one("connections.pooler", "--dsn", through)
        assert "keeps sessions apart" in finding["what"]
        assert finding["cure"] == []
        assert "LISTEN works" in finding["hint"]


class Between:
    """Stands between a client and the server and names a process of its own, as poolers do."""

    def __init__(self, goal: str) -> None:
        self._goal = goal
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._goal)
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, goal: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                at = data.find(b"K\x00\x00\x00\x0c") if answers else -1  # BackendKeyData: process id and secret
                if at >= 0:
                    data, answers = data[: at + 5] + b"\x00\x00\x00\x07" + data[at + 9 :], False
                goal.sendall(data)
            goal.shutdown(socket.SHUT_WR)


@provokes("connections.pooler")
def test_a_pooler_that_keeps_sessions_apart_is_noticed(doctor):
    running = doctor.database.server.running
    between = Between(str(next(running.socket_directory.glob(".s.PGSQL.[0-9]*[0-9]"))))
    try:
        through = (
            f"postgresql://octop@127.0.0.1:{between.port}/{doctor.database.name}?sslmode=disable&gssencmode=disable"
        )
        (finding,) = doctor.findings("--only", "connections", "--dsn", through, code=0)
        assert finding["id"] == "connections.pooler"
        assert "keeps sessions apart" in finding["what"]
        assert finding["cure"] == [], "LISTEN works"
    finally:
        between.close()
    assert doctor.findings("--only", "connections", code=0) == []
