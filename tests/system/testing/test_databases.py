"""octop.testing makes a database per test: a copy of a template, dropped at the end, on whatever server there is."""

from __future__ import annotations

import contextlib
import doctest
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from uuid import uuid4

import psycopg
import pytest

from octop import Octop
from octop.engine import throwaway
from octop.engine.throwaway import Throwaways, fingerprint, url_of
from octop.model.errors import NotPermittedError
from octop.testing import Server, bent_clock, server
from tests.servers import HOUSE
from tests.system.testing.asking import NINE, ask, existing, wait_for


def today() -> date:
    return datetime.now(UTC).date()


def test_a_template_is_that_of_a_schema_and_of_a_day():
    """A copy has the days of history that an installation of today has, also on a server that has run for weeks."""
    names = {fingerprint(schema, day) for schema in ("public", "jobs") for day in (date(2026, 2, 28), date(2026, 3, 1))}
    assert len(names) == 4
    assert {len(name) for name in names} == {16}


@pytest.mark.all_versions
def test_each_database_is_a_copy_of_a_template_that_is_made_once(postgres):
    made = f"octop_template_{fingerprint('public', today())}"
    with Server(postgres.url()) as server:
        with server.database() as first, server.database() as second:
            assert first.name != second.name
            with psycopg.connect(first.dsn, autocommit=True) as connection:
                connection.execute("insert into octop_tasks (task_type) values ('only here')")
            assert [task.task for task in first.enqueued()] == ["only here"]
            assert second.enqueued() == []
            names = existing(postgres, "octop_te%")
            assert {first.name, second.name} <= names
            oid = ask(postgres.url(), "select oid from pg_database where datname = %s", made)
        assert not {first.name, second.name} & existing(postgres, "octop_te%"), "dropped at the end"
    with Server(postgres.url()) as server, server.database():
        assert ask(postgres.url(), "select oid from pg_database where datname = %s", made) == oid
    with pytest.raises(psycopg.OperationalError, match="not currently accepting connections"):
        psycopg.connect(postgres.url(made))


def test_a_database_is_dropped_whoever_is_connected_and_whatever_the_test_raised(postgres, testing):
    names, connections = [], []

    def body():
        with testing.database() as made:
            names.append(made.name)
            connections.append(psycopg.connect(made.dsn))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert not existing(postgres, "octop_test_%") & set(names)
    with pytest.raises(psycopg.OperationalError):
        connections[0].execute("select 1")


def test_another_schema_has_its_own_template(testing):
    app = Octop(schema="jobs")

    @app.task
    def work() -> str:
        return "done"

    with testing.database("jobs") as made, made.override(app):
        work.enqueue_sync()
        assert made.clock.freeze(NINE) == NINE
        assert [ran.result for ran in made.drain()] == ["done"]
        assert ask(made.dsn, "select count(*) from jobs.octop_tasks where status = 'success'") == 1


PROCESS = """
import sys
from octop.testing import Server

with Server(sys.argv[1]) as server, server.database() as database:
    print(database.name, flush=True)
    sys.stdin.readline()
"""


def process(postgres, *, text=PROCESS):
    return subprocess.Popen(
        [sys.executable, "-c", text, postgres.url()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_processes_that_want_the_template_at_once_make_one(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        # as after an upgrade: nobody has it
        name = f"octop_template_{fingerprint('public', today())}"
        if name in existing(postgres, "octop_te%"):
            connection.execute(f"alter database {name} is_template false")
            connection.execute(f"drop database {name}")
    many = [process(postgres) for _ in range(4)]
    names = {each.stdout.readline().strip() for each in many}
    assert len(names) == 4
    assert names < existing(postgres, "octop_te%")
    for each in many:
        each.communicate("\n", timeout=30)
        assert each.returncode == 0
    assert not names & existing(postgres, "octop_te%")


def test_runs_that_connect_to_different_databases_want_the_template_at_once(postgres, empty_database):
    """Their locks do not meet, so both make it, and the slower one's goes."""
    schema = f"at_once_{uuid4().hex[:8]}"
    runs = [Throwaways(postgres.url()), Throwaways(empty_database.url)]
    with contextlib.ExitStack() as ends, ThreadPoolExecutor() as pool:
        for run in runs:
            ends.callback(run.close)
        names = set(pool.map(lambda run: run.create(schema), runs))
        assert len(names) == 2
        found = existing(postgres, "octop_te%")
        assert names < found
        assert not [name for name in found if name.endswith("_template")]


def test_databases_of_a_run_that_was_killed_are_dropped_by_the_next_those_of_living_ones_stay(postgres):
    killed, living = process(postgres), process(postgres)
    names = [each.stdout.readline().strip() for each in (killed, living)]
    killed.kill()
    killed.communicate()
    wait_for(
        postgres.url(),
        "select not exists (select from pg_locks where locktype = 'advisory' and objid = %s)",
        int(names[0].split("_")[3], 16),
    )
    with Server(postgres.url()) as server, server.database():
        there = existing(postgres, "octop_test_%")
    assert (names[0] in there, names[1] in there) == (False, True)
    living.communicate("\n", timeout=30)


def test_the_oldest_templates_go(postgres):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        old = [f"octop_template_{number:016x}" for number in range(5)]
        for name in old:
            connection.execute(f"create database {name} template template0 is_template true")
        throwaways = Throwaways(postgres.url())
        try:
            throwaways._drop_old_templates()
        finally:
            throwaways.close()
        left = existing(postgres, "octop_template_0000%")
        assert left < set(old)
        assert old[-1] in left
        assert len(existing(postgres, "octop_template_%")) == 3
        for name in left:
            connection.execute(f"alter database {name} is_template false")
            connection.execute(f"drop database {name}")


def test_a_login_that_may_not_create_databases_is_told_so(postgres, empty_database):
    role = empty_database.make_role()
    with (
        Server(empty_database.url_as(role)) as server,
        pytest.raises(NotPermittedError, match="permission denied"),
        server.database(),
    ):
        pass


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("postgresql://ann:s%40x@db:5433/shop?sslmode=require", "postgresql://ann:s%40x@db:5433/t?sslmode=require"),
        ("host=/run/pg user=ann", "postgresql:///t?user=ann&host=/run/pg"),
        ("fallback_application_name=octop", "postgresql:///t?fallback_application_name=octop"),
    ],
)
def test_any_dsn_becomes_a_url_of_another_database(dsn, url):
    made = url_of(dsn, "t")
    assert made == url
    assert psycopg.conninfo.conninfo_to_dict(made) == {**psycopg.conninfo.conninfo_to_dict(dsn), "dbname": "t"}


@pytest.mark.slow
def test_without_a_server_a_private_one_runs_as_long_as_somebody_tests(postgres, tmp_path):
    story = textwrap.dedent(
        """
        import pathlib, sys
        from octop.engine import private_database
        from octop.testing import Server, server
        folder = pathlib.Path(sys.argv[1])
        folder.mkdir()
        folder.chmod(0o711)
        server.private_folder = lambda: folder
        with Server() as one:
            with Server() as two, two.database() as database:
                assert database.enqueued() == []
            with one.database() as database:
                assert private_database.status(folder / "server") is not None
        assert private_database.status(folder / "server") is None
        (folder / "server" / "data" / "PG_VERSION").write_text("9")   # another version's data, or a broken disk
        with Server() as one, one.database(keep=True) as database:
            print(database.enqueued())
        import psycopg
        psycopg.connect(database.dsn).close()   # it was kept, and its server runs on
        with Server() as one, one.database():
            pass
        assert private_database.status(folder / "server") is None
        private_database.reset(folder / "server")
        """
    )
    folder = postgres.directory.parent / f"private-{os.getpid()}"
    environment = {name: value for name, value in os.environ.items() if name != "OCTOP_TEST_DSN"}
    answer = subprocess.run(
        [sys.executable, "-c", story, folder],
        env=environment,
        cwd=HOUSE,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (0, "[]\n"), answer.stderr


def test_the_examples_of_the_docstrings_run(place, postgres, monkeypatch):
    monkeypatch.setenv("OCTOP_TEST_DSN", postgres.url())
    names = {"database": place, "datetime": datetime, "UTC": UTC}
    for module in (bent_clock, server, throwaway):
        result = doctest.testmod(module, extraglobs=names)
        assert result.attempted
        assert not result.failed
