"""What the documents say is run: the README's code, its commands, its SQL; and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2]
README = (HOUSE / "README.md").read_text()
PAGES = sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def octop(*words: str, folder: Path, url: str) -> str:
    """Run the command as a newcomer does, in the folder of the task module."""
    answer = subprocess.run(
        [sys.executable, "-m", "octop", *words],
        cwd=folder,
        env={**os.environ, "OCTOP_DSN": url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if answer.returncode:
        pytest.fail(f"octop {' '.join(words)} ended with {answer.returncode}:\n{answer.stdout}\n{answer.stderr}")
    return answer.stdout


def test_the_readme_leads_from_nothing_to_a_finished_task(empty_database, tmp_path):
    (tmp_path / "tasks.py").write_text(blocks("python")[0])
    octop("migrate", folder=tmp_path, url=empty_database.url)
    printed = subprocess.run(
        [sys.executable, "tasks.py"],
        cwd=tmp_path,
        env={**os.environ, "OCTOP_DSN": empty_database.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()
    empty_database.psql(blocks("sql")[0])  # the same task from plain SQL
    octop("worker", "-A", "tasks:octop", "--drain", folder=tmp_path, url=empty_database.url)
    assert printed in octop("--json", "tasks", "list", folder=tmp_path, url=empty_database.url)
    results = empty_database.connect().execute("select status, queue, result from octop_tasks order by seq").fetchall()
    # a plain INSERT names no queue: it waits in `default`, which a worker without -q serves, too
    assert results == [("success", "mail", "welcome, 42"), ("success", "default", "welcome, 42")]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(HOUSE)) for page in PAGES])
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.relative_to(HOUSE)} links to {target}"


def test_every_decision_says_what_was_chosen_refused_and_paid():
    for page in sorted((HOUSE / "docs" / "decisions").glob("*.md")):
        text = page.read_text().lower()
        for word in ("question", "choice", "refused", "cost", "how we would notice"):
            assert word in text, f"{page.name} does not say: {word}"
