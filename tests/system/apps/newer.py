"""The everyday application after a deploy: it knows one task type more."""

from tests.system.apps.everyday import octop


@octop.task(queue="q", max_retries=0)
async def added_later() -> str:
    return "ran"
