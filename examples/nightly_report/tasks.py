"""The one task type: it runs one SQL statement, which may be repeated."""

from datetime import date

import psycopg

from octop import Octop

octop = Octop()
REPORT = """
    INSERT INTO report SELECT day, count(DISTINCT product), sum(amount) FROM sales WHERE day = %s GROUP BY day
    ON CONFLICT (day) DO UPDATE SET products = excluded.products, amount = excluded.amount
    RETURNING amount
"""


@octop.task(queue="reports", timeout=600)
def nightly_report(day: date) -> int:
    """Write the report of a day and return its sum."""
    with psycopg.connect() as connection:  # PGHOST, PGDATABASE, …
        row = connection.execute(REPORT, [day]).fetchone()
    if row is None:
        raise LookupError(f"there are no sales of {day} yet")  # tried again, with growing waits
    return int(row[0])
