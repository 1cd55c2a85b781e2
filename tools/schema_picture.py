"""Write `src/octop/sql/picture.json`: every object that a fresh install makes. A test compares, on every PostgreSQL.

python tools/schema_picture.py
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from octop.engine import private_database
from octop.engine.connect import open_connection
from octop.engine.diagnosis.picture import FILE, text
from octop.engine.install import install

PAGE: Final = Path(__file__).resolve().parent.parent / "src" / "octop" / "sql" / FILE
SCHEMA: Final = "octop"


def main() -> None:
    """Install into a schema of a server that is thrown away, and write down what is there."""
    with private_database.temporary() as running:
        install(running.url, schema=SCHEMA)
        with contextlib.closing(open_connection(running.url, application_name="picture", schema=SCHEMA)) as connection:
            PAGE.write_text(text(connection, SCHEMA, "octop_"), encoding="utf-8")


if __name__ == "__main__":
    main()
