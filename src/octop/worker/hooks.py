"""Calling what the application registered. A hook that raises is logged, and never decides about a task."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from octop.model.context import Context

log = logging.getLogger(__name__)


async def call_hooks(hooks: Sequence[Callable[..., object]], *arguments: object) -> None:
    """Call hooks one after the other. What they raise is logged and changes nothing."""
    for hook in hooks:
        try:
            answer = hook(*arguments)
            if isinstance(answer, Awaitable):
                await answer
        except (Exception, SystemExit) as error:
            log.error("the hook %s raised", getattr(hook, "__qualname__", hook), exc_info=error)


async def wrapped(
    middleware: Callable[..., Awaitable[object]], context: Context, inner: Coroutine[Any, Any, Any]
) -> Any:
    """Run an attempt inside a middleware.

    Args:
        middleware: What surrounds it.
        context: Of the attempt.
        inner: The attempt, or the next middleware.
    """

    async def call_next() -> Any:
        return await inner

    try:
        return await middleware(context, call_next)
    finally:
        inner.close()  # a middleware may decide not to call it
