"""Hearing notifications, and finding out whether any are heard at all."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from octop.engine.listener import call_out, notifications
from octop.model.errors import OctopError
from octop.worker.link import Link, pause_before_try
from octop.worker.options import WorkerOptions

log = logging.getLogger(__name__)

PROOF_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.25


class Ears:
    """The connection of a worker that listens. Without one everything still works, at the pace of ``scheduler.interval_seconds``."""

    def __init__(
        self, options: WorkerOptions, worker_id: str, speaker: Link, over: asyncio.Event, on_word: Callable[[str], None]
    ) -> None:
        """Be ready to listen.

        Args:
            options: Where to.
            worker_id: Who listens.
            speaker: Another connection, on which the worker calls itself: a pooler in transaction mode swallows what it would hear.
            over: Set when nobody needs to hear any more.
            on_word: Called with each notification: the name of a queue, or an empty text when all may have changed.
        """
        self._options = options
        self._worker_id = worker_id
        self._speaker = speaker
        self._over = over
        self._on_word = on_word
        self._listens = asyncio.Event()
        self._heard = asyncio.Event()

    async def listen(self) -> None:
        """Be woken by notifications until it is over."""
        failures = 0
        while not self._over.is_set():
            try:
                async for word in notifications(self._options.dsn, schema=self._options.schema):
                    failures = 0
                    if word == self._worker_id:
                        self._heard.set()
                        continue
                    self._listens.set()
                    self._on_word(word)
            except OctopError as error:
                failures += 1
                log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "nothing is heard from the database, polling meanwhile: %s",
                    error.message,
                )
            await self._rest(pause_before_try(max(1, failures), self._worker_id))

    async def prove(self) -> None:
        """Call ourselves, once, when we have begun to listen, and say so when we do not hear it."""
        await self._listens.wait()
        try:
            await self._speaker.patiently(lambda: call_out(self._worker_id))
        except OctopError as error:
            log.debug("whether notifications arrive is not known: %s", error.message)
            return
        if not await self._hears():
            log.warning(
                "notifications do not arrive: a pooler in transaction mode, perhaps. An idle worker looks each"
                " scheduler.interval_seconds only; give it a DSN past the pooler, or --poll-only, which spares the connection",
                extra={"worker_id": self._worker_id},
            )

    async def _hears(self) -> bool:
        """Wait for our own word. What passes while a task blocks the loop says nothing: the word may lie there unread."""
        left = PROOF_SECONDS
        while left > 0 and not self._heard.is_set():
            began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._heard.wait()
            passed = time.monotonic() - began
            if passed < 2 * LOOK_SECONDS:
                left -= LOOK_SECONDS
        return self._heard.is_set()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
