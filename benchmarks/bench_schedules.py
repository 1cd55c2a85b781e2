"""How long does it take to fire 10,000 schedules that are due at the same minute, with one and with two tickers?

    python -m benchmarks.bench_schedules [--count 10000]

Each ticker calls octop_tick() until nothing is due, in transactions of at most 500 slots, as workers do. Beside it: as many tasks through
octop_enqueue_many, in calls of 500 by one session, as the ratio. The best of three rounds each; fsync is off.
"""

import argparse
import threading
import time
from collections.abc import Callable

import psycopg

from benchmarks.server import postgres
from octop.engine.install import install

MAKE = """
    insert into octop_schedules (name, rule, timezone, task_type, payload)
    select 's' || n, '*/5 * * * *', 'Europe/Berlin', 'report', '{"day": "{{slot.date}}"}' from generate_series(1, %s) n
"""
ENQUEUE = """
    select count(*) from octop_enqueue_many(array_fill('report'::text, array[500]), array_fill('{"day": "2030-01-01"}'::text, array[500]))
"""


def due(connection: psycopg.Connection[tuple[int]]) -> None:
    connection.execute("update octop_schedules set next_slot = date_trunc('minute', now()), last_slot = null")
    connection.execute("truncate octop_schedule_slots, octop_tasks_live")
    connection.execute("vacuum analyze octop_schedules")


def drain(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute("select next_seconds < 1 from octop_tick()").fetchone() == (True,):
            pass


def seconds(crew: int, act: Callable[[], None]) -> float:
    threads = [threading.Thread(target=act) for _ in range(crew)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="schedules, a multiple of 500")
    count = parser.parse_args().count
    with postgres() as server, server.database() as url:
        install(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(MAKE, (count,))

            def enqueue() -> None:
                for _ in range(count // 500):
                    connection.execute(ENQUEUE)

            found = {}
            for name, crew, act in (
                ("octop_enqueue_many", 1, enqueue),
                ("one ticker", 1, lambda: drain(url)),
                ("two tickers", 2, lambda: drain(url)),
            ):
                rounds = []
                for _ in range(3):
                    due(connection)
                    rounds.append(seconds(crew, act))
                found[name] = min(rounds)
                made = connection.execute("select count(*) from octop_tasks_live").fetchone()
                if made != (count,):
                    message = f"{name} made {made} tasks of {count}"
                    raise SystemExit(message)
            print(
                f"PostgreSQL {server.version}, {count:,} schedules due at one minute: seconds, slots a second, times octop_enqueue_many"
            )
            for name, took in found.items():
                print(f"{name:<20} {took:7.2f} {count / took:10,.0f} {took / found['octop_enqueue_many']:7.1f}")


if __name__ == "__main__":
    main()
