"""Holds as people read them."""

from octop.engine.call import Call
from octop.engine.rows import Row, many


def list_holds() -> Call[list[Row]]:
    """Read all holds that have not ended, the oldest first: the columns of ``octop_holds``, ``seconds``, ``ends_in_seconds`` and
    ``parked``, the tasks that wait for it, at most 10,000.
    """
    return many(
        """
        select to_jsonb(h) || jsonb_build_object(
                 'seconds', extract(epoch from _octop_now() - h.created_at),
                 'ends_in_seconds', extract(epoch from h.ends_at - _octop_now()),
                 'parked', (select count(*) from (select from octop_tasks t
                              where t.status = 'blocked' and t.blocked_by = 'hold:' || h.id limit 10000) x))
          from octop_holds h where coalesce(h.ends_at > _octop_now(), true) order by h.id
        """
    )
