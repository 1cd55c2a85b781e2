"""Alerts are handed to the application's hooks, and to a webhook, beside the tasks: none of it runs on the loop or waits for it.

Which worker hands over which alert, and what has been delivered, are rows: a worker that dies with one in its hands only makes another
one try. So each is delivered at least once by some worker that has such a hook.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from octop.engine import calls
from octop.engine.calls.alerts import Channel
from octop.model.alert import Alert
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.model.hooks import AlertHook
from octop.worker.link import Link
from octop.worker.trouble import Trouble

R = TypeVar("R")
log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
TRY_SECONDS: Final = 10.0
AT_ONCE: Final = 5
"""Five tries of ten seconds end within the minute for which they are this worker's."""


async def beside(function: Callable[..., R], *arguments: Any) -> R:
    """Call a blocking function in a thread of its own, which nobody waits for when the process ends.

    Args:
        function: What may hang.
        *arguments: For it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def told(set_: Callable[[Any], None], answer: object) -> None:
        if not future.done():  # nobody waits any more
            set_(answer)

    def work() -> None:
        try:
            answer: object = function(*arguments)
            set_: Callable[[Any], None] = future.set_result
        except BaseException as error:  # noqa: BLE001 - whatever a user's hook raises goes to who waits for it
            # a future takes no StopIteration
            answer = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            set_ = future.set_exception
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(told, set_, answer)

    threading.Thread(target=work, name="octop-alert", daemon=True).start()
    return await future


class Alerts:
    """Takes alerts of one channel and hands them over, one after the other."""

    def __init__(
        self, worker_id: str, link: Link, channel: Channel, deliver: Callable[[Alert], Awaitable[None]]
    ) -> None:
        """Keep where to look and what to do.

        Args:
            worker_id: Who takes them.
            link: A connection for short calls.
            channel: Whose deliveries are counted.
            deliver: Hands one over; what it raises is the reason to try again.
        """
        self._worker_id = worker_id
        self._link = link
        self._channel = channel
        self._deliver = deliver

    async def hand_over(self, over: asyncio.Event) -> None:
        """Look every two seconds, until it is over."""
        trouble = Trouble("the look for alerts is refused", self._worker_id, endless=True)
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await over.wait()
            try:
                while not over.is_set() and await self._hand_over_some():
                    pass
                trouble.over()
            except DatabaseUnreachableError:
                await self._link.pause()
            except OctopError as error:
                await self._link.pause(trouble.bear(error))

    async def _hand_over_some(self) -> bool:
        taken = await self._link.call(calls.octop_take_alerts(self._worker_id, self._channel, AT_ONCE))
        for alert in taken:
            error = await self._tried(alert)
            if error:
                log.warning(
                    "alert %s (%s %s) was not taken by the %s: %s",
                    *(alert.id, alert.kind, alert.subject, self._channel, error),
                    extra={"worker_id": self._worker_id},
                )
            await self._link.call(calls.octop_alert_tried(self._worker_id, self._channel, alert.id, error))
        return len(taken) == AT_ONCE

    async def _tried(self, alert: Alert) -> str | None:
        """Hand one over; return why it was not taken, or None."""
        try:
            async with asyncio.timeout(TRY_SECONDS):
                await self._deliver(alert)
        except TimeoutError:
            return f"no end within {TRY_SECONDS:.0f} s"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's hook raises is why it is tried again
            return f"{type(error).__name__}: {error}"[:500] or type(error).__name__
        return None


def to_hooks(hooks: Sequence[AlertHook]) -> Callable[[Alert], Awaitable[None]]:
    """Return what hands an alert to all of these functions; one that is not async runs in a thread."""

    async def deliver(alert: Alert) -> None:
        for hook in hooks:
            if asyncio.iscoroutinefunction(hook):
                await hook(alert)
            else:
                await beside(hook, alert)

    return deliver
