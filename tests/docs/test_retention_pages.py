"""The how-to pages about retention and pg_cron, each run from top to bottom as one story."""

from __future__ import annotations

from tests.docs.pages import HOW_TO
from tests.docs.story import Story
from tests.docs.test_stories import closed_to_public


def test_retention(empty_database, tmp_path):
    closed_to_public(empty_database)
    more = {"DATABASE_URL": empty_database.url}
    with Story(HOW_TO / "retention.md", tmp_path, url=empty_database.url, more=more) as story:
        story.run()
    kept = "select name, keep_success_days, keep_cancelled_days, keep_frozen_days from octop_queues order by 1"
    with empty_database.connect() as connection:
        assert connection.execute(kept).fetchall() == [("billing", 90, 30, 365), ("metrics", 1, 1, None)]


def test_pg_cron(empty_database, tmp_path):
    closed_to_public(empty_database)
    role = empty_database.make_role(name="cron_jobs")
    more = {"DATABASE_URL": empty_database.url}
    rename = {"CREATE ROLE octop_cron_jobs LOGIN": f"COMMENT ON ROLE {role} IS 'made above'", "octop_cron_jobs": role}
    with Story(HOW_TO / "pg-cron.md", tmp_path, url=empty_database.url, more=more, rename=rename) as story:
        story.run()
