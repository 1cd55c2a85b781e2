"""The harness itself, with a fixed seed: nothing lost, nothing doubled, nothing stuck."""

from __future__ import annotations

import pytest

from tests.system.faults.run import run

SECONDS = 45
SEED = 7


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_stuck_whatever_is_done_to_workers_database_and_network(postgres, tmp_path):
    report = run(SEED, SECONDS, postgres.version, folder=tmp_path)
    assert not report.violations, report.written()
    assert len(report.history.troubles) == len(report.plan) > 10
    assert sum(batch.ending == "committed" for batch in report.history.batches) > 50
    assert {row.status for row in report.history.rows} == {"success", "frozen", "cancelled"}
    assert {each.outcome for each in report.history.attempts} >= {"failure", "timeout", "lost", "snoozed", "cancelled"}
