"""Alerts reach a callable and a webhook, a real server on loopback that fails, hangs and is slow, and no task waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import http.server
import json
import ssl
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from urllib.error import URLError

import pytest

from octop.model.alert import Alert
from octop.model.errors import ConfigurationError
from octop.worker import alerts as alerts_module
from octop.worker.alerts import Alerts, beside, to_hooks
from octop.worker.link import Link
from octop.worker.options import WorkerOptions
from octop.worker.webhook import Webhook, WebhookRefusedError, webhook_of
from tests.system.apps.running import enqueue, one, until

SECRET = "0123456789abcdef0123456789abcdef"
MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
ALERT = Alert(1, "type_frozen", "send", "error", "é", {}, MOMENT, MOMENT, 1, "", MOMENT, 1)


class Server:
    """Answers what it is told to, one thing after the other, and keeps what it got."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.release = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.got.append((self.path, dict(self.headers), body))
                answer = server.answers.pop(0) if server.answers else 204
                if answer == "hang":
                    server.release.wait(30)
                    return
                if answer == "slow":
                    with contextlib.suppress(OSError):
                        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                        for n in range(200):
                            if server.release.wait(0.1):
                                break
                            self.wfile.write(b"X-%d: x\r\n" % n)
                            self.wfile.flush()
                    return
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/octop?a=b"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self):
        self.release.set()
        self._http.shutdown()
        self._http.server_close()

    def secure(self, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)


@pytest.fixture
def serve():
    made = []

    def served(*answers):
        made.append(Server(*answers))
        return made[-1]

    yield served
    for each in made:
        each.close()


def environment(server):
    return {"OCTOP_ALERT_WEBHOOK": server.url, "OCTOP_ALERT_SECRET": SECRET}


def signed(headers, body):
    expected = hmac.new(SECRET.encode(), headers["Octop-Timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers["Octop-Signature"], f"v1={expected}")


@pytest.mark.slow
def test_a_worker_tells_its_hook_and_the_webhook_and_runs_its_tasks_meanwhile(start, rows, serve, monkeypatch):
    server = serve(500, "hang", 200)
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)

    def counted(statement, *values):
        return one(rows, f"select count(*) from {statement}", *values)

    start(application="tests.system.apps.alerting:octop").ready()
    enqueue(rows, "charge")
    until(lambda: counted("ledger where job = 'told type_frozen charge'") == 1, "the hook was called")
    later = enqueue(rows, "charge")
    until(lambda: len(server.got) == 2, "the second try hangs")
    began = time.monotonic()
    enqueue(rows, "note", {"job": "beside"})
    until(lambda: counted("ledger where job = 'beside'") == 1, "a task ran beside it")
    assert time.monotonic() - began < 5
    assert one(rows, "select status from octop_tasks where id = %s", later) in ("pending", "blocked")
    child = enqueue(rows, "reveal")
    seen = "select result::text from octop_tasks where id = %s and status = 'success'"
    until(lambda: one(rows, seen, child) == "[]", "a child process saw no secret")
    rows.execute("select octop_ack_alerts()")  # it is delivered all the same
    done = "octop_alert_deliveries where channel = 'webhook' and delivered_at is not null"
    until(lambda: counted(done) == 1, "the third try was taken", seconds=40)
    path, headers, body = server.got[-1]
    assert (path, headers["Content-Type"]) == ("/octop?a=b", "application/json")
    assert all(signed(headers, body) for _, headers, body in server.got)
    told = json.loads(body)
    assert (told["kind"], told["subject"], told["tries"]) == ("type_frozen", "charge", 3)
    assert counted("ledger where job like 'told%%'") == 1


def looks(database, deliver, seconds, *, channel="webhook", condition=None):
    """Hand alerts over for so long, or until the condition holds, while something else turns on the loop; return its longest standstill."""
    longest = 0.0

    async def main():
        nonlocal longest
        link = Link(WorkerOptions(dsn=database.url), "control", "x")
        over = asyncio.Event()
        worker_id = "00000000-0000-7000-8000-000000000001"
        async with asyncio.TaskGroup() as group:
            group.create_task(Alerts(worker_id, link, channel, deliver).hand_over(over))
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not (condition and condition()):
                before = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)
            over.set()
        await link.close()

    asyncio.run(main())
    return longest


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(alerts_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(alerts_module, "TRY_SECONDS", 0.5)


@pytest.mark.parametrize("answer", [500, 404, 302, "hang", "slow"])
def test_what_is_not_taken_is_tried_again_and_a_server_that_hangs_or_drips_holds_up_nothing(
    database, rows, serve, quick, answer
):
    server = serve(answer)
    rows.execute("select _octop_alert('type_frozen', 'send', 'error', 'm', '{}')")
    webhook = Webhook(server.url, SECRET.encode())
    known = "select coalesce(max(last_error), '') from octop_alert_deliveries"
    standstill = looks(database, webhook.deliver, 10, condition=lambda: one(rows, known) != "")
    assert standstill < 0.4
    said = one(rows, known)
    assert said == {
        500: "WebhookRefusedError: 127.0.0.1 answered 500 Internal Server Error",
        404: "WebhookRefusedError: 127.0.0.1 answered 404 Not Found",
        302: "WebhookRefusedError: 127.0.0.1 answered 302 Found",
    }.get(answer, "no end within 0 s")  # fmt: skip
    assert [path for path, _, _ in server.got] == ["/octop?a=b"]
    rows.execute("update octop_alert_deliveries set next_try_at = now()")
    looks(
        database,
        webhook.deliver,
        10,
        condition=lambda: one(rows, "select max(delivered_at) is not null from octop_alert_deliveries"),
    )
    assert [json.loads(body)["tries"] for _, _, body in server.got] == [1, 2]


@pytest.mark.parametrize("kind", ["raises", "hangs", "blocks", "exits"])
def test_a_hook_that_raises_hangs_or_blocks_is_called_again(database, rows, quick, kind):
    rows.execute("select _octop_alert('type_frozen', 'send', 'error', 'm', '{}')")
    calls: list[int] = []

    def sync(alert):
        calls.append(alert.id)
        if kind == "blocks":
            time.sleep(2)
        if kind == "exits":
            raise SystemExit(3)
        message = "no"
        raise ValueError(message)

    async def hangs(alert):
        calls.append(alert.id)
        await asyncio.sleep(60)

    known = "select coalesce(max(last_error), '') from octop_alert_deliveries"
    standstill = looks(
        database,
        to_hooks([hangs if kind == "hangs" else sync]),
        10,
        channel="callable",
        condition=lambda: one(rows, known) != "",
    )
    assert standstill < 0.4
    assert one(rows, known) == {"raises": "ValueError: no", "exits": "SystemExit: 3"}.get(kind, "no end within 0 s")
    rows.execute("update octop_alert_deliveries set next_try_at = now()")
    got: list[Alert] = []
    looks(database, to_hooks([got.append]), 10, channel="callable", condition=lambda: bool(got))
    assert [(alert.kind, alert.subject, alert.tries) for alert in got] == [("type_frozen", "send", 2)]


def test_a_certificate_that_nobody_vouches_for_is_refused(serve, tmp_path):
    import subprocess

    certificate = tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            certificate,
            "-out",
            tmp_path / "c",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
        ],
        check=True,
        capture_output=True,
    )
    certificate.write_text(certificate.read_text() + (tmp_path / "c").read_text())
    server = serve()
    server.secure(certificate)
    with pytest.raises((ssl.SSLError, URLError, OSError)):
        Webhook(server.url.replace("http:", "https:").replace("127.0.0.1", "localhost"), SECRET.encode()).send(ALERT)
    assert server.got == []


def test_a_webhook_is_named_by_the_environment_alone_with_a_secret_that_is_never_shown():
    assert webhook_of({}) is None
    webhook = webhook_of({"OCTOP_ALERT_WEBHOOK": "https://a.example/x", "OCTOP_ALERT_SECRET": SECRET})
    assert webhook is not None
    assert SECRET not in repr(webhook)
    for url in (
        "ftp://a",
        "https://",
        "nonsense",
        "https://ann:pw@a/",
        "https://a b/",
        "https://a:99999/",
        "https://a\n.example/",
    ):
        with pytest.raises(ConfigurationError, match="no URL that a webhook can have"):
            webhook_of({"OCTOP_ALERT_WEBHOOK": url, "OCTOP_ALERT_SECRET": SECRET})
    for secret, word in (("", "missing"), ("short", "too short")):
        with pytest.raises(ConfigurationError, match=word):
            webhook_of({"OCTOP_ALERT_WEBHOOK": "https://a.example/x", "OCTOP_ALERT_SECRET": secret})


def test_a_body_that_was_changed_on_the_way_does_not_fit_its_signature(serve):
    server = serve()
    Webhook(server.url, SECRET.encode()).send(ALERT)
    ((_, headers, body),) = server.got
    assert signed(headers, body)
    assert not signed(headers, body + b" ")
    assert not signed({**headers, "Octop-Timestamp": "1"}, body)
    server.answers = [410]
    with pytest.raises(WebhookRefusedError, match="410 Gone"):
        Webhook(server.url, SECRET.encode()).send(replace(ALERT, id=2))


def test_what_runs_beside_the_loop_answers_and_raises_as_it_would_on_it():
    async def main():
        assert await beside(sum, [1, 2]) == 3
        with pytest.raises(RuntimeError, match="StopIteration"):
            await beside(next, iter(()))

    asyncio.run(main())
