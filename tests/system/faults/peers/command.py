"""The command: `python -m tests.system.faults.peers --seconds 60 --seed 1 --only octop,procrastinate`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.environments import PeerUnavailableError
from tests import servers
from tests.system.faults.peers import report
from tests.system.faults.peers.contenders import CONTENDERS, chosen
from tests.system.faults.peers.run import Report, run

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 = somebody could not be measured."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is ended that was started
    began = report.now()
    place = None if options.dry else Path(options.result or RESULTS / f"{began:%Y-%m-%d}-peers.md")
    reports: list[Report] = []
    failed: dict[str, str] = {}
    whole = servers.Run()
    try:
        for contender in chosen(options.only):
            for seed in range(options.seed, options.seed + options.seeds):
                _say(f"== {contender.packages}, seed {seed}, {options.seconds:g} s ==")
                logs = None if options.logs is None else Path(options.logs) / f"{contender.name}-{seed}"
                try:
                    found = run(contender, seed, options.seconds, options.postgres, logs=logs, say=_say)
                except (PeerUnavailableError, FileNotFoundError, RuntimeError, ValueError) as error:
                    failed[f"{contender.name}, seed {seed}"] = str(error)
                    _say(f"not measured: {error}")
                    continue
                reports.append(found)
                if place is not None:  # after each: what has been done is kept also if the rest is not
                    place.write_text(report.page(reports, failed, began))
                _say(", ".join(f"{count} {name}" for name, count in found.fare.counts().items()))
    finally:
        whole.end()
    _say("\n" + report.table(reports, failed))
    if place is not None:
        place.write_text(report.page(reports, failed, began))
        _say(f"\n{place}")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = ",".join(each.name for each in CONTENDERS)
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.faults.peers",
        description="Hurt workers of Octop and of its peers, and count what is left.",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long faults strike, for each contender and seed"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws plan, tasks and transactions")
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, one after the other")
    parser.add_argument("--postgres", type=int, default=18, help="major version")
    parser.add_argument("--only", metavar="NAMES", help=f"of {names}")
    parser.add_argument("--result", metavar="FILE", help="the page that is kept; DATE-peers.md among the results")
    parser.add_argument("--logs", help="keep all logs in this folder")
    parser.add_argument("--dry", action="store_true", help="print the table, and write no page")
    return parser.parse_args(arguments)
