"""The schema: whether it is there, of this version, and still what was installed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from octop import __version__
from octop.cli.doctor.finding import Finding, Step, psql, shell
from octop.cli.doctor.kinds import RANK, found
from octop.engine.diagnosis import drift, picture

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

TOGETHER: Final = "schema.code_differs"
"""Of these one finding holds all: one command puts them in place again."""


def version(examination: Examination) -> Iterator[Finding]:
    """Compare migrations and functions with those of this package."""
    installed = examination.installed
    schema = installed.schema
    if not installed.present:
        yield found("schema.missing", f"Octop is not installed in the schema {schema}", examination.octop("migrate"))
    elif installed.changed:
        yield found(
            "schema.migration_changed",
            f"the installed migration {installed.changed[0]} differs from that of this package",
            shell(f"pip install octop-scheduler=={installed.version}"),
        )
    elif installed.newer:
        yield found(
            "schema.newer",
            f"the schema {schema} knows {installed.newer[0]}, this package ({__version__}) does not",
            shell(f"pip install --upgrade 'octop-scheduler>={installed.version}'"),
        )
    elif not installed.current:
        missing = f": {len(installed.missing)} migrations are missing" if installed.missing else ""
        yield found(
            "schema.older",
            f"the schema {schema} is that of Octop {installed.version}, this package is {__version__}{missing}",
            examination.octop("migrate"),
        )


def objects(examination: Examination) -> Iterator[Finding]:
    """Compare every object with the picture that the package brings."""
    differences = drift.differences(picture.expected(), examination.picture, examination.schema, examination.owner)
    ordered = sorted(differences, key=lambda difference: RANK[difference.id])
    for kind, group in groupby(ordered, key=attrgetter("id")):
        each = list(group)
        if kind != TOGETHER or len(each) == 1:
            yield from (found(kind, one.what, examination.steps(one)) for one in each)
            continue
        before: tuple[Step, ...] = psql(*(line for one in each for line in one.sql))
        yield found(
            kind,
            f"{len(each)} functions, views or triggers are not those of this package",
            before + examination.again(),
            tuple(one.what for one in each),
        )
