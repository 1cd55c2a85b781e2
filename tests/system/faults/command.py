"""The command: `python -m tests.system.faults --seconds 60 --seed 1`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import servers
from tests.system.faults.faults import FAULTS
from tests.system.faults.mutants import MUTANTS
from tests.system.faults.plan import written
from tests.system.faults.report import Report, page, summary
from tests.system.faults.run import run
from tests.system.faults.variants import VARIANTS

ALL = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 = something was violated, or a mutant was not noticed."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is ended that was started
    whole = servers.Run()
    try:
        return _mutants(options) if options.mutants else _seeds(options)
    finally:
        whole.end()


def _seeds(options: argparse.Namespace) -> int:
    """Run seed after seed, each with the variant whose turn it is."""
    variants = available(options.variant)
    if not variants:
        return 1
    reports: list[Report] = []
    for place in range(options.seeds):
        reports.append(_one(options.seed + place, variants[place % len(variants)], options))
        if options.result is not None:  # after each: what has been done is kept also if the rest is not
            Path(options.result).write_text(page(reports, options.postgres))
    if len(reports) > 1:
        _say(summary(reports))
    return 1 if any(each.violations for each in reports) else 0


def available(names: Sequence[str]) -> list[str]:
    """List the variants that this machine can have, and say what the others lack."""
    asked = list(VARIANTS) if ALL in names else list(names)
    lacks = {name: VARIANTS[name].missing() for name in asked}
    for name, missing in lacks.items():
        if missing is not None:
            _say(f"== without {name}: {missing} ==")
    return [name for name in asked if lacks[name] is None]


def _mutants(options: argparse.Namespace) -> int:
    """Take out each guard, one after the other, and see that it is missed."""
    unnoticed: list[str] = []
    for name, mutant in MUTANTS.items():
        if mutant.test:
            _say(f"== {name}: missed by {mutant.test} ==")
            continue
        report = _one(options.seed, "plain", options, mutant=name, kinds=mutant.faults)
        rules = sorted({each.rule for each in report.violations} - {"every_fault_strikes"})
        _say(f"== without {name}: {', '.join(rules) or 'not noticed'} ==")
        unnoticed += [name] if not rules else []
    return 1 if unnoticed else 0


def _one(
    seed: int, variant: str, options: argparse.Namespace, *, mutant: str | None = None, kinds: Sequence[str] = ()
) -> Report:
    mutant = mutant or options.mutant
    without = "" if mutant is None else f", without the guard {mutant}"
    _say(f"== seed {seed}, {variant}, {options.seconds:g} s, PostgreSQL {options.postgres}{without} ==")
    report = run(
        seed,
        options.seconds,
        options.postgres,
        variant=variant,
        folder=_emptied(options.logs, f"{variant}-{mutant or seed}"),
        kinds=kinds or options.only,
        mutant=mutant,
        say=_say,
    )
    _say(written(report.plan))
    _say(report.written())
    return report


def _emptied(logs: str | None, name: str) -> Path | None:
    if logs is None:
        return None
    folder = Path(logs) / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.log"):
        old.unlink()
    return folder


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.faults", description="Hurt real workers, and check what is left."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults strike, for each seed")
    parser.add_argument("--seed", type=int, default=1, help="draws plan, tasks and transactions")
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, one after the other")
    parser.add_argument("--postgres", type=int, default=18, help="major version")
    parser.add_argument(
        "--variant",
        nargs="+",
        default=["plain"],
        choices=[*VARIANTS, ALL],
        help="what there is beside workers and database; of several each seed has the next one",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        choices=sorted(FAULTS),
        metavar="FAULT",
        help=f"of: {', '.join(sorted(FAULTS))}",
    )
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="take a guard out of the engine, to see that it is missed"
    )
    parser.add_argument("--mutants", action="store_true", help="all of them, one after the other")
    parser.add_argument("--result", metavar="FILE", help="write what came of it to a page that can be kept")
    parser.add_argument("--logs", help="keep all logs in this folder")
    return parser.parse_args(arguments)
