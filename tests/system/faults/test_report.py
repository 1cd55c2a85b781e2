"""What is said of runs, on the screen and on the page that is kept."""

from __future__ import annotations

from datetime import timedelta

from tests.system.faults.checker import check
from tests.system.faults.command import available
from tests.system.faults.history import History, Trouble
from tests.system.faults.report import Report, page, summary
from tests.system.faults.small_disk import may_mount
from tests.system.faults.test_checker import BROKEN, NOON, SOUND
from tests.system.faults.variants import VARIANTS, Variant


def reported(history: History, *, seed=1, variant="plain"):
    return Report(seed, variant, 60, [], history, check(history), 2.5, 2)


GOOD = reported(SOUND["it goes on after its lease is lost"])
BAD = reported(BROKEN["no_overlap", "the first never ended"], seed=2, variant="pooled")
IDLE = Trouble("kill worker", NOON, NOON + timedelta(seconds=1), hit="")


def test_a_run_ends_with_a_table_of_what_struck_ran_was_excused_and_broken():
    table = {line[:22].strip(): line[23:] for line in GOOD.written().splitlines()}
    assert table["faults struck"] == "1: 1 kill worker"
    assert table["tasks"] == "1: 1 success"
    assert table["attempts"] == "2: 1 loop None, 1 loop returned"
    assert table["excused overlaps"] == "1: 1 its worker had lost the lease"
    assert table["violations"] == "0"


def test_what_struck_nothing_is_not_counted_among_what_struck():
    assert "faults struck          0\n" in reported(History(troubles=[IDLE])).written()


def test_a_violation_is_shown_with_all_that_was_recorded_of_its_task():
    text = BAD.written()
    assert "no_overlap: a: attempt 2 began at 12:00:02" in text
    assert "12:00:00.000000 attempt 1 claim c1 in loop began" in text
    assert "[kill worker begins: somebody]" in text


def test_runs_are_summed_up_line_by_line():
    head, _, good, bad, both = summary([GOOD, BAD]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, good, bad, both)]
    assert cells[0] == ["seed", "variant", "seconds", "faults", "tasks", "attempts", "excused overlaps", "violations"]
    assert cells[1] == ["1", "plain", "60", "1", "1", "2", "1", "0"]
    assert cells[2][:6] == ["2", "pooled", "60", "1", "1", "2"]
    assert cells[3][:6] == ["all", "", "120", "2", "2", "4"]
    assert len({len(line) for line in (head, good, bad, both)}) == 1


def test_the_page_that_is_kept_has_the_table_and_the_evidence_of_what_was_broken():
    kept = page([GOOD, BAD], 18)
    assert kept.startswith("# Faults, ")
    assert summary([GOOD, BAD]) in kept
    assert "Seed 2, pooled:\n\n```\n  no_overlap: a:" in kept
    assert page([GOOD], 18).endswith("## Violations\n\nNone.\n")


def test_a_variant_that_this_machine_can_not_have_is_said_and_left_out(monkeypatch, capsys):
    monkeypatch.setattr(Variant, "missing", lambda variant: "it is not here" if variant.pooler else None)
    assert available(["pooled"]) == []
    assert capsys.readouterr().out == "== without pooled: it is not here ==\n"
    assert available(["all"]) == [name for name in VARIANTS if name != "pooled"]


def test_a_small_disk_is_missing_where_it_can_not_be_mounted():
    assert (VARIANTS["small-disk"].missing() is None) == may_mount()
    assert VARIANTS["plain"].missing() is None
