"""The one place where an error becomes a message, a hint and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

import click

from octop.cli.invocation import Invocation
from octop.cli.root import root
from octop.model.errors import MigrationChangedError, OctopError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPLETION = "_OCTOP_COMPLETE"
"""Set by the shell's completion: `eval "$(_OCTOP_COMPLETE=bash_source octop)"`."""

EXIT_FAILED = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE


class TerminatedError(BaseException):
    """SIGTERM came: unwind, so that what was started is stopped.

    Not an Exception: no one may take it for a failure.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: Without the program's name.

    Returns:
        0 ok, 1 failed, 2 usage, 3 not found, 4 database unreachable, 5 schema missing or of another version, 6 not
        permitted, 7 timed out, 8 conflict, 130 and 143 for SIGINT and SIGTERM.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    invocation = Invocation()
    try:
        if COMPLETION in os.environ:
            from octop.cli import bash  # noqa: PLC0415 - only for the shell

            bash.register()
            root.main([], prog_name="octop", complete_var=COMPLETION)  # answers the shell and exits
        # Not root.main: it would turn a broken pipe into a failure.
        with root.make_context("octop", list(arguments), obj=invocation) as ctx:
            code = root.invoke(ctx)
        sys.stdout.flush()
    except BrokenPipeError:
        # `octop tasks list | head`: the reader has what it wanted. Python must not find the broken pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except BaseException as error:  # noqa: BLE001 - the border: every way to end becomes an exit code here
        return _explain(error, invocation)
    finally:
        signal.signal(signal.SIGTERM, before)
    return code if isinstance(code, int) else 0


def _terminate(number: int, frame: FrameType | None) -> None:
    raise TerminatedError


def _explain(error: BaseException, invocation: Invocation) -> int:
    if invocation.verbose and not isinstance(error, (click.exceptions.Exit, SystemExit)):
        import traceback  # noqa: PLC0415 - costs 10 ms, and most commands end well

        _say("".join(traceback.format_exception(error)))
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit():
            return error.code if isinstance(error.code, int) else EXIT_FAILED
        case click.ClickException():
            error.show()
            return error.exit_code
        case KeyboardInterrupt() | click.Abort():
            _write("; ".join(filter(None, ("interrupted", str(error)))))  # it may say what goes on
            return EXIT_INTERRUPTED
        case TerminatedError():
            _write("terminated")
            return EXIT_TERMINATED
        case OctopError():
            _write(error.message, error.detail, _hint(error, invocation))
            return error.exit_code
    text = str(error) or "no message"
    hint = (
        ""
        if invocation.verbose
        else "This is a fault of Octop, not yours. The same command with -v shows the traceback."
    )
    _write(f"unexpected {type(error).__name__}: {text}", hint=hint)
    return EXIT_FAILED


def _hint(error: OctopError, invocation: Invocation) -> str:
    """Return what to do; of a private database the data is nobody's treasure."""
    if isinstance(error, MigrationChangedError) and invocation.settings.dsn is None:
        return "An older development version made the private database; `octop db reset` deletes it, its data too."
    if not error.hint or "settings" not in vars(invocation):  # it never got as far as to a database
        return error.hint
    from octop.cli import place  # noqa: PLC0415 - only when there is something to say

    return place.hint(error, invocation)


def _write(message: str, detail: str = "", hint: str = "") -> None:
    lines = [f"octop: {message}"]
    lines += [f"  {line}" for line in detail.splitlines()]
    lines += [f"  hint: {hint}"] if hint else []
    _say("\n".join(lines) + "\n")


def _say(text: str) -> None:
    from octop.cli.output import masked  # noqa: PLC0415 - only when there is something to say

    sys.stderr.write(masked(text))
