"""Findings of `octop check` and `octop doctor`: as data, as JSON, as printed; colours on a terminal alone."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from octop.cli.output import clean, masked, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from octop.cli.output import Output

IDS_MAX: Final = 10
"""So many ids of tasks, or names of workers, stand in one finding."""
MARGIN: Final = 10
FINE: Final = "green"
DIM: Final = "bright_black"


class Severity(IntEnum):
    """How bad it is; compared by its number."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        """Return the word."""
        return self.name.lower()


COLOURS: Final = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


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
    """One kind of finding: a row of the table of its command.

    Attributes:
        id: Stable: ``subject.word``.
        severity: How bad it is.
        title: What is found, for the docs.
        why: Why it matters.
        cure: How it is cured in general, for the docs; a finding holds the very command, or says it in its hint.
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
        cure: What to run, line by line; empty where only a person can decide.
        hint: What else to do, in words: what can not be typed, or what depends on something that nobody could see.
        detail: Lines that show it.
        task_type: The task type that it is about; empty where it is about none, or several.
        count: How many tasks or workers; 0 where that is no question.
        ids: The ids of the tasks or names of the workers, at most ten; one id of many tasks is that of the oldest.
        sampled: The count is that of a sample: there may be more.
    """

    kind: Kind
    what: str
    cure: tuple[Step, ...] = ()
    hint: str = ""
    detail: tuple[str, ...] = ()
    task_type: str = ""
    count: int = 0
    ids: Sequence[str] = ()
    sampled: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "id": self.kind.id,
            "severity": str(self.kind.severity),
            "what": self.what,
            "why": self.kind.why,
            "cure": [{"in": step.place, "run": step.text} for step in self.cure],
            "hint": self.hint,
            "detail": list(self.detail),
            "task_type": self.task_type or None,
            "count": self.count,
            "ids": list(self.ids),
            "sampled": self.sampled,
        }


def psql(*lines: str) -> tuple[Step, ...]:
    """Return steps for psql."""
    return tuple(Step("psql", line) for line in lines)


def shell(*lines: str) -> tuple[Step, ...]:
    """Return steps for the shell."""
    return tuple(Step("shell", line) for line in lines)


def failing(findings: Iterable[Finding], *, strict: bool) -> list[Finding]:
    """Return the findings for which a command ends with another code than 0.

    Args:
        findings: All of them.
        strict: Let what is only worth knowing count as well.
    """
    least = Severity.INFO if strict else Severity.WARNING
    return [finding for finding in findings if finding.kind.severity >= least]


class Listing:
    """Prints findings below the names of their subjects."""

    def __init__(self, output: Output) -> None:
        """Keep where to print."""
        self._output = output
        self._subject = ""
        self._console = output.console() if sys.stdout.isatty() and not output.as_json else None

    def subject(self, subject: str) -> None:
        """Say what the next lines are about, unless it is the same as before."""
        if subject != self._subject:
            self._subject = subject
            self.say(subject.capitalize(), "bold")

    def fine(self, text: str) -> None:
        """Say that all is well with something."""
        self.say(f"  {'ok':<{MARGIN - 2}}{text}", FINE, head=MARGIN)

    def finding(self, finding: Finding) -> None:
        """Print one finding: what, where, why, what to do."""
        kind = finding.kind
        self.subject(kind.subject)
        self.say(f"  {kind.severity!s:<{MARGIN - 2}}{finding.what}  [{kind.id}]", COLOURS[kind.severity], head=MARGIN)
        indent = " " * MARGIN
        for line in (*finding.detail, *_counted(finding)):
            self.say(f"{indent}- {line}", DIM)
        self.say(f"{indent}{kind.why}", DIM)
        for step in finding.cure:
            self.say(f"{indent}{'$' if step.place == 'shell' else '=>'} {step.text}", "bold", wrap=False)
        if finding.hint:
            self.say(f"{indent}hint: {finding.hint}", "")

    def say(self, text: str, style: str, *, head: int = 0, wrap: bool = True) -> None:
        """Print one line; on a terminal wrapped below its beginning, and coloured: all of it, or its first characters."""
        text = masked(clean(text))
        if self._console is None:
            self._output.line(text)
            return
        from rich.text import Text  # noqa: PLC0415 - rich costs 60 ms, and pipes do not need it

        indent = " " * (head or len(text) - len(text.lstrip()))
        lines = textwrap.wrap(text, max(40, self._console.width - 1), subsequent_indent=indent) if wrap else [text]
        for index, line in enumerate(lines):
            shown = Text(line)
            if not head:
                shown.stylize(style)
            elif not index:
                shown.stylize(style, 0, head)
            self._console.print(shown, soft_wrap=True)


def _counted(finding: Finding) -> Iterator[str]:
    if finding.count and finding.ids:
        counted = number(finding.count, "worker" if finding.kind.subject == "workers" else "task")
        more = finding.count - len(finding.ids)
        oldest = more and len(finding.ids) == 1
        also = f" and {more:,} more" if more and not oldest else ""
        at_least = "at least " if finding.sampled else ""
        yield f"{at_least}{counted}: {'the oldest ' if oldest else ''}{', '.join(finding.ids)}{also}"
