"""Write `docs/reference/errors.md` from the tree of errors: one row per class. A test compares page, classes and SQL.

python tools/errors_page.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

from octop.model import errors

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"

HEAD = """# Errors

Every error of Octop is a subclass of `OctopError` in `octop.model.errors`; each names a situation. Where PostgreSQL raises it, it has the
SQLSTATE of the first column, in any language; Python raises the class, the `octop` command ends with the exit code. Each error comes with a
hint: what to do, in that very case.

This page is generated from the classes by `tools/errors_page.py`.

| SQLSTATE | class | exit code | meaning | what to do |
|---|---|---|---|---|
"""


def classes(base: type[errors.OctopError] = errors.OctopError) -> list[type[errors.OctopError]]:
    """Return the tree of errors, each class before its children, children in the order of the file."""
    return [base, *(found for child in base.__subclasses__() for found in classes(child))]


def row(error: type[errors.OctopError]) -> str:
    """Return the row of one class."""
    sentence = " ".join((inspect.getdoc(error) or "").partition("\n\n")[0].split())
    meaning, _, cure = sentence.replace("|", "\\|").replace("``", "`").removesuffix(".").partition(": ")
    sqlstate = f"`{error.sqlstate}`" if error.sqlstate else "–"
    parents = " · ".join(f"`{base.__name__}`" for base in error.__bases__ if issubclass(base, errors.OctopError))
    return (
        f"| {sqlstate} | `{error.__name__}`{f' ({parents})' if parents else ''} |"
        f" {error.exit_code} | {meaning} | {cure or 'see its hint'} |\n"
    )


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(row(error) for error in classes())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
