"""Hooks: what an application wants to be called with. Plain lists, filled by the app, read by the worker."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from octop.model.context import Context

WorkerHook = Callable[[], object]
"""Called at the start or stop of a worker process; may be async."""

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
        worker_start: Before the first claim of a worker process: open a pool, load a model.
        worker_stop: After its last task, in reverse order.
        middleware: Around each attempt; the first registered is the outermost.
        success: After an attempt that succeeded.
        failure: After an attempt that failed in any way.
        retry: After a failure that will be tried again.
        freeze: After a failure that used up the last try.
    """

    worker_start: list[WorkerHook] = field(default_factory=list)
    worker_stop: list[WorkerHook] = field(default_factory=list)
    middleware: list[Middleware] = field(default_factory=list)
    success: list[SuccessHook] = field(default_factory=list)
    failure: list[FailureHook] = field(default_factory=list)
    retry: list[FailureHook] = field(default_factory=list)
    freeze: list[FailureHook] = field(default_factory=list)
