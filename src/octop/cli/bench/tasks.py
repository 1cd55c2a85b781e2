"""The application of the bench: one task that does nothing, so that all that is measured is Octop."""

from octop import Octop

octop = Octop()

QUEUE = "bench"


@octop.task(queue=QUEUE, name="octop_bench.no_op")
async def no_op(n: int) -> None:
    """Do nothing."""
