"""Queues as the application sees them: set their limits, and look at what is used."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from octop.model.options import checked_name
from octop.model.rates import rate_per_second

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.pools import Pools

__tracebackhide__ = True  # a test that fails in here shows the line that called


class _Unset:
    """The type of ``UNSET``: leave it as it is."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
_RATES: Final = ("rate", "lane_rate")


class Queues:
    """The queues of an application's database, as ``octop.queues``. Each act has a form to be awaited, and one ending in ``_sync``.

    What is set holds on all workers from the next claim on, wins over what applications declare until it is taken back, and stands in
    the audit. The role needs the operator's rights.

    Args:
        pools: Connections of the application.
    """

    __slots__ = ("_pools",)

    def __init__(self, pools: "Pools") -> None:
        """Keep the connections; nothing is asked yet."""
        self._pools = pools

    async def set(
        self,
        queue: str,
        *,
        worker_limit: int | None | _Unset = UNSET,
        global_limit: int | None | _Unset = UNSET,
        lane_limit: int | None | _Unset = UNSET,
        rate: str | float | None | _Unset = UNSET,
        burst: int | None | _Unset = UNSET,
        lane_rate: str | float | None | _Unset = UNSET,
        lane_burst: int | None | _Unset = UNSET,
        ordered: bool | None | _Unset = UNSET,
        lane_weights: Mapping[str, int] | None | _Unset = UNSET,
        ageing_seconds: float | None | _Unset = UNSET,
        windows: Sequence[Mapping[str, object]] | None | _Unset = UNSET,
        watermark_high: int | None | _Unset = UNSET,
        watermark_low: int | None | _Unset = UNSET,
        critical: bool | None | _Unset = UNSET,
        keep_success_days: int | None | _Unset = UNSET,
        keep_cancelled_days: int | None | _Unset = UNSET,
        keep_frozen_days: int | None | _Unset = UNSET,
    ) -> dict[str, Any]:
        """Set limits and rules of a queue; what is not named stays, None takes back to what was declared, else to none.

        Args:
            queue: Its name, 1 to 200 characters.
            worker_limit: Tasks at once in each worker process, 0 to 10,000.
            global_limit: Tasks at once on all workers together, 0 to 1,000,000.
            lane_limit: Tasks at once of each lane of each tenant, 1 to 1,000,000.
            rate: Starts of all workers together: ``"100/m"``, ``"5/10s"``, or a number a second, up to 10,000 a second.
            burst: Starts that an idle queue may make at once, 1 to 1,000,000. None = those of one second, at least 1.
            lane_rate: Starts of each lane, as rate.
            lane_burst: Starts that an idle lane may make at once, as burst.
            ordered: Tasks of a lane run one at a time, in the order of enqueue.
            lane_weights: By lane, how many tasks it gets each time its turn comes, 1 to 1,000; others 1.
            ageing_seconds: Each such span of waiting is worth one step of priority, 0.001 to 31,536,000.
            windows: Limits by time of day: mappings of from, until, timezone, days (1 = Monday) and limits; rates a second.
            watermark_high: Due tasks that wait, 1 to 100,000,000, at which the queues that are not critical are held.
            watermark_low: At so many they go on, 0 to watermark_high - 1. None = half of it.
            critical: False = it is held while another queue stands at its watermark.
            keep_success_days: Its successful tasks are kept so many days, 1 to 400. None = ``history.success_days``.
            keep_cancelled_days: Its cancelled tasks, likewise. None = ``history.cancelled_days``.
            keep_frozen_days: Its frozen tasks are deleted so many days after their last start, 1 to 36,500; of an ordered queue never.
                None = ``history.frozen_days``.

        Returns:
            All values that hold now, by their names.

        Raises:
            InvalidNameError: The name is empty or longer than 200 characters.
            InvalidOptionError: A value is out of bounds; nothing was set.
            NotPermittedError: The role is no operator.

        Examples:
            >>> await octop.queues.set("mail", global_limit=20, rate="100/m", burst=10)  # doctest: +SKIP
        """
        given = {key: value for key, value in locals().items() if key not in {"self", "queue"}}
        return await self._pools.run_async(_set_call(queue, given))

    def set_sync(self, queue: str, **values: Any) -> dict[str, Any]:
        """Set limits and rules of a queue; see ``set``.

        Args:
            queue: Its name.
            values: As for ``set``.

        Raises:
            TypeError: There is no value of that name.
        """
        return self._pools.run(_set_call(queue, values))

    async def show(self, queue: str) -> dict[str, Any] | None:
        """Return all about a queue, as ``octop queues show --json``: values, who set each, limits that hold now and what is used.

        Args:
            queue: Its name.

        Returns:
            None where nobody knows it.
        """
        return _told(await self._pools.run_async(_show_call(queue)))

    def show_sync(self, queue: str) -> dict[str, Any] | None:
        """Return all about a queue; see ``show``."""
        return _told(self._pools.run(_show_call(queue)))

    async def list(self) -> Sequence[dict[str, Any]]:
        """Return all queues, as ``octop queues list --json``: what waits, values, who set each, limits that hold now, what is used."""
        return [_with_origins(row) for row in await self._pools.run_async(_list_call())]

    def list_sync(self) -> Sequence[dict[str, Any]]:
        """Return all queues; see ``list``."""
        return [_with_origins(row) for row in self._pools.run(_list_call())]


def queue_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a queue as the database takes them: those that are set, rates a second.

    Args:
        given: By name, as for ``Queues.set``.

    Raises:
        InvalidOptionError: A rate is none.
        TypeError: There is no value of that name, or it is no JSON.
    """
    if unknown := given.keys() - (Queues.set.__kwdefaults__ or {}).keys():
        message = f"a queue has no value named {min(unknown)}"
        raise TypeError(message)
    values = {key: value for key, value in given.items() if not isinstance(value, _Unset)}
    for key in _RATES:
        if values.get(key) is not None:
            values[key] = rate_per_second(values[key])
    json.dumps(values, allow_nan=False)  # what is no JSON is refused here
    return values


def _set_call(queue: str, given: Mapping[str, Any]) -> "Call[dict[str, Any]]":
    from octop.engine import calls  # noqa: PLC0415 - only when it is needed

    return calls.octop_set_queue(checked_name(queue, "a queue"), queue_values(given))


def _show_call(queue: str) -> "Call[dict[str, Any] | None]":
    from octop.engine import steering  # noqa: PLC0415 - likewise

    return steering.queue(queue)


def _list_call() -> "Call[list[dict[str, Any]]]":
    from octop.engine import steering  # noqa: PLC0415 - likewise

    return steering.list_queues(with_origins=True)


def _told(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else _with_origins(row)


def _with_origins(row: dict[str, Any]) -> dict[str, Any]:
    from octop.engine import steering  # noqa: PLC0415 - likewise

    return steering.with_origins(row)
