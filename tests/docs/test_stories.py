"""The how-to pages that are one story each, run from top to bottom; what is special to a page is beside its test."""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import socket
import subprocess
import sys
import time
from uuid import uuid4

import psycopg
import psycopg2
import pytest
import yaml

from octop.cli.worker import worker as worker_command
from tests.docs.pages import HOUSE, HOW_TO, PAGES
from tests.docs.runs import runs_of
from tests.docs.story import Story, blocks_of, libpq, parse, plain_environment
from tests.pooler import pgbouncer

OUTPUT_SECONDS = 20


def until(condition, what: str) -> None:
    deadline = time.monotonic() + OUTPUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"still not so: {what}"
        time.sleep(0.01)


def test_retry(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(
        HOW_TO / "retry.md", tmp_path, url=empty_database.url, more={"DATABASE_URL": empty_database.url}
    ) as story:
        story.run()
    row = empty_database.connect().execute("select max_retries from octop_task_types where name = 'charge'").fetchone()
    assert row == (12,)


def test_holds(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(
        HOW_TO / "holds.md", tmp_path, url=empty_database.url, more={"DATABASE_URL": empty_database.url}
    ) as story:
        story.run()
    with empty_database.connect() as connection:
        assert connection.execute("select count(*) from octop_holds").fetchone() == (0,)
        assert connection.execute("select status from octop_tasks").fetchone() == ("frozen",)


def test_schedules(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(
        HOW_TO / "schedules.md", tmp_path, url=empty_database.url, more={"DATABASE_URL": empty_database.url}
    ) as story:
        story.run()
    with empty_database.connect() as connection:
        found = connection.execute("select name, rule from octop_schedules order by name").fetchall()
    assert found == [("cleanup", "30 3 * * *"), ("often", "@every 90s"), ("report", "0 9 * * *")]


def test_alerts(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(
        HOW_TO / "alerts.md", tmp_path, url=empty_database.url, more={"DATABASE_URL": empty_database.url}
    ) as story:
        story.run()
    with empty_database.connect() as connection:
        row = connection.execute("select channel, delivered_at is not null from octop_alert_deliveries").fetchone()
    assert row == ("callable", True)


def test_limits(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(
        HOW_TO / "limits.md", tmp_path, url=empty_database.url, more={"DATABASE_URL": empty_database.url}
    ) as story:
        story.run()
    row = empty_database.connect().execute("select jsonb_array_length(windows) from octop_queues").fetchone()
    assert row == (2,)


def test_cron_expressions(database, tmp_path):
    with Story(HOUSE / "docs/reference/cron.md", tmp_path, url=database.url, more={"OCTOP_DSN": database.url}) as story:
        story.run()


@pytest.fixture
def pooler(empty_database):
    """The URL of a real PgBouncer in transaction mode before the database."""
    with pgbouncer(empty_database.url) as url:
        yield url


def test_all_but_listen_works_behind_pgbouncer_in_transaction_mode(empty_database, pooler, tmp_path):
    closed_to_public(empty_database)
    with Story(HOW_TO / "pgbouncer.md", tmp_path, url=pooler) as story:
        story.run()
        for way in ("enqueue_sync", "enqueue"):  # blocking and asynchronous, many at once through three connections
            many = f"tasks.octop.enqueue_many{'_sync' * (way == 'enqueue_sync')}(tasks.greet.call(str(n)) for n in range(2000))"
            code = (
                f"import asyncio, tasks; {many}"
                if way == "enqueue_sync"
                else f"import asyncio, tasks; asyncio.run({many})"
            )
            story.command(f'python -c "{code}"')
        story.command("octop worker -A tasks:octop --poll-only --drain --processes 2")
    with empty_database.connect() as connection:
        rows = connection.execute("select status, count(*), max(attempt) from octop_tasks group by 1").fetchall()
        assert rows == [("success", 4001, 1)]
        assert counted(connection, "octop%") <= 3, "the pooler's own connections, however many clients there were"


@pytest.mark.parametrize("name", ["batches", "scale-processes", "sqlalchemy", "unique", "upgrade"])
def test_a_page_that_needs_nothing_but_a_database(name, empty_database, tmp_path):
    closed_to_public(empty_database)
    if name == "upgrade":
        from octop.engine.install import install

        install(empty_database.url)
        with empty_database.connect() as connection:  # installed by another version
            connection.execute(
                "update octop_migrations set checksum = 'old', version = '0.0.9' where name = 'functions'"
            )
    more = {"DATABASE_URL": empty_database.url}
    with Story(HOW_TO / f"{name}.md", tmp_path, url=empty_database.url, more=more) as story:
        story.run()


def test_size_the_pools_counts_what_is_there(database, tmp_path):
    page = HOW_TO / "size-the-pools.md"
    with Story(page, tmp_path, url=database.url) as story, database.connect() as connection:
        for block in blocks_of(page):
            story.step(block)
            if block.said("second terminal") is not None:
                until(
                    lambda: (
                        counted(connection, "octop worker%") == 8 and counted(connection, "octop worker heart") == 1
                    ),
                    "two worker processes have registered, and their supervisor beats for them",
                )
        (printed,) = story.printed
        assert printed.count("|2") == 3
        assert printed.count("|1") == 2
        # and no more than that, however much runs at once
        connection.execute(
            """insert into octop_tasks (task_type, payload) select 'greet', '{"name": "x"}' from generate_series(1, 500)"""
        )
        until(
            lambda: connection.execute("select from octop_tasks where status <> 'success' limit 1").fetchone() is None,
            "all are done",
        )
        assert 8 <= counted(connection, "octop%") <= 10, "each process may have opened its second exchange"


@pytest.mark.parametrize(
    ("command", "connections"),
    [
        (["-m", "octop", "worker", "-A", "tasks:octop", "--poll-only"], 4),
        (["-c", "import tasks; tasks.octop.run_worker()"], 5),
    ],
    ids=["poll only", "embedded"],
)
def test_size_the_pools_is_right_about_other_workers(command, connections, database, tmp_path):
    (tmp_path / "tasks.py").write_text(
        "from octop import Octop\n\noctop = Octop()\n\n@octop.task\nasync def greet(name: str) -> str:\n    return name\n"
    )
    with database.connect() as connection, (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**plain_environment(), **libpq(database.url)},
            stdout=log,
            stderr=log,
        )
        try:
            until(lambda: counted(connection, "octop worker heart") == 1, "it beats")
            connection.execute("insert into octop_tasks (task_type, payload) values ('greet', '{\"name\": \"x\"}')")
            until(lambda: connection.execute("select result from octop_tasks").fetchone() == ("x",), "it works")
            until(lambda: counted(connection, "octop%") >= connections, f"it holds {connections}")
            assert counted(connection, "octop%") == connections
        finally:
            process.terminate()
            assert process.wait(30) == 0, (tmp_path / "log").read_text()


def counted(connection: psycopg.Connection, name: str) -> int:
    row = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and application_name like %s", [name]
    ).fetchone()
    assert row is not None
    return row[0]


def test_least_privilege(empty_database, tmp_path):
    closed_to_public(empty_database)
    rename = own_roles(
        empty_database, "shop_web", "shop_site", "shop_jobs", "shop_oncall", "shop_dashboard", "shop_migrate"
    )
    # the listing of members: a prefix of this test's own
    rename["shop\\_%"] = f"{empty_database.name}\\_%"
    rename["billing_"] = f"b{uuid4().hex[:8]}_"
    empty_database.roles.extend(
        rename["billing_"] + each for each in ("oncall", "producer", "worker", "operator", "viewer", "owner")
    )

    def older() -> None:
        with empty_database.connect() as connection:
            connection.execute(
                "update octop_migrations set checksum = 'old', version = '0.0.9' where name = 'functions'"
            )

    events = {"a new version is to be installed": older}
    with Story(HOW_TO / "least-privilege.md", tmp_path, url=empty_database.url, rename=rename, events=events) as story:
        story.run()


def test_the_schema_in_the_hands_of_alembic(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(HOW_TO / "flyway-alembic.md", tmp_path, url=empty_database.url) as story:
        story.run()
    with empty_database.connect() as connection:
        assert connection.execute("select version_num from alembic_version").fetchone() == ("0001",)
        # what Flyway gets: one script that any driver runs, again without harm
        script = (tmp_path / "octop.sql").read_text()
        assert "\n\\" not in script
        assert "${" not in script
        connection.execute(script.encode())
    with contextlib.closing(psycopg2.connect(empty_database.url)) as other:
        other.autocommit = True
        other.cursor().execute(script)


def test_health_checks(empty_database, tmp_path):
    closed_to_public(empty_database)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with Story(HOW_TO / "health-checks.md", tmp_path, url=empty_database.url, rename={"8737": port}) as story:
        story.run()
        story.command("grep -q '\"ready\": true' ./octop-health")
    assert not (tmp_path / "octop-health").exists()
    dockerfile = (tmp_path / "Dockerfile.health").read_text()
    probes = yaml.safe_load((tmp_path / "probes.yaml").read_text())
    for options in (
        dockerfile.split('"worker", ')[1].split("]")[0].replace('"', "").split(", "),
        probes["command"][2:],
    ):
        worker_command.make_context("worker", options)  # the options exist
    told = int(probes["command"][-1])
    for name, path in (("startup", "/healthz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        assert probes[f"{name}Probe"]["httpGet"] == {"path": path, "port": told}


def test_replace_processes(empty_database, tmp_path):
    closed_to_public(empty_database)
    with Story(HOW_TO / "replace-processes.md", tmp_path, url=empty_database.url) as story:
        story.run()


def test_the_unit_file_is_one(tmp_path):
    page = HOW_TO / "systemd.md"
    story = Story(page, tmp_path).run()
    unit = story.folder / "octop.service"
    assert "KillSignal=SIGTERM" in unit.read_text()
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("there is no systemd-analyze on this machine: the file is written, and nothing reads it")
    # what it starts and as whom are the reader's: here they must exist
    text = unit.read_text().replace("/srv/shop/.venv/bin/octop", "/bin/true").replace("User=shop", "User=root")
    unit.write_text(text)
    answer = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "octop.service" not in answer.stderr, answer.stderr


def test_the_container_files_say_what_the_pages_say(tmp_path):
    Story(HOW_TO / "containers.md", tmp_path).run()
    lines = (tmp_path / "Dockerfile").read_text().splitlines()
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "CMD", "#"}
    assert {line.split()[0] for line in lines} <= known
    assert 'CMD ["octop", "worker"' in "\n".join(lines)
    compose = yaml.safe_load((tmp_path / "compose.yaml").read_text())
    worker = compose["services"]["worker"]
    assert worker["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert worker["stop_grace_period"] == "75s"
    assert worker["environment"] == compose["services"]["migrate"]["environment"]


def test_the_kubernetes_objects_fit_each_other(tmp_path):
    Story(HOW_TO / "kubernetes.md", tmp_path).run()
    secret, job, deployment = yaml.safe_load_all((tmp_path / "octop.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    command = worker["command"]
    assert pod["terminationGracePeriodSeconds"] == int(command[command.index("--grace") + 1]) + 15
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    (migrate,) = job["spec"]["template"]["spec"]["containers"]
    assert migrate["image"] == worker["image"]
    assert migrate["command"] == ["octop", "migrate"]
    keys = [each["env"][0]["valueFrom"]["secretKeyRef"]["key"] for each in (worker, migrate)]
    assert set(keys) == set(secret["stringData"])


def closed_to_public(database) -> None:
    with database.connect() as connection:
        connection.execute("revoke create on schema public from public")  # the default since PostgreSQL 15


def own_roles(database, *names: str) -> dict[str, str]:
    """Give the roles of a page names of the test's own: roles belong to the whole server."""
    renamed = {name: name.replace("shop", database.name, 1) for name in names}
    database.roles.extend(renamed.values())
    return renamed


def test_no_line_of_shell_hides_in_a_block_without_a_language():
    for page in sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md"), *HOUSE.glob("examples/**/*.md")]):
        for block in blocks_of(page):
            if block.language == "" and page.parent != HOUSE / "docs" / "reference":
                hidden = re.findall(r"^(?:\$ |octop |psql |python |pip |make ).*$", block.body, re.MULTILINE)
                assert not hidden, f"{page.relative_to(HOUSE)}:{block.line} wants ```bash: {hidden}"


def test_every_block_of_every_page_is_run_or_says_why_not():
    modules = [
        importlib.import_module(".".join(file.relative_to(HOUSE).with_suffix("").parts))
        for file in [
            *sorted((HOUSE / "tests" / "docs").glob("test_*.py")),
            HOUSE / "tests" / "system" / "test_examples.py",
        ]
    ]
    run = {each for module in modules for each in runs_of(module)}
    assert (HOW_TO / "sqlalchemy.md", "*") in run, "a page that is a parameter of its test is found"
    assert (HOW_TO / "article-index.md", "bash") not in run, "a page of which one language is run is not run as a whole"
    files = [file.read_text() for file in (HOUSE / "examples").rglob("*.py")]
    for page in PAGES:
        for block in blocks_of(page):
            if block.why_not_run is not None:
                parse(block)
            elif block.language in ("bash", "console", "sql", "python", "sh") and block.body not in files:
                told = f"{page.relative_to(HOUSE)}:{block.line}"
                assert {(page, "*"), (page, block.language)} & run, f"no test runs {told} ({block.language})"
