"""`octop doctor`: what is wrong, why it matters, and the command that cures it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from octop.cli.doctor.kinds import chosen
from octop.cli.findings import Finding, failing
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION
from octop.model.errors import DatabaseUnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_FINDINGS: Final = 1
EXIT_SCHEMA: Final = 5
SCHEMA_IDS: Final = frozenset({"schema.missing", "schema.older", "schema.newer", "schema.migration_changed"})


@click.command(short_help="Find what is wrong, and say how to cure it.")
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    help="Only these findings: grants.too_wide, or grants for all of them; may be repeated.",
)
@click.option("--skip", multiple=True, metavar="ID", help="All but these findings; may be repeated.")
@click.option("--strict", is_flag=True, help="Let what is only worth knowing count as a finding.")
@click.option(
    "--longer-than",
    type=DURATION,
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Transactions that are open for longer hold back vacuum too long.",
)
@click.option(
    "--check-timeout",
    type=DURATION,
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="Time for one question to the database.",
)
@global_options(reads=True)
@pass_invocation
def doctor(
    invocation: Invocation,
    *,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    strict: bool,
    longer_than: float,
    check_timeout: float,
) -> int:
    """Look at package, schema, rights, workers, queues, days, vacuum and settings; change nothing.

    Each finding says what, why it matters, and the command that cures it. It needs the role octop_viewer; what this
    login may not see is said. Exit code 1 when there are warnings or errors, 5 when the schema is missing or of another
    version.
    """
    from octop.cli.doctor.report import Report  # noqa: PLC0415 - help need not load the checks and psycopg
    from octop.cli.doctor.run import Choice, on_database, on_machine  # noqa: PLC0415 - as above

    choice = Choice(_ids(only) if only else None, _ids(skip))
    report = Report(invocation.output)
    findings: list[Finding] = []
    findings += report.checks(on_machine(invocation.settings, choice))
    try:
        with invocation.connection() as connection:
            report.begin(connection, invocation.settings)
            findings += report.checks(
                on_database(
                    connection, invocation.settings, choice, longer_than=longer_than, check_seconds=check_timeout
                )
            )
    except DatabaseUnreachableError:
        report.end(findings)
        raise
    report.end(findings)
    if any(finding.kind.id in SCHEMA_IDS for finding in findings):
        invocation.output.say("octop: most checks need a schema of this version: cure that first")
    return _code(findings, strict=strict)


def _ids(words: tuple[str, ...]) -> frozenset[str]:
    try:
        return chosen(tuple(word for each in words for word in each.split(",")))
    except LookupError as error:
        raise click.UsageError(str(error)) from error


def _code(findings: Iterable[Finding], *, strict: bool) -> int:
    bad = failing(findings, strict=strict)
    if any(finding.kind.id in SCHEMA_IDS for finding in bad):
        return EXIT_SCHEMA
    return EXIT_FINDINGS if bad else 0
