"""The examples, as a user would run them: each README line by line, each hook with a real worker."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from octop.engine.install import install
from tests import servers
from tests.docs.story import Story, libpq, plain_environment
from tests.servers import HOUSE
from tests.sql.crew import do, rows, value
from tests.system.apps.running import until

EXAMPLES = HOUSE / "examples"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.mark.parametrize("name", ["fastapi_service", "data_pipeline", "nightly_report"])
def test_the_readme_of_an_example_is_true_line_by_line(name: str, database, tmp_path: Path):
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    with Story(EXAMPLES / name / "README.md", folder, url=database.url, rename={"8000": free_port()}) as story:
        story.run()


PG_CRON = sorted(Path("/usr/lib/postgresql").glob("*/lib/pg_cron.so"))


@pytest.mark.slow
@pytest.mark.skipif(not PG_CRON, reason="no pg_cron here (Debian: postgresql-15-cron); .ci/run installs it")
def test_the_nightly_report_is_enqueued_by_pg_cron():
    text = (EXAMPLES / "nightly_report" / "README.md").read_text()
    (statement,) = re.findall(r"^```sql\n(SELECT cron\.schedule.*?)```", text, re.MULTILINE | re.DOTALL)
    settings = {
        "shared_preload_libraries": "pg_cron",
        "cron.database_name": "octop",
        "cron.use_background_workers": "on",  # it need not log in
    }
    with servers.own_server(int(PG_CRON[-1].parts[-3]), settings) as server:
        install(server.url())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            do(connection, "create extension pg_cron")
            do(connection, statement)
            assert rows(connection, "select schedule, active from cron.job") == [("0 2 * * *", True)]
            # night falls when the server starts again: each minute would be the shortest interval that this version knows
            do(connection, "select cron.alter_job(jobid, schedule => '@reboot') from cron.job")
        server.stop()
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            until(lambda: value(connection, "select count(*) from octop_tasks"), "pg_cron enqueues")
            until(lambda: ("succeeded",) in rows(connection, "select status from cron.job_run_details"), "it says so")
            task = "select distinct task_type, queue, payload ->> 'day' = (created_at::date - 1)::text from octop_tasks"
            assert rows(connection, task) == [("nightly_report", "reports", True)]


class Hooked:
    """One file of examples/hooks, with its database."""

    def __init__(self, database, name: str, **environment: str) -> None:
        self.rows = database.connect()
        self.file = EXAMPLES / "hooks" / name
        self.environment = {**plain_environment(), **libpq(database.url), **environment}

    def enqueue(self, *words: str) -> None:
        self.run("-m", "octop", "enqueue", *words)

    def run(self, *words: str) -> str:
        answer = subprocess.run(
            [sys.executable, *words], env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout + answer.stderr

    def drain(self) -> str:
        """Run a real worker until nothing is left; return its log."""
        return self.run("-m", "octop", "worker", "-A", str(self.file), "--drain", "--log-format", "json")

    def results(self) -> list[object]:
        return [row[0] for row in self.rows.execute("select result from octop_tasks order by seq").fetchall()]


def test_a_pool_is_open_before_the_first_task(database):
    hooked = Hooked(database, "pool.py", SHOP_DSN=f"{database.url}&application_name=shop+pool")
    hooked.rows.execute("create table orders as select from generate_series(1, 3)")
    hooked.rows.execute("insert into octop_tasks (task_type) values ('count_orders')")
    hooked.drain()
    assert hooked.results() == [3]
    left = hooked.rows.execute("select count(*) from pg_stat_activity where application_name = 'shop pool'").fetchone()
    assert left == (0,)


def test_a_failure_reaches_the_tracker_with_its_traceback(database):
    events = []

    class Tracker(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Tracker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hooked = Hooked(database, "errors.py", ERRORS_URL=f"http://127.0.0.1:{server.server_port}/api")
        hooked.rows.execute("""insert into octop_tasks (task_type, payload) values ('charge', '{"amount": 5}')""")
        hooked.drain()
        server.shutdown()
    (event,) = events
    assert event["error"] == "ConnectionError: the bank does not answer, 5 not charged"
    assert event["task_type"] == "charge"
    assert event["attempt"] == 1
    assert event["last_attempt"]
    assert "errors.py" in event["traceback"]
    assert "raise ConnectionError" in event["traceback"]


SEEN_BY_HOOKS = """
import asyncio, traceback
from octop import Octop

octop = Octop()

def told(name):
    def hook(context, error):
        text = "".join(traceback.format_exception(error)).replace("\\n", "/")
        print("TOLD", name, context.task_type, text, flush=True)
    return hook

octop.on_failure(told("failure"))
octop.on_retry(told("retry"))
octop.on_freeze(told("freeze"))

@octop.task(max_retries=1, retry=[0.01])
async def breaks():
    raise ValueError("here it breaks")

@octop.task(max_retries=0, timeout=0.2)
async def hangs():
    await asyncio.sleep(60)  # here it hangs

@octop.task(max_retries=0)
async def answers_rubbish():
    return object()

@octop.task(max_retries=1, retry=[0.01])
def breaks_in_a_thread():
    raise ValueError("here it breaks")
"""


def test_each_hook_of_a_failure_sees_where_it_was_raised(database, tmp_path: Path):
    hooked = Hooked(database, "pool.py")
    hooked.file = tmp_path / "seen.py"
    hooked.file.write_text(SEEN_BY_HOOKS)
    names = ("breaks", "hangs", "answers_rubbish", "breaks_in_a_thread")
    for name in names:
        hooked.rows.execute("insert into octop_tasks (task_type) values (%s)", [name])
    told = [line.split(" ", 3)[1:] for line in hooked.drain().splitlines() if line.startswith("TOLD")]
    counts = {name: sorted(hook for hook, task_type, _ in told if task_type == name) for name in names}
    tries = ["failure", "failure", "freeze", "retry"]
    once = ["failure", "freeze"]
    assert counts == {"breaks": tries, "hangs": once, "answers_rubbish": once, "breaks_in_a_thread": tries}
    for _, name, text in told:
        place = {"hangs": "# here it hangs", "answers_rubbish": "NotJsonError"}.get(name, "raise ValueError(")
        assert place in text, text


def test_a_trace_goes_from_the_request_through_its_tasks(database):
    hooked = Hooked(database, "trace.py")
    request = hooked.run(str(hooked.file)).strip()
    hooked.drain()
    pack, ship = map(str, hooked.results())
    trace = request.split("-")[1]
    assert [each.split("-")[1] for each in (pack, ship)] == [trace, trace]
    metas = [row[0]["traceparent"] for row in hooked.rows.execute("select meta from octop_tasks order by seq")]
    assert metas == [request, pack]
    assert len({request, pack, ship}) == 3, "each has a span of its own"


def test_a_request_id_stands_in_each_line_of_its_tasks(database):
    hooked = Hooked(database, "request_id.py")
    hooked.run(str(hooked.file))
    lines = [json.loads(line) for line in hooked.drain().splitlines() if line.startswith("{")]
    assert [line["request_id"] for line in lines if line["logger"] == "shop"] == ["req-7f3a"]
    assert {line["request_id"] for line in lines if line["logger"] != "shop"} <= {"-"}


def test_metrics_reach_statsd(database):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(10)
        hooked = Hooked(database, "metrics.py", STATSD=f"127.0.0.1:{statsd.getsockname()[1]}")
        hooked.rows.execute("""insert into octop_tasks (task_type, payload) values
            ('fetch', '{"url": "https://x"}'), ('fetch', '{"url": "http://x"}')""")
        hooked.drain()
        # what was sent is in the socket's buffer by now: three attempts, each with a duration and an outcome, and a freeze
        got = [statsd.recv(200).decode() for _ in range(7)]
    assert sorted(each.split(":")[0] for each in got) == sorted(
        ["octop.duration.fetch"] * 3 + ["octop.failure.fetch"] * 2 + ["octop.success.fetch", "octop.frozen.fetch"]
    )
    assert all(float(each.split(":")[1].removesuffix("|ms")) >= 0 for each in got if "duration" in each)


def test_every_hook_stands_on_the_page_as_it_is_in_its_file():
    page = (HOUSE / "docs" / "how-to" / "hooks.md").read_text()
    files = sorted((EXAMPLES / "hooks").glob("*.py"))
    assert len(files) == 5
    for file in files:
        assert f"```python\n{file.read_text()}```" in page, f"{file.name} differs from docs/how-to/hooks.md"


def test_every_example_is_run():
    found = {each.name for each in EXAMPLES.iterdir() if each.is_dir() and each.name != "__pycache__"}
    assert found == {"hooks", "fastapi_service", "data_pipeline", "nightly_report"}
    assert all((EXAMPLES / name / "README.md").exists() for name in found)
