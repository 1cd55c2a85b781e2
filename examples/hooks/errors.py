# errors.py: each failed attempt goes to an error tracker, with its traceback and the task that failed
import asyncio
import json
import os
import traceback
from urllib.request import Request, urlopen

from octop import Context, Octop

octop = Octop()


def report(event: dict[str, object]) -> None:
    body = json.dumps(event).encode()
    request = Request(os.environ["ERRORS_URL"], body, {"Content-Type": "application/json"})
    urlopen(request, timeout=5).close()


@octop.on_failure
async def tell_tracker(context: Context, error: BaseException) -> None:
    # With the Sentry SDK these are two lines: sentry_sdk.set_context("task", {...}); sentry_sdk.capture_exception(error)
    event = {
        "error": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
        "task_id": str(context.task_id),
        "task_type": context.task_type,
        "attempt": context.attempt,
        "last_attempt": context.is_last_attempt,
    }
    await asyncio.to_thread(report, event)  # hooks run on the worker's event loop: nothing in them may block


@octop.task(max_retries=0)
async def charge(amount: int) -> None:
    raise ConnectionError(f"the bank does not answer, {amount} not charged")
