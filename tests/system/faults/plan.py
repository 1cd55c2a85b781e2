"""The plan of a run: which fault when, for how long, and whom it strikes. Drawn from the seed alone."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

GAP_SECONDS_MIN = 0.3
GAP_SECONDS_MAX = 3.0
TOGETHER = 0.35
"""How likely the next fault begins while this one lasts."""


class Kind(NamedTuple):
    """How often a fault is drawn, and how long it lasts.

    Attributes:
        weight: Of ten times as much it is drawn ten times as often.
        shortest: Seconds.
        longest: Seconds.
    """

    weight: int
    shortest: float
    longest: float


PROMOTION = "promote standby"
BEHIND = Kind(0, 0.2, 1.5)
"""It strikes once. It lasts for as long as the standby is behind before."""


class Step(NamedTuple):
    """One fault of a plan.

    Attributes:
        number: From 1.
        at: Seconds after the beginning.
        fault: Its name.
        seconds: How long it lasts.
        pick: 0 to 1: which of those that it may strike.
    """

    number: int
    at: float
    fault: str
    seconds: float
    pick: float


def drawn(seed: int, seconds: float, kinds: Mapping[str, Kind]) -> list[Step]:
    """Draw a plan.

    Args:
        seed: The same seed draws the same plan.
        seconds: How long it may last; each fault has ended by then.
        kinds: What may be drawn, by name.
    """
    chance = random.Random(seed)
    names = sorted(kinds)
    weights = [kinds[name].weight for name in names]
    steps: list[Step] = []
    at = GAP_SECONDS_MIN
    while True:
        (fault,) = chance.choices(names, weights)
        lasting = chance.uniform(kinds[fault].shortest, kinds[fault].longest)
        pick = chance.random()
        gap = chance.uniform(GAP_SECONDS_MIN, GAP_SECONDS_MAX)
        if at + lasting > seconds:
            return steps
        steps.append(Step(len(steps) + 1, round(at, 2), fault, round(lasting, 2), round(pick, 3)))
        at += gap if chance.random() < TOGETHER else lasting + gap


def with_promotion(steps: Sequence[Step], seed: int, seconds: float) -> list[Step]:
    """Add the promotion of the standby, in the middle third of the plan."""
    chance = random.Random(f"{seed}/{PROMOTION}")
    at = round(chance.uniform(seconds / 3, seconds * 2 / 3), 2)
    promotion = Step(0, at, PROMOTION, round(chance.uniform(BEHIND.shortest, BEHIND.longest), 2), 0.0)
    ordered = sorted([*steps, promotion], key=lambda step: step.at)
    return [step._replace(number=number) for number, step in enumerate(ordered, 1)]


def written(steps: Sequence[Step]) -> str:
    """Write a plan as a table."""
    lines = [f"{'step':>4}  {'at':>7}  {'fault':<22}  {'seconds':>7}  {'pick':>5}"]
    lines += [f"{s.number:>4}  {s.at:>7.2f}  {s.fault:<22}  {s.seconds:>7.2f}  {s.pick:>5.3f}" for s in steps]
    return "\n".join(lines)
