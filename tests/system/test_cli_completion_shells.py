"""Completion in a real fish and a real zsh; that in bash stands in test_cli_completion.py."""

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

from tests.system.test_cli_queues import hire


@pytest.fixture
def shell(octop, database, rows, tmp_path):
    """Return the path of a shell, the script for it, and an environment in which `octop` is this package."""
    hire(rows, queues=["mail", "maps"], types=["send_mail"])
    (tmp_path / "octop").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m octop "$@"\n')
    (tmp_path / "octop").chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "ZDOTDIR"},
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "OCTOP_DSN": database.url,
        "HOME": str(tmp_path),
        "TERM": "dumb",
    }

    def prepared(name):
        program = shutil.which(name)
        if program is None:
            pytest.skip(f"there is no {name} on this machine")
        script = tmp_path / f"script.{name}"
        script.write_text(octop("completion", name))
        return program, script, environment

    return prepared


def test_fish_completes_commands_and_names_from_the_database(shell, tmp_path):
    program, script, environment = shell("fish")

    def complete(line):
        for _ in range(20):  # on a busy machine the second that completion has may not be enough
            answer = subprocess.run(
                [program, "--no-config", "-c", f'source {script}; complete --do-complete "{line}"'],
                env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert answer.stderr == ""
            if found := [each.partition("\t")[0] for each in answer.stdout.splitlines()]:
                return found
        return []

    assert complete("octop que") == ["queues"]
    assert complete("octop queues pause ma") == ["mail", "maps"]
    assert complete("octop queues set mail --retry-d") == ["--retry-delays"]


def test_zsh_completes_a_command_at_its_prompt(shell, tmp_path):
    program, script, environment = shell("zsh")
    (tmp_path / ".zshrc").write_text(f'PS1="ready> "\nautoload -U compinit\ncompinit -u -D\neval "$(cat {script})"\n')
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        [program, "-i"],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        env=environment,
        cwd=tmp_path,
        start_new_session=True,
    ):
        os.close(its_end)
        shown = b""
        while b"ready>" not in shown:
            shown += os.read(terminal, 4096)
        # what is completed is run: only `octop queues` has this help
        os.write(terminal, b"octop que\t--help\nexit\n")
        with contextlib.suppress(OSError):  # the other end has closed
            while more := os.read(terminal, 4096):
                shown += more
    os.close(terminal)
    assert re.search(rb"Usage: octop queues", shown), shown.decode(errors="replace")
