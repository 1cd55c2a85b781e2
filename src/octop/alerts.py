"""Alerts as the application sees them: read and acknowledged. Who is told of new ones: ``octop.on_alert``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from octop.model.errors import InvalidOptionError
from octop.model.options import checked_whole

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.pools import Pools

ID_MAX: Final = 2**63 - 1
LIST_MAX: Final = 10_000
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Alerts:
    """The alerts of an application's database, as ``octop.alerts``. Each act has a form to be awaited, and one ending in ``_sync``.

    Args:
        pools: Connections of the application.
    """

    __slots__ = ("_pools",)

    def __init__(self, pools: "Pools") -> None:
        """Keep the connections; nothing is asked yet."""
        self._pools = pools

    async def list(self, *, with_acked: bool = False, limit: int = 100) -> Sequence[dict[str, Any]]:
        """Return the open alerts, the latest first, as ``octop alerts list --json``.

        Args:
            with_acked: Also those that somebody has acknowledged.
            limit: At most so many, 1 to 10,000.

        Raises:
            InvalidOptionError: The limit is out of bounds.
        """
        return await self._pools.run_async(_list_call(limit, with_acked=with_acked))

    def list_sync(self, *, with_acked: bool = False, limit: int = 100) -> Sequence[dict[str, Any]]:
        """Return the open alerts; see ``list``."""
        return self._pools.run(_list_call(limit, with_acked=with_acked))

    async def ack(self, *ids: int, every: bool = False) -> int:
        """Acknowledge alerts: what happens again makes a new one. Who did it stands in the row. The role needs the operator's rights.

        Args:
            *ids: Of the alerts, as ``Alert.id`` has them.
            every: True, without ids = all that are open.

        Returns:
            How many of them were open.

        Raises:
            InvalidOptionError: Neither ids nor ``every``, both, or what is no id.
            NotPermittedError: The role is no operator.

        Examples:
            >>> await octop.alerts.ack(17)  # doctest: +SKIP
        """
        return await self._pools.run_async(_ack_call(ids, every=every))

    def ack_sync(self, *ids: int, every: bool = False) -> int:
        """Acknowledge alerts; see ``ack``."""
        return self._pools.run(_ack_call(ids, every=every))


def _list_call(limit: int, *, with_acked: bool) -> "Call[list[dict[str, Any]]]":
    from octop.engine.calls.alerts import list_alerts  # noqa: PLC0415 - only when it is needed

    return list_alerts(checked_whole(limit, "limit", 1, LIST_MAX), with_acked=with_acked)


def _ack_call(ids: Sequence[int], *, every: bool) -> "Call[int]":
    from octop.engine import calls  # noqa: PLC0415 - likewise

    if bool(ids) == every:
        message = "name the ids of alerts, or every=True, and not both"
        raise InvalidOptionError(message)
    return calls.octop_ack_alerts(None if every else [checked_whole(id, "the id of an alert", 1, ID_MAX) for id in ids])
