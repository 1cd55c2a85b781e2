"""The schema: whether it is there, of this version, and still what was installed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from octop import __version__
from octop.cli.doctor.kinds import RANK, found
from octop.cli.findings import Finding, Step, psql, shell
from octop.engine.diagnosis import drift, picture
from octop.engine.diagnosis.words import ownership_lines

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

FEW: Final = 3
"""So many objects of a wrong owner were changed one by one; more were restored."""
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
        missing = f"{len(installed.missing)} migrations are missing" if installed.missing else ""
        if installed.version == __version__:  # from another commit
            differ = (
                ""
                if installed.functions_current
                else "its functions are not those of this package (their checksum differs)"
            )
            said = f"the schema {schema} says {__version__}, as this package does, but {' and '.join(filter(None, (missing, differ)))}"
        else:
            more = f": {missing}" if missing else ""
            said = f"the schema {schema} is that of Octop {installed.version}, this package is {__version__}{more}"
        yield found("schema.older", said, examination.octop("migrate"))


def ownership(examination: Examination) -> Iterator[Finding]:
    """Look whether all objects belong to the owner's role; many that do not were restored without it."""
    foreign, owner = examination.installation["foreign"], examination.owner
    who = examination.role(owner)
    make = () if examination.installation["owner_there"] else psql(f"create role {who} nologin;")
    if len(foreign) <= FEW:
        for row in foreign:
            yield found(
                "schema.owner_differs",
                f"the {row['kind']} {row['name']} belongs to {row['owner']}, not to {owner}",
                make + psql(f"alter {row['kind']} {examination.sql(row['name'])} owner to {who};"),
            )
        return
    owners = ", ".join(sorted({row["owner"] for row in foreign}))
    yield found(
        "schema.owner_differs",
        f"{len(foreign)} objects belong to {owners}, not to {owner} (restored under the wrong owner?)",
        make
        + psql(*ownership_lines(examination.schema, owner, examination.installation["others"]))
        + examination.again(),
        hint="Or restore once more: make the roles first (octop migrate in another schema or database makes them),"
        " then pg_restore as a superuser and without --no-owner. Rights are looked at when the owner is right.",
    )


def objects(examination: Examination) -> Iterator[Finding]:
    """Compare every object with the picture that the package brings."""
    differences = drift.differences(picture.expected(), examination.picture, examination.schema, examination.owner)
    ordered = sorted(differences, key=lambda difference: RANK[difference.id])
    for kind, group in groupby(ordered, key=attrgetter("id")):
        each = list(group)
        if kind != TOGETHER or len(each) == 1:
            yield from (found(kind, one.what, examination.steps(one), hint=one.hint) for one in each)
            continue
        before: tuple[Step, ...] = psql(*(line for one in each for line in one.sql))
        yield found(
            kind,
            f"{len(each)} functions, views or triggers are not those of this package",
            before + examination.again(),
            tuple(one.what for one in each),
        )
