"""The harness itself, with a fixed seed and a few seconds for each variant: nothing lost, nothing doubled, nothing stuck.

All together take less than two minutes; `make faults` and `make faults-long` hurt for as long as one likes.
"""

from __future__ import annotations

import pytest

from tests.system.faults.plan import PROMOTION
from tests.system.faults.run import run
from tests.system.faults.variants import VARIANTS

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(240)]

SECONDS, SHORT_SECONDS = 14, 5
SEED, SHORT_SEED = 3556, 15
"""They draw something of each kind: a worker and a child killed, a crash, a table that can not grow, a clock that jumps, cut sessions."""


def committed(batches):
    return sum(each.ending == "committed" for each in batches)


def after(report, moment):
    return [each for each in report.history.batches if each.meant_at > moment]


def may_have(variant):
    return VARIANTS[variant].missing() is None


@pytest.mark.long
def test_nothing_is_lost_doubled_or_stuck_whatever_is_done_to_workers_database_network_and_clock(postgres, tmp_path):
    report = run(SEED, SECONDS, postgres.version, variant="clock" if may_have("clock") else "plain", folder=tmp_path)
    assert not report.violations, report.written()
    assert len(report.history.troubles) == len(report.plan) > 5
    assert committed(report.history.batches) > 20
    assert {row.status for row in report.history.rows} == {"success", "frozen", "cancelled"}
    assert {each.outcome for each in report.history.attempts} >= {"failure", "timeout", "snoozed"}


@pytest.mark.long
def test_nor_behind_a_pooler_that_is_restarted(postgres, tmp_path):
    if not may_have("pooled"):
        pytest.skip("there is no pgbouncer on this machine")
    kinds = ["restart pooler", "kill worker"]
    report = run(SHORT_SEED, SHORT_SECONDS, postgres.version, variant="pooled", folder=tmp_path, kinds=kinds)
    assert not report.violations, report.written()
    assert {each.fault for each in report.history.troubles} == set(kinds)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.long
def test_a_standby_that_takes_over_has_all_that_a_commit_waited_for(postgres, tmp_path, kind):
    kinds = ["kill worker", "terminate", "hole then late"]
    report = run(SHORT_SEED, SHORT_SECONDS, postgres.version, variant=f"standby-{kind}", folder=tmp_path, kinds=kinds)
    assert not report.violations, report.written()
    assert [each.fault for each in report.history.troubles].count(PROMOTION) == 1
    (failover,) = report.history.failovers
    assert failover.kind == kind
    assert committed(after(report, failover.failed_at)) > 1, "work goes on there"


@pytest.mark.long
def test_where_there_is_no_room_nothing_is_lost_and_work_goes_on_when_there_is_some_again(postgres, tmp_path):
    # who may not mount a small disk limits the size of files: the server hears the same at the same places
    if may_have("small-disk"):
        variant, kinds = "small-disk", ["disk full", "log disk full"]
    else:
        variant, kinds = "plain", ["tables can not grow", "log can not grow"]
    report = run(SHORT_SEED, SHORT_SECONDS, postgres.version, variant=variant, folder=tmp_path, kinds=kinds)
    assert not report.violations, report.written()
    assert {each.fault for each in report.history.troubles} == set(kinds)
    assert committed(after(report, report.history.troubles[0].ended_at)) > 1, "work goes on"
