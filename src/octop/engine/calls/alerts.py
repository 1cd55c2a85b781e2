"""Alerts: taken by workers that have a hook for them, acknowledged by people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from octop.engine.call import Call, Rows, first_value
from octop.engine.rows import Row, many, objects
from octop.model.alert import Alert

Channel = Literal["callable", "webhook"]


def _alerts(rows: Rows) -> list[Alert]:
    moments = ("at", "last_at", "taken_at")
    return [
        Alert(**{**row, **{name: datetime.fromisoformat(str(row[name])) for name in moments}}) for row in objects(rows)
    ]


def octop_take_alerts(worker_id: str, channel: Channel, most: int = 5) -> Call[list[Alert]]:
    """Take alerts of the last day that no worker has delivered on this channel; there is a minute for them.

    Args:
        worker_id: Who takes them.
        channel: ``callable`` or ``webhook``.
        most: At most so many, up to 100.
    """
    return Call(
        "select to_jsonb(a) from octop_take_alerts(%(worker_id)s::text::uuid, %(channel)s::text, %(most)s::integer) a",
        {"worker_id": worker_id, "channel": channel, "most": most},
        _alerts,
    )


def octop_alert_tried(worker_id: str, channel: Channel, id: int, error: str | None = None) -> Call[None]:
    """Say how the try of a taken alert ended: None = delivered; else it is tried again after 2, 4, 8 … 300 seconds."""
    return Call(
        "select octop_alert_tried(%(worker_id)s::text::uuid, %(channel)s::text, %(id)s::bigint, %(error)s::text)",
        {"worker_id": worker_id, "channel": channel, "id": id, "error": error},
        lambda _: None,
    )


def octop_ack_alerts(ids: Sequence[int] | None = None) -> Call[int]:
    """Acknowledge open alerts, None = all of them; answer how many were open."""
    return Call(
        "select octop_ack_alerts(%(ids)s::bigint[])",
        {"ids": None if ids is None else list(ids)},
        lambda rows: int(first_value(rows)),
    )


def list_alerts(limit: int = 100, *, with_acked: bool = False) -> Call[list[Row]]:
    """Read the latest alerts: the columns of ``octop_alerts``, ``seconds`` since the last time, and ``deliveries`` by channel.

    Args:
        limit: At most so many.
        with_acked: Also those that somebody has acknowledged.
    """
    return many(
        """
        select to_jsonb(a) || jsonb_build_object(
                 'seconds', extract(epoch from _octop_now() - a.last_at),
                 'deliveries', (select coalesce(jsonb_object_agg(d.channel, jsonb_build_object('tries', d.tries,
                                  'delivered_at', d.delivered_at, 'last_error', d.last_error)), '{}')
                                  from octop_alert_deliveries d where d.alert_id = a.id))
          from octop_alerts a where %(with_acked)s::boolean or a.acked_at is null
         order by a.last_at desc, a.id desc limit %(limit)s::integer
        """,
        {"limit": limit, "with_acked": with_acked},
    )
