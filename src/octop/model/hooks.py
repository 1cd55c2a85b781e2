"""Hooks: what an application wants to be called with. Plain lists, filled by the app, read by the worker."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from octop.model import codec
from octop.model.alert import Alert
from octop.model.context import Context
from octop.model.json_text import from_text

log = logging.getLogger(__name__)

META_BYTES_MAX: Final = 65_536
"""What the engine takes for the ``meta`` of one task, as PostgreSQL prints it: with a space after each colon and comma."""

WorkerHook = Callable[[], object]
"""Called at the start or stop of a worker process; may be async."""

EnqueueHook = Callable[[str], Mapping[str, object] | None]
"""Called with the name of the task type whenever a task is made; returns riders for its ``meta``, or None."""

CallNext = Callable[[], Awaitable[object]]
Middleware = Callable[[Context, CallNext], Awaitable[object]]
"""Wraps each attempt: ``async def timed(context, call_next): return await call_next()``."""

SuccessHook = Callable[[Context, object], object]
"""Called with the context and what the function returned; may be async."""

FailureHook = Callable[[Context, BaseException], object]
"""Called with the context and what the attempt failed with; may be async."""


AlertHook = Callable[[Alert], object]
"""Called with an alert; may be async."""


@dataclass(slots=True)
class Hooks:
    """Everything that an application registered, in the order of registration.

    Attributes:
        enqueue: Where a task is made, in the process that enqueues it.
        worker_start: Before the first claim of a worker process: open a pool, load a model.
        worker_stop: After its last task, in reverse order.
        middleware: Around each attempt; the first registered is the outermost.
        success: After an attempt that succeeded.
        failure: After an attempt that failed in any way.
        retry: After a failure that will be tried again.
        freeze: After a failure that used up the last try.
        alert: For each alert, at least once by some worker.
    """

    enqueue: list[EnqueueHook] = field(default_factory=list)
    worker_start: list[WorkerHook] = field(default_factory=list)
    worker_stop: list[WorkerHook] = field(default_factory=list)
    middleware: list[Middleware] = field(default_factory=list)
    success: list[SuccessHook] = field(default_factory=list)
    failure: list[FailureHook] = field(default_factory=list)
    retry: list[FailureHook] = field(default_factory=list)
    freeze: list[FailureHook] = field(default_factory=list)
    alert: list[AlertHook] = field(default_factory=list)

    def with_riders(self, task_type: str, meta: str | None) -> str | None:
        """Return the ``meta`` of a new task with what the enqueue hooks add; what the caller said himself goes before.

        A hook that raises is logged and adds nothing, as one whose riders are no JSON, or more than fits beside what is there
        (64 kB in all): what only watches must not keep an order from being enqueued.

        Args:
            task_type: Name of the task type.
            meta: What the caller said, as JSON; None = nothing.

        Examples:
            >>> Hooks(enqueue=[lambda task_type: {"trace": "4bf9", "for": task_type}]).with_riders(
            ...     "send", '{"trace": "mine"}'
            ... )
            '{"trace":"mine","for":"send"}'
        """
        said = from_text(meta) if meta else {}
        if not isinstance(said, dict):  # the engine will say what is wrong with it
            return meta
        riders: dict[str, object] = {}
        for hook in self.enqueue:
            try:
                together = riders | _plain(hook(task_type))
                _check_room(together | said)
            except Exception as error:  # whatever the user's hook raises
                log.error("the hook %s added nothing", getattr(hook, "__qualname__", hook), exc_info=error)
            else:
                riders = together
        return codec.encode(riders | said) if riders else meta


def _plain(found: Mapping[str, object] | None) -> dict[str, object]:
    """Return riders as the plain values that will be written, so that nothing is found wrong with them later."""
    plain = from_text(codec.encode(dict(found or {})))
    return plain if isinstance(plain, dict) else {}


def _check_room(meta: dict[str, object]) -> None:
    size = len(json.dumps(meta, ensure_ascii=False).encode())
    if size > META_BYTES_MAX:
        message = f"with its riders, meta has {size:,} bytes, more than {META_BYTES_MAX:,}"
        raise ValueError(message)
