"""What happens to a task next, and why it does not run now, as the engine answers it (`octop_why`), for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Reason:
    """One thing that a task waits for, or what it does.

    Attributes:
        code: One word for programs.
        sentence: For people; it ends with what to do, where something can be done.
        detail: For programs.
    """

    code: str
    sentence: str
    detail: Mapping[str, Any]


def reasons(rows: Sequence[Mapping[str, Any]]) -> list[Reason]:
    """Return all that stands between a task and its next step, at least one; what decides comes first.

    Args:
        rows: The answer of `octop.engine.calls.octop_why`.
    """
    return [
        # errors end as they like: what to do after one gets a line of its own
        Reason(
            row["reason"],
            f"{row['message']}{chr(10) if chr(10) in row['message'] else ' '}{row['advice']}",
            row["detail"],
        )
        for row in rows
    ]


def next_step(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what happens next to a task, and who or what it waits for, in some sentences."""
    return " ".join(each.sentence for each in reasons(rows))
