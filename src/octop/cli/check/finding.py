"""A finding, as data: printed as text or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

IDS_MAX: Final = 10
ERROR: Final = "error"
INFO: Final = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        kind: ``annotation``, ``unknown_type``, ``unexpected_argument``, ``missing_argument``, ``wrong_value``,
            ``needs_newer_code``, ``worker_lacks_type`` or ``worker_knows_more``.
        task_type: Which one; empty where it is about several.
        what: What was found, one sentence.
        hint: What to do.
        count: How many tasks, or workers.
        ids: The first of them, at most ten.
        sampled: The count is that of the sample: there may be more.
        severity: ``error``, or ``info`` for what passes by itself.
    """

    kind: str
    task_type: str
    what: str
    hint: str = ""
    count: int = 0
    ids: Sequence[str] = ()
    sampled: bool = False
    severity: str = ERROR

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "task_type": self.task_type or None,
            "what": self.what,
            "hint": self.hint,
            "count": self.count,
            "sampled": self.sampled,
            "ids": list(self.ids),
        }
