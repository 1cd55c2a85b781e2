"""Write `docs/reference/errors.md` from the tree of errors, one row per class, and the comments of the constraints. A test compares page, classes and SQL.

python tools/errors_page.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from octop.engine import script
from octop.engine.failures import BY_CONSTRAINT
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

CONSTRAINTS = """
## Constraints

A plain INSERT or UPDATE that a table refuses fails with `23514` (`check_violation`) and the name of the constraint; psql prints it in the message, drivers
have it as `constraint_name`. Python raises the class. Tasks are checked where they are born, on the leaf `octop_tasks_live`: its name is in the
message although you wrote `octop_tasks`. Queues, task types and holds are refused sooner, with `OC110` or `OC113` and the bounds.

| constraint | on | promises | class |
|---|---|---|---|
"""

REFUSALS = """
What else a plain INSERT into `octop_tasks` is refused with:

| SQLSTATE | because | instead |
|---|---|---|
| `23502` | `task_type` is missing, or a column that may not be null is null | leave the column out: its default is meant for you |
| `23505` | the `id` exists already, live or frozen; or a unique index of your own says so | leave `id` out |
| `22P02` | a value cannot be read: no JSON, no UUID | |
| `22P05` | the payload holds `\\u0000`, which `jsonb` cannot keep | |
| `22003` | a number does not fit its column | |
| `42501` | the role may not write that column: `status`, `attempt` and the like are the engine's | leave it out, or `GRANT octop_producer` |
| `OC101` `OC102` `OC110` `OC111` `OC112` `OC113` | see the table above | |
"""


def constraints() -> list[tuple[str, str, str]]:
    """Return name, table and comment of each constraint that has one, in the order of the files."""
    said = re.compile(r"^comment on constraint (\w+) on (\w+) is '((?:[^']|'')*)';", re.MULTILINE)
    return [found for file in script.migrations() for found in said.findall(file.text) if not found[1].startswith("_")]


def constraint_row(name: str, table: str, comment: str) -> str:
    """Return the row of one constraint."""
    found = BY_CONSTRAINT.get(name)
    return f"| `{name}` | `{table.removesuffix('_live')}` | {comment.replace(chr(39) * 2, chr(39))} | {f'`{found.__name__}`' if found else '–'} |\n"


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
    rows = "".join(row(error) for error in classes())
    return HEAD + rows + CONSTRAINTS + "".join(constraint_row(*each) for each in constraints()) + REFUSALS


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
