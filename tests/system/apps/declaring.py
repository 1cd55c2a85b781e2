"""An application that declares limits of its queue."""

from octop.app import Octop

octop = Octop()
octop.queue("q", global_limit=3, rate="90/m")


@octop.task(queue="q")
async def noop() -> None: ...
