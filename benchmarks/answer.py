"""What a benchmark found: lines, one per contender, with the ratio; as text, Markdown and JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(slots=True)
class Line:
    """One measured thing.

    Args:
        name: The contender, or the case.
        value: The median of its samples, in the answer's unit.
        samples: One per round, in the order in which they were taken.
        note: What a reader must know about this line.
        more: Other figures of the same runs.
    """

    name: str
    value: float
    samples: list[float] = field(default_factory=list)
    note: str = ""
    more: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """The answer to one question.

    Args:
        question: In a few words.
        unit: Of the values.
        base: The name of the line that the others are compared with.
        better: Whether a large or a small value is good. The ratio says how many times better the base is.
        lines: In the order of printing.
        rule: How it was measured.
        absent: Who is missing, and why.
    """

    question: str
    unit: str
    base: str
    better: Literal["more", "less"] = "more"
    lines: list[Line] = field(default_factory=list)
    rule: str = ""
    absent: dict[str, str] = field(default_factory=dict)

    def ratio(self, line: Line) -> float | None:
        """Return how many times better the base is than this line; None where it can not be said."""
        base = next((each for each in self.lines if each.name == self.base), None)
        if base is None or not base.value or not line.value:
            return None
        return base.value / line.value if self.better == "more" else line.value / base.value

    def text(self) -> list[str]:
        """Return one line for each line, for a terminal."""
        width = max([len(line.name) for line in self.lines] + [12])
        found = [f"{self.question}  [{self.unit}; ratio: how many times better {self.base} is]"]
        for line in self.lines:
            ratio = self.ratio(line)
            shown = f"{ratio:8.2f} x" if ratio is not None else " " * 10
            more = "  ".join(f"{name} {number(value)}" for name, value in line.more.items())
            spread = f"[{number(min(line.samples))} to {number(max(line.samples))}]" if len(line.samples) > 1 else ""
            found.append(
                f"  {line.name:<{width}} {number(line.value):>10} {shown}  {spread}  {more}  {line.note}".rstrip()
            )
        found += [f"  {name:<{width}} not measured: {reason}" for name, reason in self.absent.items()]
        return found

    def markdown(self) -> list[str]:
        """Return a section of a page."""
        columns = list(dict.fromkeys(name for line in self.lines for name in line.more))
        head = ["", self.unit, "lowest to highest", f"{self.base} is better by", *columns, ""]
        found = [f"## {self.question}", "", *([self.rule, ""] if self.rule else [])]
        found += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for line in self.lines:
            ratio = self.ratio(line)
            spread = f"{number(min(line.samples))} to {number(max(line.samples))}" if len(line.samples) > 1 else ""
            cells = [line.name, number(line.value), spread, f"{ratio:.2f} ×" if ratio is not None else ""]
            cells += [number(line.more[name]) if name in line.more else "" for name in columns]
            found.append("| " + " | ".join([*cells, line.note]) + " |")
        if self.absent:
            found += [
                "",
                "Not measured: " + "; ".join(f"{name} ({reason})" for name, reason in self.absent.items()) + ".",
            ]
        return [*found, ""]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Answer":
        """Make an answer of what ``json`` returned."""
        lines = [Line(**{key: value for key, value in line.items() if key != "ratio"}) for line in data["lines"]]
        return cls(**{**data, "lines": lines})

    def json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        found = asdict(self)
        for line, data in zip(self.lines, found["lines"], strict=True):
            data["ratio"] = self.ratio(line)
        return found


def number(value: float) -> str:
    """Write a number as one reads it: no more digits than it is worth."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
