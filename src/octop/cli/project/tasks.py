"""The tasks of this project: functions that `octop dev` (and later `octop worker`) runs.

Change a file and the worker starts again. In your own code a task is enqueued with
`await send_welcome.enqueue(user_id=42)`, or `send_welcome.enqueue_sync(user_id=42)` where
nothing awaits; `send_welcome.using(connection=…)` does it in a transaction of yours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import date

from octop import Octop, current

octop = Octop()  # which database, schema and application: octop.toml beside this file

log = logging.getLogger(__name__)


# `async def` runs on the worker's event loop: for what waits for others.
@octop.task(max_retries=5, timeout=30)
async def send_welcome(user_id: int) -> str:
    """Send a mail. An exception means: try again later, at most `max_retries` times."""
    await asyncio.sleep(0.1)
    log.info("attempt %d for user %d", current().attempt, user_id)
    return f"welcome, user {user_id}"


# `def` runs in a thread: for libraries that block.
@octop.task
def resize_image(path: str, width: int = 640) -> str:
    """Call a library that blocks, without stopping the others."""
    time.sleep(0.1)
    return f"{path}@{width}"


# `run_in="process"` runs in a child process: for what computes for long. It can be killed.
@octop.task(run_in="process", timeout=60)
def monthly_report(month: date) -> dict[str, int]:
    """Compute. The payload is JSON; `month` is a date, because the annotation says so."""
    total = sum(number * number % 7 for number in range(100_000))
    return {"year": month.year, "total": total}
