"""`octop sql pg_cron`, with a real pg_cron: no worker lives, and schedules fire and history goes all the same."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from octop.cli.root import root
from tests import servers
from tests.sql.crew import Worker, add, column, do, rows, value
from tests.system.apps.running import until

PG_CRON = sorted(Path("/usr/lib/postgresql").glob("*/lib/pg_cron.so"))
SETTINGS = {
    "shared_preload_libraries": "pg_cron",
    "cron.database_name": "octop",
    "cron.use_background_workers": "on",  # it need not log in
}


def script(*words: str) -> str:
    answer = CliRunner().invoke(root, ["sql", "pg_cron", *words])
    assert answer.exit_code == 0, answer.output
    # what is psql's is for psql alone
    return "\n".join(line for line in answer.output.splitlines() if not line.startswith("\\"))


def refused(*words: str) -> str:
    answer = CliRunner().invoke(root, ["sql", "pg_cron", *words])
    assert answer.exit_code == 2
    return answer.output


def test_the_script_names_its_jobs_by_database_and_schema_and_quotes_what_is_odd():
    text = script("--database", "sh'op", "--role", 'cr"on')
    assert "'octop tick sh''op.public'" in text
    assert "to " not in text.split("begin;")[1].split("select")[0], "grants belong to the other database"
    assert 'grant usage on schema "public" to "cr""on";' in script("--role", 'cr"on', "--grants")
    assert "'10 seconds'" in script("--seconds", "10")
    assert "schedule_in_database" not in script(), "which not everybody may call"
    for words in (["--seconds", "0"], ["--seconds", "60"], ["--role", ""], ["--database", "a\nb"], ["--grants"]):
        refused(*words)


@pytest.mark.slow
@pytest.mark.skipif(not PG_CRON, reason="no pg_cron here (Debian: postgresql-15-cron); .ci/run installs it")
def test_pg_cron_alone_fires_schedules_and_drops_history_as_a_role_that_may_nothing_else():
    with (
        servers.own_server(int(PG_CRON[-1].parts[-3]), SETTINGS) as server,
        server.database(installed=True) as database,
    ):
        database.clock.advance(0)
        role = database.make_role(name="cron")
        with database.connect() as dba, database.connect("octop_worker") as connection:
            worker = Worker(connection)
            worker.register()
            for _ in range(3):
                add(dba)
            worker.succeed(*worker.claim(3))
            do(dba, 'select octop_put_schedule(\'minutely\', \'{"rule": "@every 1m", "task_type": "t"}\')')
            do(dba, "delete from octop_workers")
            do(dba, script("--role", role, "--grants"))
        where = ("--database", database.name, "--role", role)
        with psycopg.connect(server.url(), autocommit=True) as cron:
            do(cron, "create extension pg_cron")
            for _ in range(2):  # harmless to repeat
                do(cron, script(*where))
            jobs = rows(cron, "select jobname, schedule, database, username, active from cron.job order by 1")
            place = f"{database.name}.public"
            assert jobs == [
                # this version of pg_cron knows no seconds
                (f"octop runs {place}", "17 3 * * *", "octop", "octop", True),
                (f"octop tick {place}", "* * * * *", database.name, role, True),
                (f"octop upkeep {place}", "* * * * *", database.name, role, True),
            ]
        database.clock.advance(days=9)
        # A minute passes when the server starts again. One job at a time: a drop waits 50 ms for readers, then leaves the day to the next call.
        for what in ("tick", "upkeep"):
            with psycopg.connect(server.url(), autocommit=True) as cron:
                schedule = "case when jobname like %s then '@reboot' else '0 0 29 2 *' end"
                alter = f"select cron.alter_job(jobid, schedule => {schedule}) from cron.job where username = %s"
                do(cron, alter, f"octop {what} %", role)
            server.stop()
            server.start()
            with psycopg.connect(server.url(), autocommit=True) as cron:
                ended = "select status from cron.job_run_details where command like %s and status <> 'running'"
                until(lambda: column(cron, ended, f"%octop_{what}(%") == ["succeeded"], what)  # noqa: B023 - at once
        with database.connect() as dba, psycopg.connect(server.url(), autocommit=True) as cron:
            assert rows(dba, "select status, count(*) from octop_tasks group by 1") == [("pending", 1)]
            assert value(dba, "select meta ->> 'schedule' from octop_tasks") == "minutely"
            assert column(dba, "select distinct role from octop_audit where action = 'drop day'") == [role]
            assert rows(dba, "select * from octop_workers") == []
            assert rows(dba, "select * from octop_recount()") == []
            # the third one: pg_cron's own notes, as whoever ran the script
            do(cron, "update cron.job_run_details set end_time = now() - interval '8 days'")
            do(cron, value(cron, "select command from cron.job where jobname like 'octop runs%%'"))
            assert rows(cron, "select * from cron.job_run_details") == []
            for _ in range(2):
                do(cron, script(*where, "--remove"))
            assert rows(cron, "select * from cron.job") == []
