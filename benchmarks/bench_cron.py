"""How many next times of cron expressions does one session tell in a second?

    python -m benchmarks.bench_cron [--count 20000]

Prints, for expressions of each kind, microseconds per call: of the parsed form, which a schedule keeps, and of the text, which is read anew
in each call. The best of three rounds; moments over two years, the loop and the network are not counted (one statement for all calls).
"""

import argparse
import time

import psycopg

from benchmarks.server import postgres
from octop.engine.install import install

EXPRESSIONS = (
    ("0 9 * * MON-FRI", "Asia/Shanghai"),
    ("*/15 * * * *", "Europe/Berlin"),
    ("30 2 * * *", "America/New_York"),
    ("*/10 * * * * *", "UTC"),
    ("0 9 L * *", "Europe/Berlin"),
    ("0 9 15W * FRI#2", "Australia/Lord_Howe"),
    ("0 0 29 2 *", "Europe/Berlin"),
    ("* * 1 1 *", "Europe/Berlin"),
    ("@every 90s", "UTC"),
)
PARSED = """
    with r as materialized (select _octop_cron_parse(%(expression)s) as rule)
    select count(_octop_cron_next(r.rule, %(zone)s, '2026-01-01Z'::timestamptz + n * interval '2 years' / %(count)s))
      from r, generate_series(1, %(count)s) n
"""
TEXT = """
    select count(octop_cron_next(%(expression)s, %(zone)s, '2026-01-01Z'::timestamptz + n * interval '2 years' / %(count)s))
      from generate_series(1, %(count)s) n
"""


def microseconds(
    connection: psycopg.Connection[tuple[int]], statement: str, expression: str, zone: str, count: int
) -> float:
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        connection.execute(statement.encode(), {"expression": expression, "zone": zone, "count": count})
        best = min(best, time.perf_counter() - begin)
    return best / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="calls per expression and round")
    count = parser.parse_args().count
    with postgres() as server, server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("revoke create on schema public from public")
        install(url)
        with psycopg.connect(url, autocommit=True) as connection:
            print(f"PostgreSQL {server.version}, µs per call: parsed form, text")
            for expression, zone in EXPRESSIONS:
                parsed = microseconds(connection, PARSED, expression, zone, count)
                text = microseconds(connection, TEXT, expression, zone, count // 10)
                print(f"{expression:<18} {zone:<20} {parsed:7.1f} {text:7.1f}   {1e6 / parsed:9,.0f} a second")


if __name__ == "__main__":
    main()
