"""The root of the command: help, lazy imports, and the one place that turns errors into exit codes."""

import importlib
import json
import os
import signal
import subprocess
import sys

import click
import pytest

from octop import __version__
from octop.cli import entry
from octop.cli.groups import OTHERS_SAY
from octop.cli.root import root
from octop.cli.tasks.group import tasks
from octop.model import errors

MODULES_MAX = 100
"""Loaded by `octop --help` beyond those of a bare Python; how long that takes: benchmarks/bench_startup.py."""


def rows_of(group):
    """Yield name, place and short help of the commands in a group's table."""
    for section in group.sections.values():
        for name, (place, help_text) in section.items():
            yield name, place, help_text


@pytest.mark.parametrize(("arguments", "group"), [([], root), (["tasks"], tasks)], ids=["octop", "octop tasks"])
def test_help_lists_every_command_of_the_table(arguments, group, capsys):
    assert entry.run([*arguments, "--help"]) == 0
    printed = capsys.readouterr().out
    for name, _, help_text in rows_of(group):
        assert f"  {name} " in printed
        assert help_text in printed


@pytest.mark.parametrize("group", [root, tasks], ids=["octop", "octop tasks"])
def test_the_table_of_commands_says_what_the_commands_say(group):
    for name, place, help_text in rows_of(group):
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert command.name == name
        assert command.get_short_help_str(200) == help_text


def commands(group, path=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", list(commands(root)), ids=" ".join)
def test_each_command_has_help(path, capsys):
    assert entry.run([*path, "--help"]) == 0
    assert f"Usage: octop {' '.join(path)}" in capsys.readouterr().out


def loaded_by(*arguments):
    """Return the modules that one run of the command has loaded."""
    script = (
        "import sys\n"
        "from octop.cli import entry\n"
        "entry.run(sys.argv[1:])\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return set(answer.stderr.split())


def test_help_of_no_command_loads_the_driver_or_the_terminals_library():
    """One process for all of them: what one loads, the next would have loaded too."""
    script = (
        "import contextlib, io, json, sys\n"
        "from octop.cli import entry\n"
        "for path in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        entry.run([*path, '--help'])\n"
        "    found = sys.modules.keys() & {'psycopg', 'rich', 'asyncio', 'octop.engine.private_database'}\n"
        "    assert not found, (path, found)\n"
    )
    paths = json.dumps(list(commands(root)))
    subprocess.run([sys.executable, "-c", "import sys\n" + script, paths], check=True)


def test_help_loads_click_and_little_else():
    plain = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    of_root = {
        "octop.cli",
        "octop.cli.entry",
        "octop.cli.groups",
        "octop.cli.invocation",
        "octop.cli.root",
        "octop.model",
        "octop.model.errors",
    }
    of_tasks = of_root | {"octop.cli.tasks", "octop.cli.tasks.group"}
    for arguments, ours in ((["--help"], of_root), (["tasks", "--help"], of_tasks)):
        loaded = loaded_by(*arguments)
        assert "click" in loaded
        assert not loaded & {"psycopg", "rich", "asyncio", "importlib.metadata", "tomllib", "json", "traceback"}
        assert {each for each in loaded if each.startswith("octop.")} == ours
        assert len(loaded - set(plain.stdout.split())) <= MODULES_MAX


@pytest.mark.parametrize("command", ["list", "export", "retry", "cancel", "delete"])
def test_help_of_a_command_that_takes_a_filter_loads_no_filters(command):
    assert not loaded_by("tasks", command, "--help") & {"octop.model.filters", "octop.model.filter_values"}


def test_a_command_loads_what_it_needs():
    assert not loaded_by("version") & {"psycopg", "rich", "asyncio"}


def test_alone_a_group_prints_its_help_to_stdout(capsys):
    for arguments in ([], ["tasks"]):
        assert entry.run(arguments) == 0
        printed = capsys.readouterr()
        assert printed.out.startswith("Usage: octop")
        assert printed.err == ""


@pytest.mark.parametrize(
    ("arguments", "meant"), [(["taks"], "tasks"), (["queue", "list"], "queues"), (["tasks", "lst"], "list")]
)
def test_a_command_that_is_nearly_right_is_guessed(arguments, meant, capsys):
    assert entry.run(arguments) == 2
    assert f"Did you mean {meant}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["retry", "x"], "`octop tasks retry`"),
        (["list"], "`octop tasks list` or `octop queues list` or `octop lanes list` or `octop types list`"),
        (["purge"], "`octop tasks delete` or `octop tasks cancel`"),
        (["ps"], "`octop workers` or `octop tasks list status:running`"),
        (["queues", "freeze", "x"], "`octop types freeze`"),
    ],
)
def test_a_command_that_stands_elsewhere_is_named(arguments, meant, capsys):
    assert entry.run(arguments) == 2
    assert f"No such command {arguments[-2] if arguments[-1] == 'x' else arguments[-1]!r}. Did you mean {meant}" in (
        capsys.readouterr().err
    )


def test_what_other_programs_call_it_leads_to_commands_that_are_there(capsys):
    for words in (each for several in OTHERS_SAY.values() for each in several):
        path = [word for word in words.split() if word.islower() and ":" not in word]
        assert entry.run([*path, "--help"]) == 0
        assert f"Usage: octop {' '.join(path)}" in capsys.readouterr().out
    assert not OTHERS_SAY.keys() & root.places.keys()


def test_what_was_interrupted_may_say_what_goes_on(monkeypatch, capsys):
    raising(KeyboardInterrupt("task 1 goes on"), monkeypatch)
    assert entry.run(["any"]) == 130
    assert capsys.readouterr().err == "octop: interrupted; task 1 goes on\n"


def test_the_application_is_explained_as_it_may_be_written(capsys):
    for arguments in (["--help"], ["worker", "--help"]):
        assert entry.run(arguments) == 0
        assert "-A, --app MODULE[:ATTRIBUTE]" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    assert entry.run(["--version"]) == 0
    assert capsys.readouterr().out == f"octop {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["tasks", "nonsense"], ["--nonsense"], ["tasks", "show"], ["tasks", "show", "42"]]
)
def test_wrong_usage_ends_with_2(arguments, capsys):
    assert entry.run(arguments) == 2
    assert "Usage: octop" in capsys.readouterr().err


def raising(error, monkeypatch):
    def command():
        raise error

    monkeypatch.setattr(root, "get_command", lambda ctx, name: click.Command(name, callback=command))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("wrong"), 2),
        (errors.TaskNotFoundError("no such task"), 3),
        (errors.DatabaseUnreachableError("no answer"), 4),
        (errors.SchemaMissingError("not installed"), 5),
        (errors.NotPermittedError("no right"), 6),
        (errors.WaitTimeoutError("too long"), 7),
        (errors.TaskStatusError("it has ended"), 8),
        (errors.TryAgainError("locked"), 1),
        (ValueError("a fault"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (entry.TerminatedError(), 143),
        (BrokenPipeError(), 141),
        (SystemExit(9), 9),
        (click.exceptions.Exit(3), 3),
    ],
)
def test_every_error_has_its_exit_code_and_no_traceback(error, code, monkeypatch, capfd):
    raising(error, monkeypatch)
    assert entry.run(["any"]) == code
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_shows_message_detail_and_hint_without_passwords(monkeypatch, capsys):
    error = errors.DatabaseUnreachableError(
        "no answer from postgresql://ann:secret@db/octop", detail="line 1\nline 2", hint="Start it."
    )
    raising(error, monkeypatch)
    assert entry.run(["any"]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "octop: no answer from postgresql://ann:***@db/octop",
        "  line 1",
        "  line 2",
        "  hint: Start it.",
    ]


def test_verbose_shows_the_traceback_too(monkeypatch, capsys):
    raising(errors.TaskNotFoundError("no such task"), monkeypatch)
    assert entry.run(["-v", "any"]) == 3
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.endswith("octop: no such task\n")


def test_sigterm_unwinds_and_ends_with_143(monkeypatch, capsys):
    unwound = []

    def command():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            unwound.append(True)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(root, "get_command", lambda ctx, name: click.Command(name, callback=command))
    assert entry.run(["any"]) == 143
    assert unwound
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m octop --help | true; exit ${{PIPESTATUS[0]}}"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 141)
    assert answer.stderr == ""


def test_the_shell_can_complete():
    answer = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'octop'; from octop.cli import main; main()"],
        env={"_OCTOP_COMPLETE": "bash_complete", "COMP_WORDS": "octop que", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == "plain,queues\n"


def test_the_module_is_the_command():
    answer = subprocess.run([sys.executable, "-m", "octop", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"octop {__version__}\n"
