"""The tutorial is run line by line, in a fresh folder, with a private PostgreSQL of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from octop.engine import private_database
from tests import servers
from tests.docs.story import Story

PAGE = servers.HOUSE / "docs" / "tutorial" / "first-tasks.md"


@pytest.fixture
def home(postgres):
    """A home folder that the server's user may pass, as root's private database needs."""
    made = servers.run_directory() / f"home-{uuid4().hex[:6]}"
    made.mkdir(mode=0o711)
    yield made
    private_database.stop(made / "octop" / "postgresql")
    shutil.rmtree(made)


@pytest.mark.long
@pytest.mark.slow
def test_the_tutorial_leads_from_nothing_to_own_tasks_run_failed_and_seen(tmp_path: Path, home: Path):
    with Story(PAGE, tmp_path, more={"XDG_DATA_HOME": str(home)}) as story:
        story.run()
    assert "default" in story.log()
