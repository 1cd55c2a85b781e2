"""Values of queues, limits among them, and lanes. Each change is written to the audit."""

import json
from collections.abc import Mapping

from octop.engine.call import Call
from octop.engine.rows import Row, many, only


def octop_set_queue(queue: str, values: Mapping[str, object]) -> Call[Row]:
    """Set values of a queue for all workers; those that are not named stay.

    Args:
        queue: The queue; its row is made if nobody has named it yet.
        values: By column of ``octop_queues``; None = what the application declared, else nothing.

    Returns:
        The values that hold now.

    Raises:
        InvalidOptionError: A value is out of bounds, or there is none of that name.
        InvalidNameError: The name is empty or longer than 200 characters.
    """
    return Call(
        "select octop_set_queue(%(queue)s::text, %(values)s::text::jsonb)",
        {"queue": queue, "values": json.dumps(dict(values))},
        only,
    )


def octop_lanes(queue: str, most: int = 1000) -> Call[list[Row]]:
    """Read the lanes of a queue that have unfinished tasks, by name.

    Args:
        queue: The queue.
        most: How many at most, 1 to 100,000.
    """
    return many(
        "select to_jsonb(l) || jsonb_build_object('queue', %(queue)s::text)"
        " from octop_lanes(%(queue)s::text, %(most)s::integer) l",
        {"queue": queue, "most": most},
    )


def octop_declare_queues(declarations: Mapping[str, Mapping[str, object]]) -> Call[None]:
    """Declare values of queues, as an application's code says them; what an operator changed stays.

    Args:
        declarations: By queue, as for ``octop_set_queue``.

    Raises:
        InvalidOptionError: A value is out of bounds.
        TryAgainError: Another open transaction has changed such a queue.
    """
    return Call(
        "select octop_declare_queues(%(declarations)s::text::jsonb)",
        {"declarations": json.dumps({name: dict(values) for name, values in declarations.items()})},
        lambda _: None,
    )
