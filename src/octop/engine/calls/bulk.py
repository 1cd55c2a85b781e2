"""The acts of people and programs on many tasks at once. Each answers a verdict per id and writes the audit per task."""

from collections.abc import Sequence

from octop.engine.call import Call


def octop_cancel_many(ids: Sequence[str], reason: str = "") -> Call[list[tuple[str, str]]]:
    """Cancel tasks; answer id and verdict: cancelled, requested (it runs), success (nothing was done), not found.

    Args:
        ids: At most 10,000, better some hundreds.
        reason: Kept in the audit and as the last error.

    Raises:
        InvalidOptionError: More than 10,000 ids.
    """
    return Call(
        "select id::text, verdict from octop_cancel_many(%(ids)s::text[]::uuid[], %(reason)s::text)",
        {"ids": list(ids), "reason": reason},
        lambda rows: [(row[0], row[1]) for row in rows],
    )


def octop_retry_many(ids: Sequence[str]) -> Call[list[tuple[str, str, str | None]]]:
    """Try tasks again, now; answer id, verdict and the id that it runs under.

    Args:
        ids: At most 10,000, better some hundreds.

    Returns:
        Verdicts: retried, repeated (it had finished: a new task), running, blocked, exists (the last id is of the
        task that holds its unique key), not found. Where nothing else was done the last id is None.

    Raises:
        InvalidOptionError: More than 10,000 ids.
        InvalidTaskError: A finished task can not be enqueued any more; nothing was done.
    """
    return Call(
        "select id::text, verdict, retried_as::text from octop_retry_many(%(ids)s::text[]::uuid[])",
        {"ids": list(ids)},
        lambda rows: [(row[0], row[1], row[2]) for row in rows],
    )


def octop_delete_many(ids: Sequence[str]) -> Call[list[tuple[str, str]]]:
    """Delete frozen tasks for good; answer id and verdict: deleted, or its status (nothing was done), or not found.

    Args:
        ids: At most 10,000, better some hundreds.

    Raises:
        InvalidOptionError: More than 10,000 ids.
    """
    return Call(
        "select id::text, verdict from octop_delete_many(%(ids)s::text[]::uuid[])",
        {"ids": list(ids)},
        lambda rows: [(row[0], row[1]) for row in rows],
    )
