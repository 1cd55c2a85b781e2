"""Run all benchmarks on one PostgreSQL and write benchmarks/results/DATE.md and DATE.json.

python -m benchmarks            # a short form, under five minutes once the peers are installed
python -m benchmarks --full     # all of it, an hour and more; the only one with 10,000,000 rows of history
"""

import argparse
import contextlib
import io
import signal
import sys
import time
import traceback

from benchmarks import (
    bench_codec,
    bench_drain,
    bench_enqueue,
    bench_flow,
    bench_growth,
    bench_latency,
    bench_memory,
    bench_neighbours,
    bench_notify,
    bench_payload,
    bench_processes,
    bench_schedules,
    bench_startup,
    bench_unique,
    bench_wal,
)
from benchmarks.contender import tell
from benchmarks.report import Report
from benchmarks.script import Extent, above_zero, arena, contenders, stop_in_order

SCRIPTS = {
    "drain": bench_drain.measure,
    "enqueue": bench_enqueue.measure,
    "latency": bench_latency.measure,
    "growth": bench_growth.measure,
    "flow": bench_flow.measure,
    "neighbours": bench_neighbours.measure,
    "notify": bench_notify.measure,
    "wal": bench_wal.measure,
    "memory": bench_memory.measure,
    "processes": bench_processes.measure,
    "payload": bench_payload.measure,
    "unique": bench_unique.measure,
    "schedules": bench_schedules.measure,
}
TEXTS = {"Payloads in Python": bench_codec.main, "Start of the command": bench_startup.main}
"""They need no database, and print."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run all benchmarks and write benchmarks/results/DATE.md and DATE.json."
    )
    parser.add_argument("--full", action="store_true", help="all of it, an hour and more; the default is a short form")
    parser.add_argument("--scripts", help=f"only these, separated by commas: {', '.join(SCRIPTS)}")
    parser.add_argument("--only", type=contenders, help="names of contenders, separated by commas")
    parser.add_argument("--rounds", type=above_zero, help="how often each contender runs")
    parser.add_argument(
        "--add", action="store_true", help="add to what a run of this day has found, in place of what is measured again"
    )
    parser.add_argument("--durable", action="store_true", help="wait for the disk at each commit")
    given = parser.parse_args()
    chosen = given.scripts.split(",") if given.scripts else list(SCRIPTS)
    unknown = [name for name in chosen if name not in SCRIPTS]
    if unknown:
        parser.error(f"no script is called {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    signal.signal(signal.SIGTERM, stop_in_order)
    with arena(durable=given.durable, full=given.full) as place:
        report = Report(given.full, {"version": place.server.version, **place.server.settings})
        if given.add:
            report.add_to_earlier()
        extent = Extent(given.full, given.rounds, given.only)
        for name in chosen:
            began = time.monotonic()
            place.absent.clear()
            try:
                report.add(name, SCRIPTS[name](place, extent))
            except Exception as error:  # noqa: BLE001 - one question that fails must not cost the others their hour
                traceback.print_exc()
                report.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            tell(f"{name}: {time.monotonic() - began:.0f} s")
            print("\n".join(line for answer in report.answers[name] for line in answer.text()), flush=True)
            report.write()  # what is known so far survives whatever comes
        if given.full:
            for title, run in TEXTS.items():
                with contextlib.redirect_stdout(io.StringIO()) as text:
                    run()
                report.texts[title] = text.getvalue()
        page = report.write()
    tell(f"written to {page} and {page.with_suffix('.json').name}, {report.about()['minutes']} minutes")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
