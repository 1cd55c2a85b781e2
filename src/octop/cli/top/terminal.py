"""The keyboard of a terminal, key by key; the terminal is given back as it was, however we end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[Z": "backtab",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x04": "end",
}
_KEY: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|\x1b|.", re.DOTALL)


def keys_in(text: str) -> list[str]:
    """Return the keys in what a terminal sent.

    Example:
        >>> keys_in("j\\x1b[Bp\\t")
        ['j', 'down', 'p', 'tab']
    """
    return [NAMES.get(found, found) for found in _KEY.findall(text)]


class Keyboard:
    """Hears single keys, without echo.

    Attributes:
        stopped_by: The signal that asked us to end, or None.
    """

    def __init__(self, number: int) -> None:
        """Keep the terminal's file descriptor."""
        self._number = number
        self.stopped_by: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear keys for the length of a `with`; signals that end us become a wish that is looked at."""
        before = termios.tcgetattr(self._number)
        ours: list[Any] = termios.tcgetattr(self._number)
        ours[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
        # Ctrl-Z and Ctrl-\ would leave the shell with our screen; Ctrl-C stays what it is.
        ours[6][termios.VSUSP] = ours[6][termios.VQUIT] = os.fpathconf(self._number, "PC_VDISABLE")
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            for number in handlers:
                signal.signal(number, self._wish)
            termios.tcsetattr(self._number, termios.TCSADRAIN, ours)
            yield
        finally:
            # flush: what was typed for us is not for the shell
            with contextlib.suppress(termios.error):  # the terminal has gone
                termios.tcsetattr(self._number, termios.TCSAFLUSH, before)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _wish(self, number: int, _frame: object) -> None:
        self.stopped_by = number

    def keys(self, seconds: float) -> list[str]:
        """Wait for keys, at most so long, and return them; `end` when the terminal has gone."""
        ready, _, _ = select.select([self._number], [], [], seconds)
        if not ready:
            return []
        try:
            got = os.read(self._number, 1024)
        except OSError:
            return ["end"]
        return keys_in(got.decode("utf-8", "replace")) if got else ["end"]
