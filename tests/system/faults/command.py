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
from tests.system.faults.run import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 = something was violated."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is ended that was started
    whole = servers.Run()
    worst = 0
    try:
        for seed in range(options.seed, options.seed + options.seeds):
            worst = max(worst, _one(seed, options))
    finally:
        whole.end()
    return worst


def _one(seed: int, options: argparse.Namespace) -> int:
    _say(f"== seed {seed}, {options.seconds:g} s, PostgreSQL {options.postgres} ==")
    folder = None
    if options.logs is not None:
        folder = Path(options.logs) / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.log"):
            old.unlink()
    report = run(
        seed,
        options.seconds,
        options.postgres,
        folder=folder,
        kinds=options.only,
        mutant=options.mutant,
        pooled=options.pooled,
        clock=options.clock,
        say=_say,
    )
    _say(written(report.plan))
    _say(report.written())
    return 1 if report.violations else 0


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
        "--only", nargs="+", choices=sorted(FAULTS), metavar="FAULT", help=f"of: {', '.join(sorted(FAULTS))}"
    )
    parser.add_argument("--pooled", action="store_true", help="put pgbouncer in transaction mode before the database")
    parser.add_argument(
        "--clock", action="store_true", help="put libfaketime before the workers, and let their clocks jump"
    )
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="take a guard out of the engine, to see that it is missed"
    )
    parser.add_argument("--logs", help="keep all logs in this folder")
    return parser.parse_args(arguments)
