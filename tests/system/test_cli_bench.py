"""`octop bench` for real, with few tasks: what it prints and that it leaves nothing behind."""

import json
import subprocess
import sys

import pytest


def run(*arguments):
    answer = subprocess.run(
        [sys.executable, "-m", "octop", "bench", "--tasks", "1000", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert answer.returncode == 0, answer.stderr
    return answer


@pytest.mark.slow
def test_bench_prints_rates_and_their_ratio_and_drops_its_schema(database):
    answer = run("--dsn", database.url, "--json")
    found = json.loads(answer.stdout)
    for name in ("enqueue_many", "enqueue_one_by_one", "enqueue_awaited_together", "drain", "inside"):
        assert found[f"{name}_per_second"] > 0
    assert found["drain_to_inside"] > 0
    assert found["tasks"] == 1000
    assert "dropped the schema" in answer.stderr
    with database.connect() as connection:
        assert connection.execute("select count(*) from octop_tasks").fetchone()[0] == 0
        schemas = "select count(*) from pg_namespace where nspname like 'octop_bench%'"
        assert connection.execute(schemas).fetchone()[0] == 0


@pytest.mark.slow
def test_bench_makes_a_database_of_its_own_and_prints_a_table():
    answer = run()
    assert "drain by a real worker" in answer.stdout
    assert "drain / inside: " in answer.stdout
    assert "throw-away PostgreSQL" in answer.stderr
