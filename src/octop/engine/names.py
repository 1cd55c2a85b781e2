"""The names that there are: for the shell's completion, and for who was given one that is not among them."""

from typing import LiteralString

from octop.engine.call import Call


def queue_names() -> Call[list[str]]:
    """Read the names of queues that a worker or an operator has named, at most 1,000."""
    return _names("select q.name from octop_queues q order by q.name limit 1000")


def task_type_names() -> Call[list[str]]:
    """Read the names of task types that a worker has declared, at most 1,000."""
    return _names("select y.name from octop_task_types y order by y.name limit 1000")


def config_keys() -> Call[list[str]]:
    """Read the keys of all settings."""
    return _names("select k.key from octop_config_keys() k order by k.key")


def _names(text: LiteralString) -> Call[list[str]]:
    return Call(text, {}, lambda rows: [str(row[0]) for row in rows])
