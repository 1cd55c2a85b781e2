"""The hot path: the exchange, and going to sleep without missing anything."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, LiteralString

from octop.engine.array_text import array_text, plain_array_text
from octop.engine.call import Call, Rows, first_value
from octop.model.task import Claimed, Exchanged, Outcome, Settled, Success

_ANSWER: Final = (
    "select verdict, id::text, attempt, claim_id::text, tenant, queue, lane, task_type, payload, priority, retry_count, max_retries,"
    " timeout_seconds, scheduled_at::text, due_at::text, isolated, tags, meta from "
)
_EXCHANGE: Final[LiteralString] = (
    _ANSWER
    + "octop_exchange(%(worker_id)s::text::uuid, %(queues)s::text::text[], %(wanted)s::text::integer[], %(task_types)s::text::text[],"
    " %(lanes)s::text::text[],"
    " %(done_ids)s::text::uuid[], %(done_attempts)s::text::integer[], %(done_claims)s::text::uuid[], %(done_results)s::text::text[],"
    " %(outcomes)s::text::jsonb, %(careful)s::boolean, %(awake)s::boolean, %(versions)s::text::integer[],"
    " %(marks_at)s::text::timestamptz[], %(marks_id)s::text::uuid[])"
)
# A look, with nothing to hand in. The database reads the text of a statement anew each time, and whoever waits for a task waits for it.
_CLAIM: Final[LiteralString] = (
    _ANSWER
    + "octop_exchange(%(worker_id)s::text::uuid, %(queues)s::text::text[], %(wanted)s::text::integer[], %(task_types)s::text::text[],"
    " %(lanes)s::text::text[], careful => %(careful)s::boolean, awake => %(awake)s::boolean, versions => %(versions)s::text::integer[],"
    " marks_at => %(marks_at)s::text::timestamptz[], marks_id => %(marks_id)s::text::uuid[])"
)


def _exchanged(rows: Rows) -> Exchanged:
    tasks: list[Claimed] = []
    settled: list[Settled] = []
    lanes: dict[str, str] = {}
    parked = 0
    make = Claimed._make
    for row in rows:
        verdict = row[0]
        if verdict == "run":
            tasks.append(make(row[1:]))
        elif verdict == "lane":
            lanes[row[5]] = row[6]
        elif verdict == "parked":
            parked += row[2]
        else:
            settled.append(Settled(row[1], verdict))
    return Exchanged(tasks, settled, lanes, parked)


def _outcome(outcome: Outcome) -> dict[str, object]:
    fence = outcome.fence
    found: dict[str, object] = {
        "id": fence.id,
        "attempt": fence.attempt,
        "claim_id": fence.claim_id,
        "outcome": outcome.kind.value,
    }
    for name in ("error_class", "error_message", "traceback", "delay_seconds"):
        value = getattr(outcome, name)
        if value is not None:
            found[name] = value
    if outcome.final:
        found["final"] = True
    if outcome.mro:
        found["mro"] = outcome.mro
    return found


def _marks(queues: Iterable[str], marks: Mapping[str, Mapping[int, tuple[str, str]]] | None, which: int) -> str | None:
    if not marks:
        return None
    found = [marks.get(queue, {}).get(priority) for queue in queues for priority in range(10)]
    return array_text([None if mark is None else mark[which] for mark in found])


def octop_exchange(
    worker_id: str,
    *,
    wanted: Mapping[str, int],
    task_types: Sequence[str],
    lanes_after: Mapping[str, str] | None = None,
    successes: Sequence[Success] = (),
    outcomes: Sequence[Outcome] = (),
    careful: bool = False,
    awake: bool = False,
    versions: Sequence[int] | None = None,
    marks: Mapping[str, Mapping[int, tuple[str, str]]] | None = None,
) -> Call[Exchanged]:
    """Hand in outcomes and get tasks: one round trip, one commit.

    Args:
        worker_id: This worker.
        wanted: By queue, how many tasks may be started at once (0 to 10,000).
        task_types: All that this worker knows.
        lanes_after: By queue, what the last exchange answered in ``lanes``.
        successes: Plain successes.
        outcomes: Every other end.
        careful: After TryAgainError send the same call again with True: it skips rows that others hold.
        awake: Clear what ``octop_sleep`` said.
        versions: Of the code for each of task_types, in the same order; None = all are at 1.
        marks: By queue and priority, ``scheduled_at`` and id of the last task that this worker has claimed there: only what lies
            behind is looked at, so a task that was committed late is not found. Leave them out at least once a second, and when
            fewer tasks came back than were wanted. Lanes have none.

    Returns:
        The tasks to be started, answers to outcomes, and where the walk over lanes stands.

    Raises:
        TryAgainError: Somebody held a row for longer than 50 ms; nothing was done.
        InvalidPayloadError: A result is not JSON; nothing was done: hand outcomes in one by one.
        IsolationLevelError: The connection is not READ COMMITTED.
    """
    lanes = lanes_after or {}
    return Call(
        _EXCHANGE if successes or outcomes else _CLAIM,
        {
            "worker_id": worker_id,
            "queues": array_text(list(wanted)),
            "wanted": plain_array_text(wanted.values()),
            "task_types": array_text(task_types),
            "lanes": array_text([lanes.get(queue) for queue in wanted]) if lanes else None,
            "done_ids": plain_array_text([success.fence.id for success in successes]),
            "done_attempts": plain_array_text([success.fence.attempt for success in successes]),
            "done_claims": plain_array_text([success.fence.claim_id for success in successes]),
            "done_results": array_text([success.result for success in successes]),
            "outcomes": json.dumps([_outcome(outcome) for outcome in outcomes]) if outcomes else None,
            "careful": careful,
            "awake": awake,
            "versions": None if versions is None else plain_array_text(versions),
            "marks_at": _marks(wanted, marks, 0),
            "marks_id": _marks(wanted, marks, 1),
        },
        _exchanged,
    )


def octop_sleep(worker_id: str, queues: Sequence[str], seconds: float) -> Call[float]:
    """Say that this worker sleeps, and learn how long it may.

    The order that misses nothing: an exchange came back empty → ``octop_sleep`` (commit) → ``octop_doubt`` → an exchange
    once more → if still empty, wait. While ``octop_doubtful`` says True, look again with an exchange after 5, 10, 20 … 250 ms.

    Args:
        worker_id: This worker.
        queues: All that it serves.
        seconds: The longest sleep, ``scheduler.interval_seconds``.

    Returns:
        Seconds until the next due time of these queues, at most the given ones.
    """
    return Call(
        "select octop_sleep(%(worker_id)s::text::uuid, %(queues)s::text[], %(seconds)s::double precision)",
        {"worker_id": worker_id, "queues": list(queues), "seconds": seconds},
        lambda rows: float(first_value(rows)),
    )


def octop_doubt() -> Call[str]:
    """Take the transaction id below which somebody may have missed that we sleep: between sleep and second look."""
    return Call("select octop_doubt()::text", {}, lambda rows: str(first_value(rows)))


def octop_doubtful(doubt: str) -> Call[bool]:
    """Ask whether a transaction is still open that may have missed that we sleep; ask before the look that follows."""
    return Call("select octop_doubtful(%(doubt)s::text::xid8)", {"doubt": doubt}, lambda rows: bool(first_value(rows)))
