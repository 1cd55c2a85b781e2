"""What the database made of failed attempts, on its way to the hooks: they are called beside the exchange, for they may take their time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

HOOKS_SECONDS_MAX: Final = 5.0


class Verdicts:
    """A queue of verdicts."""

    def __init__(self, settled: Callable[[str, str], Awaitable[None]]) -> None:
        """Begin empty.

        Args:
            settled: Called with the id of a task and what became of it, one after the other.
        """
        self._settled = settled
        self._waiting: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def add(self, task_id: str, verdict: str) -> None:
        """Take one in."""
        self._waiting.put_nowait((task_id, verdict))

    async def pass_on(self) -> None:
        """Pass them on until cancelled."""
        while True:
            verdict = await self._waiting.get()
            try:
                await self._settled(*verdict)
            finally:
                self._waiting.task_done()

    async def passed_on(self) -> None:
        """Wait, for a few seconds, until all have been passed on: a process that runs few tasks would else seldom come to it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOOKS_SECONDS_MAX):
                await self._waiting.join()
