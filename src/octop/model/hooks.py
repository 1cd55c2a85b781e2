"""Hooks: what an application wants to be called with. Plain lists, filled by the app, read by the worker."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from octop.model import codec
from octop.model.context import Context
from octop.model.json_text import from_text

log = logging.getLogger(__name__)

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
    """

    enqueue: list[EnqueueHook] = field(default_factory=list)
    worker_start: list[WorkerHook] = field(default_factory=list)
    worker_stop: list[WorkerHook] = field(default_factory=list)
    middleware: list[Middleware] = field(default_factory=list)
    success: list[SuccessHook] = field(default_factory=list)
    failure: list[FailureHook] = field(default_factory=list)
    retry: list[FailureHook] = field(default_factory=list)
    freeze: list[FailureHook] = field(default_factory=list)

    def with_riders(self, task_type: str, meta: str | None) -> str | None:
        """Return the ``meta`` of a new task with what the enqueue hooks add; what the caller said himself goes before.

        A hook that raises is logged and adds nothing: what only watches must not keep an order from being enqueued.

        Args:
            task_type: Name of the task type.
            meta: What the caller said, as JSON; None = nothing.

        Examples:
            >>> Hooks(enqueue=[lambda task_type: {"trace": "4bf9", "for": task_type}]).with_riders(
            ...     "send", '{"trace": "mine"}'
            ... )
            '{"trace":"mine","for":"send"}'
        """
        riders: dict[str, object] = {}
        for hook in self.enqueue:
            try:
                found = dict(hook(task_type) or {})
                codec.encode(found)
            except Exception as error:  # whatever the user's hook raises
                log.error("the hook %s raised", getattr(hook, "__qualname__", hook), exc_info=error)
            else:
                riders |= found
        if not riders:
            return meta
        said = from_text(meta) if meta else {}
        return codec.encode(riders | (said if isinstance(said, dict) else {}))
