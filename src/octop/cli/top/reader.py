"""Looks at the database once a second, in a thread with one connection, so that keys are heard while a read hangs."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octop.cli.top.snapshot import Rates, Snapshot, look
from octop.engine.call import run
from octop.model.errors import OctopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from octop.engine.call import Call
    from octop.engine.connect import EngineConnection

END_SECONDS_MAX: Final = 1.0


@dataclass(frozen=True)
class Act:
    """What a person has confirmed.

    Attributes:
        asks: The question, without the question mark.
        call: What is run for it.
        done: What is said afterwards.
    """

    asks: str
    call: Call[Any]
    done: str


class Reader:
    """Keeps the latest look, and does what is asked of it.

    Attributes:
        snapshot: The latest look.
        looked_at: When, on the monotonic clock.
        rates: How fast tasks end.
        trouble: Why there is no newer look; empty while all is well.
        said: How the last act went.
    """

    def __init__(self, connect: Callable[[], EngineConnection], *, interval_seconds: float) -> None:
        """Keep how to connect, and how often to look."""
        self.snapshot = Snapshot()
        self.looked_at: float | None = None
        self.rates = Rates()
        self.trouble = ""
        self.said = ""
        self._connect = connect
        self._interval_seconds = interval_seconds
        self._connection: EngineConnection | None = None
        self._acts: queue.SimpleQueue[Act] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._over = False
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="octop top", daemon=True)

    def __enter__(self) -> Reader:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; a read that hangs is not waited for: the thread ends with the process."""
        self._over = True
        self._wake.set()
        self._thread.join(END_SECONDS_MAX)

    def check(self) -> None:
        """Raise what has ended the thread, if anything has."""
        if self._fault is not None:
            raise self._fault

    def do(self, act: Act) -> None:
        """Do it now, then look again."""
        self.said = "…"
        self._acts.put(act)
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._over:
                self._wake.clear()
                try:
                    self._look()
                except OctopError as error:
                    self.trouble = error.message
                    self._close()
                    self._forget_acts(error.message)
                self._wake.wait(self._interval_seconds)
        except Exception as error:  # noqa: BLE001 - a fault of ours: raised again where somebody sees it
            self._fault = error
        finally:
            self._close()

    def _look(self) -> None:
        if self._connection is None:
            self._connection = self._connect()
        self._act(self._connection)
        found = look(self._connection)
        now = time.monotonic()
        self.rates.take(found, now)
        self.snapshot, self.looked_at, self.trouble = found, now, ""

    def _act(self, connection: EngineConnection) -> None:
        while True:
            try:
                act = self._acts.get_nowait()
            except queue.Empty:
                return
            try:
                run(connection, act.call)
            except OctopError as error:
                self.said = f"not done: {error.message}"
                if connection.closed:
                    raise
            else:
                self.said = act.done

    def _forget_acts(self, why: str) -> None:
        """Say that they were not done: nobody expects them any more when the database is back."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._acts.get_nowait()
                self.said = f"not done: {why}"

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None
