"""What came of a run. Nothing here touches a database or a file, so that tests can make facts up."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

STATES = ("committed", "waiting", "running", "failed")
"""What an adapter says of tasks at the end: `committed` by the caller's own table, the others by the contender's."""


class Run(NamedTuple):
    """One start of a task.

    Attributes:
        key: Of the task.
        began_at: When.
        ended_at: When it ran to its end; None = it was cut off, or its process died.
        over_at: Until then it was under way for certain.
        pid: Its process.
    """

    key: str
    began_at: float
    ended_at: float | None
    over_at: float
    pid: int = 0


class Suspension(NamedTuple):
    """A process was stopped for longer than the lease."""

    pid: int
    from_: float
    until: float


@dataclass(frozen=True)
class Facts:
    """All that was recorded.

    Args:
        meant: The keys of all tasks of all transactions.
        committed: Those that the caller's own table holds.
        runs: All starts.
        waiting: What the contender still holds for a start that is to come.
        running: What it believes to run, though all workers have had their time.
        failed: What it has given up for good.
        unsent: Committed, and then the caller was told that it could not be sent.
        suspensions: Whose worker could not know that its lease was over.
    """

    meant: frozenset[str]
    committed: frozenset[str]
    runs: Sequence[Run]
    waiting: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    unsent: frozenset[str] = frozenset()
    suspensions: Sequence[Suspension] = field(default=())


@dataclass(frozen=True)
class Fare:
    """How a contender fared, as keys. What each word means stands in the package's own page."""

    committed: frozenset[str]
    rolled_back: frozenset[str]
    lost: frozenset[str]
    unsent: frozenset[str]
    given_up: frozenset[str]
    stuck_running: frozenset[str]
    stuck_waiting: frozenset[str]
    again: frozenset[str]
    doubled: frozenset[str]
    at_once: frozenset[str]
    at_once_suspended: frozenset[str]
    ran_all_the_same: frozenset[str]
    starts: int

    def counts(self) -> dict[str, int]:
        """Count each."""
        return {name: value if isinstance(value, int) else len(value) for name, value in vars(self).items()}


def judged(facts: Facts) -> Fare:
    """Apply the definitions of the package's own page.

    Raises:
        ValueError: The facts contradict themselves: then they prove nothing.
    """
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(facts.runs, key=lambda run: run.began_at):
        runs[run.key].append(run)
    held = facts.waiting | facts.running
    if strange := (runs.keys() | facts.committed | held) - facts.meant:
        message = f"{len(strange)} tasks were never meant, {min(strange)} for one"
        raise ValueError(message)
    ends = Counter(run.key for run in facts.runs if run.ended_at is not None)
    rolled_back = facts.meant - facts.committed
    lost = facts.committed - held - ends.keys()
    overlapped = {key: list(overlaps(runs[key])) for key in facts.committed & runs.keys()}
    at_once = frozenset(
        key for key, pairs in overlapped.items() if not all(_is_suspended(facts, former, at) for former, at in pairs)
    )
    return Fare(
        committed=facts.committed,
        rolled_back=rolled_back,
        lost=lost,
        unsent=lost & facts.unsent,
        given_up=lost & facts.failed,
        stuck_running=facts.committed & facts.running,
        stuck_waiting=facts.committed & facts.waiting - facts.running,
        again=frozenset(key for key in facts.committed if len(runs.get(key, ())) > 1),
        doubled=frozenset(key for key in facts.committed if ends[key] > 1),
        at_once=at_once,
        at_once_suspended=frozenset(key for key, pairs in overlapped.items() if pairs) - at_once,
        ran_all_the_same=rolled_back & runs.keys(),
        starts=len(facts.runs),
    )


def overlaps(runs: Sequence[Run]) -> Iterator[tuple[Run, float]]:
    """Find the runs that were under way when a later one began, each with that moment."""
    for place, former in enumerate(runs):
        for latter in runs[place + 1 :]:
            if latter.began_at < former.over_at:
                yield former, latter.began_at


def _is_suspended(facts: Facts, run: Run, at: float) -> bool:
    return any(each.pid == run.pid and each.from_ <= at <= each.until for each in facts.suspensions)


def facts_of(lines: Iterable[Mapping[str, Any]], states: Mapping[str, Sequence[str]]) -> Facts:
    """Put together what the file and the contender say."""
    by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_kind[line["kind"]].append(line)
    ended = {line["run"]: line["at"] for line in by_kind["ended"]}
    cut = {line["run"]: line["at"] for line in by_kind["cut"]}
    runs = []
    for line in by_kind["began"]:
        over_at = ended.get(line["run"]) or cut.get(line["run"]) or _gone_at(by_kind["gone"], line["pid"], line["at"])
        runs.append(Run(line["key"], line["at"], ended.get(line["run"]), over_at, line["pid"]))
    return Facts(
        meant=frozenset(key for line in by_kind["meant"] for key in line["keys"]),
        runs=runs,
        unsent=frozenset(line["key"] for line in by_kind["unsent"]),
        suspensions=list(_suspensions(by_kind)),
        **{name: frozenset(states[name]) for name in STATES},
    )


def _gone_at(gone: Iterable[Mapping[str, Any]], pid: int, after: float) -> float:
    """Tell when a process that wrote no end was last seen alive. Not before its run began: it was alive then."""
    found = [line["alive_at"] for line in gone if line["pid"] == pid and line["at"] >= after]
    return max(after, min(found, default=math.inf))


def _suspensions(by_kind: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Suspension]:
    for line in by_kind["suspended"]:
        ends = [each["at"] for each in by_kind["resumed"] if each["pid"] == line["pid"] and each["at"] >= line["at"]]
        yield Suspension(line["pid"], line["at"], min(ends, default=math.inf))


def story(facts: Facts, key: str) -> str:
    """Tell in a line what happened to a task; seconds count from its first start."""
    runs = sorted((run for run in facts.runs if run.key == key), key=lambda run: run.began_at)
    first = runs[0].began_at if runs else 0.0
    parts = [
        f"began {run.began_at - first:.1f} s"
        + (
            f", ended {run.ended_at - first:.1f}"
            if run.ended_at is not None
            else f", cut off {run.over_at - first:.1f}"
        )
        for run in runs
    ]
    held = [name for name in ("waiting", "running", "failed") if key in getattr(facts, name)]
    return f"{'; '.join(parts) or 'never began'}; at the end {' and '.join(held) or 'not there'}"
