"""What the tests of the documents share: the pages, their blocks of code, and the command as a reader runs it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from octop.cli.root import root

HOUSE = Path(__file__).resolve().parents[2]
README = HOUSE / "README.md"
HOW_TO = HOUSE / "docs" / "how-to"
PAGES = sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md"), *HOUSE.glob("examples/**/*.md")])


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language; an empty one names the blocks without a language."""
    return [
        body
        for found, body in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        if found == language
    ]


def commands(page: Path) -> list[list[str]]:
    """Return the words of each `octop …` line in the blocks of a page, and of each one in the text that names a command."""
    lines = [
        line.removeprefix("$ ")
        for language in ("", "bash", "console")
        for block in blocks(page, language)
        for line in block.splitlines()
    ]
    without_blocks = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines += re.findall(r"`(octop [^`]+)`", without_blocks)
    plain = (re.sub(r"\$\([^)]*\)", "x", line) for line in lines if line.startswith("octop "))
    found = (shlex.split(re.split(r"\s(?:\||>|&|\|\||2>&1)\s", line)[0], comments=True) for line in plain)
    # `octop client` is no command, but a name in pg_stat_activity
    return [
        [word for word in words[1:] if "COMMAND" not in word]
        for words in found
        if words[1] not in ("COMMAND", "client")
    ]


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "OCTOP_DSN": url}


def at_once(*words: str, url: str) -> str:
    """Run a command in this process: a tenth of the time, for those that only ask the database something."""
    answer = CliRunner().invoke(root, words, env={"OCTOP_DSN": url})
    if answer.exit_code:
        pytest.fail(f"octop {' '.join(words)} ended with {answer.exit_code}: {answer.exception} {answer.output}")
    return answer.stdout


def octop(*words: str, folder: Path, url: str) -> str:
    """Run the command as a newcomer does, in the folder of the task module."""
    answer = subprocess.run(
        [sys.executable, "-m", "octop", *words],
        cwd=folder,
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if answer.returncode:
        pytest.fail(f"octop {' '.join(words)} ended with {answer.returncode}:\n{answer.stdout}\n{answer.stderr}")
    return answer.stdout
