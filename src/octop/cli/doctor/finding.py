"""A finding, as data: printed as text or JSON, compared in tests, listed in the docs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """How bad it is; compared by its number."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        """Return the word."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a cure.

    Attributes:
        place: ``psql`` or ``shell``.
        text: What is typed there.
    """

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding: a row of the table in `kinds`.

    Attributes:
        id: Stable: ``subject.word``.
        severity: How bad it is.
        title: What is found, for the docs.
        why: Why it matters.
        cure: How it is cured in general, for the docs; a finding holds the very command.
    """

    id: str
    severity: Severity
    title: str
    why: str
    cure: str

    @property
    def subject(self) -> str:
        """Return what it is about: the part before the dot."""
        return self.id.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        kind: Which kind.
        what: What was found here, one sentence.
        cure: What to run; may be empty where only a person can decide.
        detail: Lines that show it.
    """

    kind: Kind
    what: str
    cure: tuple[Step, ...] = ()
    detail: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "id": self.kind.id,
            "severity": str(self.kind.severity),
            "what": self.what,
            "why": self.kind.why,
            "cure": [{"in": step.place, "run": step.text} for step in self.cure],
            "detail": list(self.detail),
        }


def psql(*lines: str) -> tuple[Step, ...]:
    """Return steps for psql."""
    return tuple(Step("psql", line) for line in lines)


def shell(*lines: str) -> tuple[Step, ...]:
    """Return steps for the shell."""
    return tuple(Step("shell", line) for line in lines)
