"""What the README says is run: its code, its commands, its SQL."""

from __future__ import annotations

from octop.engine.install import status
from tests.docs.pages import README
from tests.docs.story import Story


def test_the_readme_leads_from_nothing_to_a_finished_task(empty_database, tmp_path):
    with empty_database.connect() as connection:
        connection.execute("revoke create on schema public from public")  # the default since PostgreSQL 15
    with Story(README, tmp_path, url=empty_database.url) as story:
        story.run()
        # the last line is a plain INSERT, whose task the worker takes, too: wait for it before Ctrl-C
        with empty_database.connect() as connection:
            rows = connection.execute("select id from octop_tasks where queue = 'default'").fetchall()
        story.command(f"octop tasks wait {rows[0][0]} --timeout 30")
    with empty_database.connect() as connection:
        assert status(connection).current
        rows = connection.execute("select status, queue, result from octop_tasks order by seq").fetchall()
    # a plain INSERT names no queue: it waits in `default`, which a worker without -q serves, too
    assert [(status, result) for status, _, result in rows] == [
        ("success", "welcome, 42"),
        ("success", "welcome, 43"),
        ("success", "welcome, 42"),
    ]
    assert [rows[0][1], rows[2][1]] == ["mail", "default"]
