"""Copies of a worker process, which tasks make with ``fork``. They have all that it has open, and must touch nothing of it.

A copy may do what it likes, such as ``multiprocessing`` does; when it comes back to us it ends. Without this it would run on as a second
worker with the same id: on the same sessions, beside the first, and with the tasks that were waiting here.
"""

import asyncio
import functools
import os
import signal
import threading
from typing import Final

from octop.engine.connect import leave_to_parent
from octop.worker.frames import Channel

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

is_one = False
"""This process is such a copy. A plain name, because it is looked at after each step of each task."""


def guard(channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
    """Take from each copy of this process what is its parent's.

    Args:
        channel: To the supervisor.
        loop: The event loop.
    """
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_let_signals, after_in_child=functools.partial(_begin, channel, loop)
    )


def end() -> None:
    """End this copy, without a word."""
    os._exit(0)


_masks = threading.local()


def _hold_signals() -> None:
    """Let a signal that comes to the copy before it is ready for it wait: its parent's way of hearing would swallow it."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _begin(channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
    global is_one  # noqa: PLW0603 - it is about this process
    is_one = True
    signal.set_wakeup_fd(
        -1
    )  # a signal to the copy, such as Process.terminate() sends, would be told to its parent's loop
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # and be ignored here
    _let_signals()
    channel.close()
    leave_to_parent()
    if (selector := getattr(loop, "_selector", None)) is not None:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, selector.fileno(), inheritable=False)  # shared with the parent, it would take events away from it
        os.close(null)
