"""A plan is its seed's."""

from __future__ import annotations

from tests.system.faults.faults import FAULTS, kinds_with
from tests.system.faults.plan import PROMOTION, drawn, with_promotion, written

ORDINARY, ALL = kinds_with(), kinds_with("pooler", "clock", "disk")


def test_the_same_seed_draws_the_same_plan():
    assert drawn(1, 60, ORDINARY) == drawn(1, 60, ORDINARY)
    assert drawn(1, 60, ORDINARY) != drawn(2, 60, ORDINARY)


def test_every_fault_of_a_plan_has_ended_in_time():
    plan = drawn(3, 60, ORDINARY)
    assert len(plan) > 10
    assert all(step.at + step.seconds <= 60 for step in plan)
    assert [step.number for step in plan] == list(range(1, len(plan) + 1))
    assert all(ORDINARY[step.fault].shortest <= step.seconds <= ORDINARY[step.fault].longest for step in plan)


def test_a_longer_plan_begins_as_the_shorter_one_and_a_long_one_has_every_fault():
    short, long = drawn(4, 30, ALL), drawn(4, 2000, ALL)
    assert long[: len(short)] == short
    assert {step.fault for step in long} == set(FAULTS) - {PROMOTION}


def test_the_promotion_has_its_place_in_the_middle_once():
    plan = with_promotion(drawn(6, 30, ORDINARY), 6, 30)
    assert plan == with_promotion(drawn(6, 30, ORDINARY), 6, 30)
    assert [step.number for step in plan] == list(range(1, len(plan) + 1))
    (promotion,) = (step for step in plan if step.fault == PROMOTION)
    assert 10 <= promotion.at <= 20


def test_a_plan_is_written_with_a_line_for_each_step():
    plan = drawn(5, 30, ORDINARY)
    assert written(plan).count("\n") == len(plan)
    assert all(step.fault in line for step, line in zip(plan, written(plan).splitlines()[1:], strict=True))
