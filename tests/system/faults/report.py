"""What came of runs, written for people: a table of each, the evidence of what it broke, and a page that can be kept."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.system.faults.checker import Violation
from tests.system.faults.excuses import excused, forgotten
from tests.system.faults.history import History
from tests.system.faults.plan import Step

SUBJECTS_MAX = 10
NEAR = timedelta(seconds=5)
NAME_WIDTH = 22


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    seed: int
    variant: str
    seconds: float
    plan: Sequence[Step]
    history: History
    violations: Sequence[Violation]
    rest_seconds: float
    starts: int

    def written(self) -> str:
        """Write it as a table, with the evidence of all violations."""
        history = self.history
        lines = [
            ("faults struck", counted(struck(self))),
            ("transactions", counted(Counter(each.ending for each in history.batches))),
            ("tasks", counted(Counter(row.status for row in history.rows))),
            ("attempts", counted(Counter(f"{each.place} {each.ending}" for each in history.runs))),
            ("no plain successes", counted(Counter(each.outcome for each in history.attempts))),
            ("excused overlaps", counted(excused(history))),
            ("cancels", counted(Counter(each.verdict for each in history.cancels))),
            ("supervisor starts", str(self.starts)),
            ("came to rest in", f"{self.rest_seconds:.1f} s"),
            *(("failover", each) for each in forgotten(history)),
            ("violations", str(len(self.violations))),
        ]
        text = "\n".join(f"{name:<{NAME_WIDTH}} {value}" for name, value in lines)
        return "\n".join([text, *self.evidence()])

    def evidence(self) -> list[str]:
        """List the violations, and what was recorded of the first tasks that they name."""
        subjects = list(dict.fromkeys(each.subject for each in self.violations))[:SUBJECTS_MAX]
        return [
            *(f"  {each}" for each in self.violations),
            *(line for subject in subjects for line in evidence_of(self.history, subject)),
        ]


def struck(report: Report) -> Counter[str]:
    """Count the faults that have struck, by name."""
    return Counter(each.fault for each in report.history.troubles if each.hit)


def evidence_of(history: History, task_id: str) -> list[str]:
    """List all that was recorded of a task, in the order of time."""
    moments: list[tuple[datetime, str]] = []
    for run in history.runs_of.get(task_id, ()):
        who = f"attempt {run.attempt} claim {run.claim_id[:8]} in {run.place}"
        moments.append((run.began_at, f"{who} began"))
        if run.ended_at is not None:
            moments.append((run.ended_at, f"{who} {run.ending}"))
    moments += [
        (each.ended_at, f"attempt {each.attempt} claim {str(each.claim_id)[:8]} recorded as {each.outcome}")
        for each in history.attempts_of.get(task_id, ())
    ]
    if not moments:
        return []
    first, last = min(moments)[0], max(moments)[0]
    for trouble in history.troubles:
        if trouble.began_at <= last and trouble.ended_at >= first - NEAR:
            moments.append((trouble.began_at, f"[{trouble.fault} begins: {trouble.hit}]"))
            moments.append((trouble.ended_at, f"[{trouble.fault} ends]"))
    return [f"    {task_id}:", *(f"      {at:%H:%M:%S.%f} {what}" for at, what in sorted(moments))]


def counted(counts: Counter[str]) -> str:
    """Write counts, the largest first, after their sum."""
    return f"{counts.total()}" + (": " if counts else "") + ", ".join(f"{n} {name}" for name, n in counts.most_common())


COLUMNS = ("seed", "variant", "seconds", "faults", "tasks", "attempts", "excused overlaps", "violations")


def _figures(report: Report) -> tuple[int, int, int, int, int]:
    history = report.history
    return (
        struck(report).total(),
        len(history.rows),
        len(history.runs),
        excused(history).total(),
        len(report.violations),
    )


def summary(reports: Sequence[Report]) -> str:
    """Write a table with a line for each run, and their sum."""
    rows = [[str(each.seed), each.variant, f"{each.seconds:g}", *map(str, _figures(each))] for each in reports]
    sums = [sum(column) for column in zip(*map(_figures, reports), strict=True)]
    rows.append(["all", "", f"{sum(each.seconds for each in reports):g}", *map(str, sums)])
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    lines = [COLUMNS, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def page(reports: Sequence[Report], postgres: int) -> str:
    """Write what is kept of runs: a page of Markdown."""
    names = sum((struck(each) for each in reports), Counter[str]())
    excuses = sum((excused(each.history) for each in reports), Counter[str]())
    lines = [
        f"# Faults, {datetime.now(UTC):%Y-%m-%d}",
        "",
        f"PostgreSQL {postgres}, Python {platform.python_version()}, {os.cpu_count()} cores. Each run is drawn from its seed and variant alone:",
        "`python -m tests.system.faults --seed SEED --variant VARIANT --seconds SECONDS`.",
        "",
        summary(reports),
        "",
        f"Faults that struck: {counted(names)}.",
        "",
        f"Overlaps of two starts that are allowed, by their reason: {counted(excuses)}.",
        "",
        *(f"Failover of seed {each.seed}: {said}.\n" for each in reports for said in forgotten(each.history)),
        "## Violations",
        "",
    ]
    broken = [each for each in reports if each.violations]
    for each in broken:
        lines += [f"Seed {each.seed}, {each.variant}:", "", "```", *each.evidence(), "```", ""]
    if not broken:
        lines += ["None.", ""]
    return "\n".join(lines)
