"""Holds as the application sees them: orders not to start tasks of a queue, a task type, a tenant or a lane."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from octop.model.errors import InvalidOptionError
from octop.model.options import checked_delay, checked_moment, checked_name

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.pools import Pools

HoldKind = Literal["queue", "task_type", "tenant", "lane"]
KINDS: Final[dict[HoldKind, str]] = {
    "queue": "a queue",
    "task_type": "a task type",
    "tenant": "a tenant",
    "lane": "a lane",
}
HOLD_DAYS_MAX: Final = 3_650
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Holds:
    """The holds of an application's database, as ``octop.holds``. Each act has a form to be awaited, and one ending in ``_sync``.

    A hold is a row: from its commit nothing of its target starts on any worker; what runs runs on, and what waits waits without using a
    try. Who gave or lifted one stands in the audit. The role needs the operator's rights.

    Args:
        pools: Connections of the application.
    """

    __slots__ = ("_pools",)

    def __init__(self, pools: "Pools") -> None:
        """Keep the connections; nothing is asked yet."""
        self._pools = pools

    async def add(
        self,
        kind: HoldKind,
        target: str,
        *,
        queue: str = "",
        tenant: str = "",
        reason: str = "",
        ends_in: float | timedelta | None = None,
        ends_at: datetime | None = None,
    ) -> bool:
        """Start no more tasks of a queue, a task type, a tenant or a lane, on all workers.

        Args:
            kind: ``queue`` (as ``octop queues pause``), ``task_type`` (as ``octop types freeze``), ``tenant`` or ``lane``.
            target: Its name, 1 to 200 characters.
            queue: Of a lane: the queue in which it lies.
            tenant: Of a lane: whose it is. Empty = of no tenant.
            reason: Why, for the next person; at most 1,000 characters are kept.
            ends_in: It ends by itself after so long on the database's clock: seconds or a timedelta, more than 0 and at most 3,650 days.
            ends_at: It ends by itself then: an aware datetime to come. None for both = when somebody lifts it.

        Returns:
            False where such an order was there already: the first one stays, with its reason and end.

        Raises:
            InvalidNameError: A name is empty or too long, or a lane has no queue.
            InvalidOptionError: There is no such kind, or an option does not belong to it; both ends are given, or one is out of bounds.
            InvalidTimeError: ``ends_at`` is naive or has passed.
            NotPermittedError: The role is no operator.

        Examples:
            >>> await octop.holds.add("tenant", "acme", reason="unpaid", ends_in=7200)  # doctest: +SKIP
        """
        return await self._pools.run_async(_add_call(kind, target, queue, tenant, reason, ends_in, ends_at))

    def add_sync(
        self,
        kind: HoldKind,
        target: str,
        *,
        queue: str = "",
        tenant: str = "",
        reason: str = "",
        ends_in: float | timedelta | None = None,
        ends_at: datetime | None = None,
    ) -> bool:
        """Start no more tasks of a queue, a task type, a tenant or a lane; see ``add``."""
        return self._pools.run(_add_call(kind, target, queue, tenant, reason, ends_in, ends_at))

    async def lift(self, kind: HoldKind, target: str, *, queue: str = "", tenant: str = "") -> bool:
        """Start tasks of a target again, whatever held it; those that waited come back as workers have room, the oldest first.

        Args:
            kind: As for ``add``.
            target: Its name.
            queue: Of a lane: the queue in which it lies.
            tenant: Of a lane: whose it is.

        Returns:
            False where nothing was held.

        Raises:
            InvalidNameError: As for ``add``.
            InvalidOptionError: As for ``add``.
            NotPermittedError: The role is no operator.
        """
        return await self._pools.run_async(_lift_call(kind, target, queue, tenant))

    def lift_sync(self, kind: HoldKind, target: str, *, queue: str = "", tenant: str = "") -> bool:
        """Start tasks of a target again; see ``lift``."""
        return self._pools.run(_lift_call(kind, target, queue, tenant))

    async def list(self) -> Sequence[dict[str, Any]]:
        """Return the holds that hold now, the oldest first, as ``octop holds list --json``: what, who, since when, why, how many wait."""
        return await self._pools.run_async(_list_call())

    def list_sync(self) -> Sequence[dict[str, Any]]:
        """Return the holds that hold now; see ``list``."""
        return self._pools.run(_list_call())


def _checked_target(kind: object, target: object, queue: object, tenant: object) -> tuple[HoldKind, str, str, str]:
    for known, word in KINDS.items():
        if kind == known:
            return (
                known,
                checked_name(target, word),
                checked_name(queue, "a queue", empty=True),
                checked_name(tenant, "a tenant", empty=True),
            )
    message = f"kind is one of {', '.join(KINDS)}, not {kind!r}"
    raise InvalidOptionError(message)


def _add_call(
    kind: object,
    target: object,
    queue: object,
    tenant: object,
    reason: str,
    ends_in: float | timedelta | None,
    ends_at: datetime | None,
) -> "Call[bool]":
    from octop.engine import calls  # noqa: PLC0415 - only when it is needed

    known, target, queue, tenant = _checked_target(kind, target, queue, tenant)
    if ends_in is not None and ends_at is not None:
        message = "ends_in and ends_at exclude each other"
        raise InvalidOptionError(message, hint="Give the time that it lasts, or the moment of its end.")
    seconds = None if ends_in is None else checked_delay(ends_in, "ends_in", days_max=HOLD_DAYS_MAX)
    if seconds == 0:
        message = "ends_in is more than 0"
        raise InvalidOptionError(message, hint="Leave it out for a hold that lasts until somebody lifts it.")
    at = None if ends_at is None else checked_moment(ends_at, "ends_at")
    return calls.octop_hold(
        known, target, queue=queue, tenant=tenant, reason=reason, ends_at=at, ends_in_seconds=seconds
    )


def _lift_call(kind: object, target: object, queue: object, tenant: object) -> "Call[bool]":
    from octop.engine import calls  # noqa: PLC0415 - likewise

    known, target, queue, tenant = _checked_target(kind, target, queue, tenant)
    return calls.octop_lift(known, target, queue=queue, tenant=tenant)


def _list_call() -> "Call[list[dict[str, Any]]]":
    from octop.engine.calls.holds import list_holds  # noqa: PLC0415 - likewise

    return list_holds()
