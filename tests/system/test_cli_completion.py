"""Completion by the shell: the script in a real bash, and values from the database, if it answers at once."""

import contextlib
import os
import pty
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

from octop.cli import completing, entry
from tests.system.test_cli_queues import hire

COMPLETES = """
source {script}
complete -p {name}
while read -r line; do
    eval "COMP_WORDS=($line)"
    COMPREPLY=()
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _{function}_completion {name}
    echo "${{COMPREPLY[@]}}"
done
"""


@pytest.fixture(params=["octop", "octop-scheduler"])
def bash(request, octop, tmp_path, monkeypatch):
    """Complete lines in a real bash, in which `octop` is this package; the last word is the one under the cursor."""
    program = shutil.which("bash")
    if program is None:
        pytest.skip("there is no bash on this machine")
    (tmp_path / "bin").mkdir()
    name, function = request.param, request.param.replace("-", "_")
    ours = tmp_path / "bin" / name
    monkeypatch.setattr(sys, "argv", [str(ours)])
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m octop "$@"\n')
    ours.chmod(0o755)
    (tmp_path / "script").write_text(octop("completion", "bash"))

    def complete(*lines, **environment):
        answer = subprocess.run(
            [program, "--norc", "-c", COMPLETES.format(script=tmp_path / "script", name=name, function=function)],
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
        assert registered == f"complete -o nosort -F _{function}_completion {name}"
        return [each.split() for each in found]

    return complete


def test_bash_completes_commands_options_and_names_from_the_database(bash, database, rows):
    hire(rows, queues=["mail", "maps", "reports"], types=["send_mail"])
    lines = {
        "octop que": ["queues"],
        "octop queues pause ma": ["mail", "maps"],
        "octop types freeze se": ["send_mail"],
        "octop queues set mail --re": ["--retry-policy", "--retry-delays"],
    }
    until = time.monotonic() + 60
    found: dict[str, list[str]] = {}
    while (
        found != lines and time.monotonic() < until
    ):  # on a busy machine the second that completion has may not be enough
        left = [line for line in lines if not found.get(line)]
        found |= zip(left, bash(*left, OCTOP_DSN=database.url), strict=True)
    assert found == lines


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


def test_values_of_a_filter_and_queues_of_a_worker_are_completed(octop, capsys, rows, monkeypatch):
    monkeypatch.setattr(completing, "SECONDS_MAX", 20)  # a busy machine is no reason to find nothing
    hire(rows, queues=["mail", "maps", "a b"], types=["send_mail", "send_sms"])
    assert answered(capsys, "octop tasks list queue:ma") == ["queue:mail", "queue:maps"]
    assert answered(capsys, "octop tasks list type:x,send_s") == ["type:x,send_sms"]
    assert answered(capsys, "octop tasks list que") == ["queue:"]
    assert answered(capsys, "octop tasks list queue:a") == []  # it would need quotes
    assert answered(capsys, "octop tasks export --queue mai") == ["mail"]
    assert answered(capsys, "octop failures --type send_m") == ["send_mail"]
    assert answered(capsys, "octop worker -q ma") == ["mail", "maps"]
    assert answered(capsys, "octop dev -q mail=5,map") == ["mail=5,maps"]


def test_ids_are_completed_from_eight_characters_on(octop, capsys, monkeypatch):
    monkeypatch.setattr(completing, "SECONDS_MAX", 20)
    task_id = "01234567-0000-7000-8000-000000000000"
    octop("enqueue", "greet", "--id", task_id)
    for line in ("tasks show 01234567", "tasks why 01234567-00", "tasks wait 01234567-0000-7", "tasks cancel 01234567"):
        assert answered(capsys, f"octop {line}") == [task_id]
    assert answered(capsys, "octop tasks list id:01234567") == [f"id:{task_id}"]
    for line in ("tasks show 0123456", "tasks show 01234568", "tasks show x1234567", "tasks list 01234567"):
        assert answered(capsys, f"octop {line}") == []


def test_commands_topics_and_modules_are_completed(octop, capsys, tmp_path):
    assert answered(capsys, "octop help ta") == ["tasks"]
    assert answered(capsys, "octop help fi") == ["filters"]
    assert answered(capsys, "octop help queues s") == ["scale", "set", "show"]
    assert answered(capsys, "octop help nosuch s") == []
    (tmp_path / "shop").mkdir()
    for name in ("tasks.py", "shop/__init__.py", "shop/mail.py", "no-module.py", "notes.txt"):
        (tmp_path / name).write_text("")
    assert answered(capsys, "octop worker -A ") == ["shop", "tasks"]
    assert answered(capsys, "octop worker --app shop.") == ["shop.mail"]
    assert answered(capsys, "octop worker -A nosuch.") == []


def test_words_that_bash_breaks_are_completed_from_where_it_broke_them(octop, capsys, rows, monkeypatch):
    monkeypatch.setattr(completing, "SECONDS_MAX", 20)  # a busy machine is no reason to find nothing
    hire(rows, queues=["mail", "maps"], types=["send"])
    # as bash hands them over: it breaks words at colons and equals signs
    assert answered(capsys, "octop tasks list queue : ma") == ["mail", "maps"]
    assert answered(capsys, "octop tasks list queue : x,map") == ["x,maps"]
    assert answered(capsys, "octop tasks list type : send queue : ma") == ["mail", "maps"]
    assert answered(capsys, "octop tasks list status :")[:2] == ["pending", "running"]
    assert answered(capsys, "octop worker -q mail = 5,map") == ["5,maps"]
    assert answered(capsys, "octop tasks list --queue = map") == ["maps"]


def test_without_a_database_there_is_nothing_to_complete_and_none_is_started(octop, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("OCTOP_DSN")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert answered(capsys, "octop queues pause ma") == []
    assert answered(capsys, "octop tasks list queue:ma") == []
    assert answered(capsys, "octop worker -q ma") == []
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
    assert octop.err == ""  # eval "$(octop completion bash)" says nothing at each start of a shell
    octop("completion", "tcsh", code=2)


def test_on_a_terminal_the_script_comes_with_where_it_goes(octop, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    octop("completion", "bash")
    assert octop.err.startswith('For good: eval "$(octop completion bash)" in ~/.bashrc')


LINES = [
    ("queue:m", ["mail", "maps"]),  # not the keys that begin with m
    ("type:s", ["send_mail"]),
    ("status:f", ["failed", "frozen"]),
    ("-- queue:default stat", ["status:"]),
    ("queue:mail type:", ["send_mail"]),
]


def test_bash_completes_words_of_a_filter_after_a_colon(octop, rows, database, tmp_path):
    """A bash of its own at a terminal: it alone knows how it takes a line apart."""
    program = shutil.which("bash")
    if program is None:
        pytest.skip("there is no bash on this machine")
    hire(rows, queues=["mail", "maps"], types=["send_mail"])
    (tmp_path / "script").write_text(octop("completion", "bash"))
    (tmp_path / "octop").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m octop "$@"\n')
    (tmp_path / "octop").chmod(0o755)
    # What the function found is written to a file; nothing is completed on the line, and each Tab takes one line.
    (tmp_path / "rc").write_text(
        f"""
        PS1="ready> "
        source {tmp_path}/script
        seen() {{ until _octop_completion octop; [[ ${{#COMPREPLY[@]}} -gt 0 ]]; do :; done
                  echo "${{COMPREPLY[@]}}" >> {tmp_path}/found; COMPREPLY=(); }}
        complete -F seen octop
        """
    )
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OCTOP_DSN": database.url, "TERM": "dumb"}
    with subprocess.Popen(
        [program, "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"],
        stdin=its_end, stdout=its_end, stderr=its_end, env=environment, cwd=tmp_path, start_new_session=True,
    ) as shell:  # fmt: skip
        os.close(its_end)
        shown = b""
        while b"ready>" not in shown:  # before, the terminal itself would take Ctrl-U
            shown += os.read(terminal, 4096)
        # Ctrl-U takes the line away again
        os.write(terminal, "".join(f"octop tasks list {words}\t\x15" for words, _ in LINES).encode() + b"exit\n")
        with contextlib.suppress(OSError):  # the other end has closed
            while os.read(terminal, 4096):
                pass
    os.close(terminal)
    assert shell.returncode == 0
    assert [line.split() for line in (tmp_path / "found").read_text().splitlines()] == [found for _, found in LINES]
