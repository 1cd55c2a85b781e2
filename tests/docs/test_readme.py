"""What the README says is run: its code, its commands, its SQL."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.pages import README, blocks, environment, octop


def test_the_readme_leads_from_nothing_to_a_finished_task(empty_database, tmp_path):
    (tmp_path / "tasks.py").write_text(blocks(README, "python")[0])
    octop("migrate", folder=tmp_path, url=empty_database.url)
    printed = subprocess.run(
        [sys.executable, "tasks.py"],
        cwd=tmp_path,
        env=environment(empty_database.url),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()
    empty_database.psql(blocks(README, "sql")[0])  # the same task from plain SQL
    octop("worker", "-A", "tasks:octop", "--drain", folder=tmp_path, url=empty_database.url)
    assert printed in octop("--json", "tasks", "list", folder=tmp_path, url=empty_database.url)
    results = empty_database.connect().execute("select status, queue, result from octop_tasks order by seq").fetchall()
    # a plain INSERT names no queue: it waits in `default`, which a worker without -q serves, too
    assert results == [("success", "mail", "welcome, 42"), ("success", "default", "welcome, 42")]
