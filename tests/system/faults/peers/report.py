"""The table to print, and the page that can be kept."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from benchmarks.report import commit, machine
from tests.system.faults.peers.brokers import NOBODY
from tests.system.faults.peers.contenders import Contender
from tests.system.faults.peers.judge import story
from tests.system.faults.peers.run import Report
from tests.system.faults.peers.timing import LEASE_SECONDS, REST_SECONDS, SWEEP_SECONDS
from tests.system.faults.report import counted

STORIES_MAX = 5
HEAD = (
    "",
    "committed",
    "lost",
    "stuck as running",
    "stuck as waiting",
    "started again",
    "ran to the end twice",
    "two at once",
    "two at once, one suspended",
    "ran though rolled back",
    "at rest after",
)
TOLD = {
    "lost": "lost",
    "stuck_running": "stuck as running",
    "stuck_waiting": "stuck as waiting",
    "at_once": "two at once",
    "ran_all_the_same": "ran though rolled back",
}
"""Of which keys the page tells the story."""


def table(reports: Sequence[Report], failed: Mapping[str, str]) -> str:
    """Write the table in Markdown, the seeds of a contender added up."""
    contenders: dict[str, list[Report]] = {}
    for each in reports:
        contenders.setdefault(each.contender.name, []).append(each)
    lines = [_row(HEAD), _row(["---"] * len(HEAD)), *(_row(_cells(found)) for found in contenders.values())]
    lines += [f"\nNot measured: {name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines)


def _cells(reports: Sequence[Report]) -> list[str]:
    contender = reports[0].contender
    total: Counter[str] = Counter()
    for each in reports:
        total.update(each.fare.counts())
    causes = [(total["unsent"], "never sent"), (total["given_up"], "given up")]
    why = ", ".join(f"{count} {cause}" for count, cause in causes if count)
    stuck = total["stuck_running"] + total["stuck_waiting"]
    return [
        contender.packages.split()[0].replace("==", " "),
        str(total["committed"]),
        f"{total['lost']}{f' ({why})' if why else ''}",
        *(str(total[name]) for name in ("stuck_running", "stuck_waiting", "again")),
        *(str(total[name]) for name in ("doubled", "at_once", "at_once_suspended")),
        f"{total['ran_all_the_same']} of {total['rolled_back']}",
        f"not within {REST_SECONDS:g} s" if stuck else f"{max(each.rest_seconds for each in reports):.0f} s",
    ]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(reports: Sequence[Report], failed: Mapping[str, str], began: datetime) -> str:
    """Write what is kept of a run: a page of Markdown."""
    contenders = list({each.contender.name: each.contender for each in reports}.values())
    seeds = sorted({each.seed for each in reports})
    lines = [
        f"# Peers under faults, {began:%Y-%m-%d}",
        "",
        f"`make faults-peers SECONDS={max((each.seconds for each in reports), default=0):g} SEED={min(seeds, default=1)}`"
        f"{f' with seeds {seeds[0]} to {seeds[-1]}' if len(seeds) > 1 else ''}, commit {commit()}. "
        f"{', '.join(sorted({each.broker for each in reports}))}, Python {platform.python_version()}; {machine()}; load average at the end {os.getloadavg()[0]:.1f}.",
        f"Lease {LEASE_SECONDS} s, a look every {SWEEP_SECONDS} s, {REST_SECONDS:g} s of rest at most. What each column means, and what is not equal between "
        "the contenders: `tests/system/faults/peers/__init__.py`.",
        "",
        table(reports, failed),
        "",
        "## What struck",
        "",
        *(
            f"- {each.contender.name}, seed {each.seed}: {counted(Counter(step.fault for step, hit in each.struck if hit != NOBODY))}; "
            f"workers were started again {each.restarts} times, {each.fare.starts} tasks began"
            for each in reports
        ),
        "",
        "## Set up with",
        "",
        *(_set_up(each) for each in contenders),
        "",
        "## What became of those that were not as they should be",
        "",
    ]
    stories = [line for each in reports for line in _stories(each)]
    return "\n".join([*lines, *(stories or ["None."]), ""])


def _set_up(contender: Contender) -> str:
    return (
        f"- `{contender.packages}`: {contender.settings}. A dead worker's tasks start again by default: {contender.by_default}. "
        f"From {', '.join(contender.advice)}"
    )


def _stories(report: Report) -> list[str]:
    lines = []
    for name, said in TOLD.items():
        keys = sorted(getattr(report.fare, name))
        if keys:
            lines += [f"{report.contender.name}, seed {report.seed}, {said}: {len(keys)}", "", "```"]
            lines += [f"{key} {story(report.facts, key)}" for key in keys[:STORIES_MAX]]
            lines += ["```", ""]
    return lines


def now() -> datetime:
    return datetime.now(UTC)
