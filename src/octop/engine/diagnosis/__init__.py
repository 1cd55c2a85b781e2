"""What `octop doctor` asks the database: reads alone, each a Call, each bounded in time and run in a read-only transaction.

One module per subject. Times of rows are compared with `_octop_now()`, those of the server's own statistics with
`clock_timestamp()`, both in SQL.
"""

from octop.engine.diagnosis.look import look, looking

__all__ = ["look", "looking"]
