"""Tasks by filter: one static condition in SQL, to which every filter is a set of values.

PostgreSQL sees the values when it plans: what is null falls out of the plan, a status leaves only the partitions that can
hold it, and the latest come first along the indexes on id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, LiteralString

from octop.engine.call import Call, first_value, qualified, run
from octop.engine.failures import translated
from octop.engine.rows import Row
from octop.engine.selection import Selection, selection
from octop.model.filter_values import Filter

if TYPE_CHECKING:
    from octop.engine.connect import EngineConnection

PAGE_ROWS: Final = 1000
"""Rows that one statement of an export reads: no transaction, and so no snapshot, lives longer."""

COUNT_MAX: Final = 1_000_000

MATCHES: Final[LiteralString] = """
       (%(statuses)s::text[] is null or t.status = any (%(statuses)s::text[]))
   and (%(queue)s::text[] is null or t.queue = any (%(queue)s::text[]))
   and (%(type)s::text[] is null or t.task_type = any (%(type)s::text[]))
   and (%(lane)s::text[] is null or t.lane = any (%(lane)s::text[]))
   and (%(tenant)s::text[] is null or t.tenant = any (%(tenant)s::text[]))
   and (%(id_from)s::uuid is null or t.id >= %(id_from)s::uuid)
   and (%(id_to)s::uuid is null or t.id <= %(id_to)s::uuid)
   and (%(created_from)s::timestamptz is null or t.created_at >= %(created_from)s::timestamptz)
   and (%(created_before)s::timestamptz is null or t.created_at < %(created_before)s::timestamptz)
   and (%(scheduled_from)s::timestamptz is null or t.scheduled_at >= %(scheduled_from)s::timestamptz)
   and (%(scheduled_before)s::timestamptz is null or t.scheduled_at < %(scheduled_before)s::timestamptz)
   and (%(completed_from)s::timestamptz is null or t.completed_at >= %(completed_from)s::timestamptz)
   and (%(completed_before)s::timestamptz is null or t.completed_at < %(completed_before)s::timestamptz)
   and (%(others)s::jsonb is null or not exists (
     select from (
       select c.*, case c.field when 'payload' then t.payload when 'result' then t.result when 'meta' then t.meta end #> c.path as document,
              case c.field when 'queue' then t.queue when 'type' then t.task_type when 'lane' then t.lane when 'tenant' then t.tenant
                           when 'id' then t.id::text when 'error' then t.last_error end as words,
              case c.field when 'priority' then t.priority when 'attempt' then t.attempt when 'retries' then t.retry_count end as number,
              case c.field when 'created' then t.created_at when 'scheduled' then t.scheduled_at when 'due' then t.due_at
                           when 'started' then t.started_at when 'completed' then t.completed_at end as moment
         from jsonb_to_recordset(%(others)s::jsonb)
                as c (field text, path text[], pattern text, numbers nummultirange, moments tstzmultirange, negated boolean)) c
      where c.negated = coalesce(
        case
          when c.field = 'tag' then exists (select from unnest(t.tags) g where g ~ c.pattern)
          when c.field = 'worker' then t.worker_id::text ~ c.pattern
            or exists (select from octop_workers w where w.id = t.worker_id and (w.name ~ c.pattern or w.host ~ c.pattern))
          when c.path is not null then coalesce(c.document #>> '{}' ~ c.pattern, false)
            or case jsonb_typeof(c.document) when 'number' then c.numbers @> (c.document #>> '{}')::numeric end
          when c.moments is not null then c.moments @> c.moment
          when c.numbers is not null then c.numbers @> c.number::numeric
          else c.words ~ c.pattern
        end, false)))
   and (%(made_until)s::timestamptz is null or t.created_at <= %(made_until)s::timestamptz)
   and (%(below)s::uuid is null or t.id < %(below)s::uuid)
"""
"""What `octop_tasks t` must satisfy. Every value is a parameter; there is no text of a person in it."""


def _matching(text: LiteralString) -> LiteralString:
    return text.replace("$matches", MATCHES)


def now() -> Call[datetime]:
    """Read the database's clock."""
    return Call(
        "select to_json(_octop_now()) #>> '{}'", {}, lambda rows: datetime.fromisoformat(str(first_value(rows)))
    )


def selected(connection: EngineConnection, filter: Filter, *, made_by_now: bool = False) -> Selection:
    """Fix a filter in this moment: the database's clock is asked once, so that "an hour ago" is the same on all pages.

    Args:
        connection: Where the tasks are.
        filter: Any.
        made_by_now: No task that is made later is meant, whatever its id. Ids say nothing about it: clients may choose them,
            in no order, and what an act makes must not be met by its own next step.
    """
    return selection(filter, run(connection, now()), made_by_now=made_by_now)


_LIST: Final[LiteralString] = _matching(
    """
    select to_jsonb(x) from (
      select t.id, t.task_type, t.queue, t.lane, t.tenant, t.status, t.priority, t.scheduled_at, t.created_at,
             t.started_at, t.completed_at, t.attempt, t.retry_count, t.last_error, t.blocked_by, t.tags
        from octop_tasks t
       where $matches
       order by t.id desc
       limit %(limit)s::bigint) x
    """
)


def list_tasks(selection: Selection, limit: int = 50) -> Call[list[Row]]:
    """Read the latest tasks, the largest id first, without payload and result.

    The ids that the engine makes begin with their moment; those that a client chose need not.

    Args:
        selection: Which.
        limit: At most so many.
    """
    return Call(_LIST, {**selection.values, "limit": limit}, lambda rows: [row[0] for row in rows])


_COUNT: Final[LiteralString] = _matching(
    "select count(*) from (select from octop_tasks t where $matches limit %(limit)s::bigint) x"
)


def count_tasks(selection: Selection, most: int = COUNT_MAX) -> Call[int]:
    """Count tasks, up to a number: who gets that number knows that there may be more.

    Args:
        selection: Which.
        most: Where to stop.
    """
    return Call(_COUNT, {**selection.values, "limit": most}, lambda rows: int(first_value(rows)))


_IDS: Final[LiteralString] = _matching(
    "select t.id::text from octop_tasks t where $matches order by t.id desc limit %(limit)s::bigint"
)


def ids_below(selection: Selection, below: str | None, limit: int) -> Call[list[str]]:
    """Read one page of ids, the largest first.

    Args:
        selection: Which.
        below: Only ids smaller than this one: the last of the page before.
        limit: At most so many.
    """
    return Call(_IDS, {**selection.below(below), "limit": limit}, lambda rows: [row[0] for row in rows])


_ROWS: Final[LiteralString] = _matching(
    """
    select t.id::text,
           case when %(documents_as_text)s::boolean
                then to_jsonb(t) || jsonb_build_object('payload', t.payload::text, 'result', t.result::text, 'meta', t.meta::text,
                                                       'retry_policy', t.retry_policy::text)
                else to_jsonb(t) end::text
      from octop_tasks t
     where $matches order by t.id desc limit %(limit)s::bigint
    """
)


def stream_tasks(
    connection: EngineConnection, selection: Selection, *, limit: int | None = None, documents_as_text: bool = False
) -> Iterator[str]:
    """Yield tasks with all columns as JSON text, the largest id first; each once, as it was when its page was read.

    Memory is bounded by the largest row: pages by id of 1,000 rows, each a statement of its own, taken row by row.

    Args:
        connection: In autocommit.
        selection: Which.
        limit: At most so many; None = all.
        documents_as_text: payload, result, meta and retry_policy as text inside the JSON: exact for those who parse it.

    Raises:
        OctopError: The class that belongs to the SQLSTATE.
    """
    import psycopg  # noqa: PLC0415 - costs 100 ms, and whoever only describes calls needs none of it

    below: str | None = None
    left = limit
    while left is None or left > 0:
        wanted = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        values = {**selection.below(below), "limit": wanted, "documents_as_text": documents_as_text}
        found = 0
        try:
            with connection.cursor() as cursor:
                for task_id, text in cursor.stream(qualified(_ROWS, connection.octop_schema), values):
                    below, found = task_id, found + 1
                    yield text
        except psycopg.Error as error:
            raise translated(error) from error
        if found < wanted:
            return
        left = None if left is None else left - found


@dataclass(frozen=True, slots=True)
class Scope:
    """Which failures.

    Attributes:
        selection: Of these tasks; None = of all, also of those that are gone.
        since_seconds: Of attempts that ended within so many seconds; None = whenever.
        most: Of the latest so many ended attempts, at most 100,000.
        group_id: Of this group; None = of all.
    """

    selection: Selection | None = None
    since_seconds: float | None = None
    most: int = 10_000
    group_id: str | None = None

    def values(self, limit: int) -> dict[str, object]:
        """Return the values for the statements below."""
        return {
            **(self.selection or _EVERY).values,
            "filtered": self.selection is not None,
            "since": self.since_seconds,
            "most": self.most,
            "group_id": self.group_id,
            "limit": limit,
        }


_EVERY: Final = selection(Filter(), datetime.max.replace(tzinfo=UTC))

_FAILURES: Final[LiteralString] = """
      select f.* from octop_failed_attempts(_octop_now() - make_interval(secs => %(since)s::float8), %(most)s::integer) f
       where (%(group_id)s::text is null or f.group_id = %(group_id)s::text)
         and (not %(filtered)s::boolean or exists (select from octop_tasks t where t.id = f.task_id and $matches))
"""

_GROUPS: Final[LiteralString] = _matching(
    """
    with f as ($failures)
    select to_jsonb(x) || jsonb_build_object('first_seconds', extract(epoch from _octop_now() - x.first_at),
                                             'last_seconds', extract(epoch from _octop_now() - x.last_at))
      from (
      select f.group_id, f.task_type, f.pattern, count(*) as attempts, count(distinct f.task_id) as tasks, min(f.ended_at) as first_at,
             max(f.ended_at) as last_at, (array_agg(f.task_id order by f.ended_at desc))[1] as example_task_id,
             (array_agg(f.error_message order by f.ended_at desc))[1] as example_message
        from f group by f.group_id, f.task_type, f.pattern
       order by max(f.ended_at) desc limit %(limit)s::bigint) x
    """.replace("$failures", _FAILURES)
)


def failure_groups(scope: Scope, limit: int = 20) -> Call[list[Row]]:
    """Read failures that are alike, the latest first: the view `octop_failure_groups`, with a scope.

    Args:
        scope: Which failures.
        limit: At most so many groups.
    """
    return Call(_GROUPS, scope.values(limit), lambda rows: [row[0] for row in rows])


_FAILED: Final[LiteralString] = _matching(
    """
    with f as ($failures order by f.ended_at desc limit %(limit)s::bigint)
    select to_jsonb(f) || jsonb_build_object('status', (select k.status from octop_task(f.task_id) k)) from f order by f.ended_at desc
    """.replace("$failures", _FAILURES)
)


def failed_tasks_of(scope: Scope, limit: int) -> Call[list[Row]]:
    """Read the latest failures of a scope, each with the status of its task now (None = it is gone).

    Args:
        scope: Which failures.
        limit: At most so many.
    """
    return Call(_FAILED, scope.values(limit), lambda rows: [row[0] for row in rows])
