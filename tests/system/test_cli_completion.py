"""Completion by the shell: the script in a real bash, and values from the database, if it answers at once."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from octop.cli import completing, entry
from tests.system.test_cli_queues import hire

COMPLETES = """
source {script}
complete -p octop
while read -r line; do
    eval "COMP_WORDS=($line)"
    COMPREPLY=()
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _octop_completion octop
    echo "${{COMPREPLY[@]}}"
done
"""


@pytest.fixture
def bash(octop, tmp_path):
    """Complete lines in a real bash, in which `octop` is this package; the last word is the one under the cursor."""
    program = shutil.which("bash")
    if program is None:
        pytest.skip("there is no bash on this machine")
    (tmp_path / "bin").mkdir()
    ours = tmp_path / "bin" / "octop"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m octop "$@"\n')
    ours.chmod(0o755)
    (tmp_path / "script").write_text(octop("completion", "bash"))

    def complete(*lines, **environment):
        answer = subprocess.run(
            [program, "--norc", "-c", COMPLETES.format(script=tmp_path / "script")],
            # as typed: bash keeps the quotes in its words
            input="".join(" ".join(shlex.quote(word) for word in line.split(" ")) + "\n" for line in lines),
            env={**os.environ, "PATH": f"{ours.parent}:{os.environ['PATH']}", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stderr == ""
        registered, *found = answer.stdout.splitlines()
        assert registered == "complete -o nosort -F _octop_completion octop"
        return [each.split() for each in found]

    return complete


def test_bash_completes_commands_options_and_names_from_the_database(bash, database, rows):
    hire(rows, queues=["mail", "maps", "reports"], types=["send_mail"])
    assert bash(
        "octop que",
        "octop queues pause ma",
        "octop types freeze se",
        "octop queues set mail --re",
        OCTOP_DSN=database.url,
    ) == [["queues"], ["mail", "maps"], ["send_mail"], ["--retry-policy", "--retry-delays"]]


def answered(capsys, words, **environment):
    """Ask by the protocol of the shell's script, in process; return the names."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "_OCTOP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), **environment
        }.items():  # fmt: skip
            patch.setenv(name, value)
        capsys.readouterr()
        assert entry.run([]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return [each.partition(",")[2] for each in printed.out.split()]


def test_every_kind_of_value_is_completed(octop, capsys, rows, database):
    hire(rows, queues=["mail"], types=["send_mail"])
    # of the database that the line names
    assert answered(capsys, f"octop --dsn '{database.url}' types thaw se", OCTOP_DSN="dbname=nowhere") == ["send_mail"]
    assert answered(capsys, "octop config get worker.l") == ["worker.lease_seconds"]
    assert answered(capsys, "octop enqueue se") == ["send_mail"]
    assert answered(capsys, "octop enqueue send_mail --queue m") == ["mail"]
    assert answered(capsys, "octop types set send_mail --queue m") == ["mail"]
    assert answered(capsys, "octop completion ") == ["bash", "zsh", "fish"]


def test_without_a_database_there_is_nothing_to_complete_and_none_is_started(octop, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("OCTOP_DSN")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert answered(capsys, "octop queues pause ma") == []
    assert list(tmp_path.iterdir()) == []
    assert answered(capsys, "octop queues pause ma", OCTOP_DSN="postgresql://127.0.0.1:1/x") == []
    assert answered(capsys, "octop queues pause ma", OCTOP_DSN="no dsn at all") == []


def test_a_database_that_does_not_answer_is_not_waited_for(octop, capsys, monkeypatch):
    monkeypatch.setattr(completing, "SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        assert answered(capsys, "octop queues pause ma", OCTOP_DSN=address) == []
        # who asks still waits, and the process would not wait for it
        (asking,) = (each for each in threading.enumerate() if each.name == completing.THREAD)
        assert asking.daemon
    asking.join()


def test_no_schema_and_no_right_are_silent_too(octop, capsys, database, empty_database):
    assert answered(capsys, "octop queues pause ma", OCTOP_DSN=empty_database.url) == []
    stranger = database.url_as(database.make_role())
    assert answered(capsys, "octop queues pause ma", OCTOP_DSN=stranger) == []


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef octop"), ("fish", "complete --no-files")]
)
def test_the_script_of_each_shell_is_printed(octop, shell, sign):
    script = octop("completion", shell)
    assert sign in script
    assert "_OCTOP_COMPLETE" in script
    assert "For good: " in octop.err
    octop("completion", "tcsh", code=2)
