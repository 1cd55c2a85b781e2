"""What the doctor prints: what each check found, as soon as it is known, and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from octop import __version__
from octop.cli.findings import Finding, Listing, Severity

if TYPE_CHECKING:
    from octop.cli.doctor.run import Checked
    from octop.cli.output import Output
    from octop.engine.connect import EngineConnection
    from octop.model.settings import Settings


class Report:
    """Prints what was found, check by check."""

    def __init__(self, output: Output) -> None:
        """Keep where to print."""
        self._output = output
        self._fine = 0
        self._listing = Listing(output)

    def begin(self, connection: EngineConnection, settings: Settings) -> None:
        """Say which database is looked at."""
        info = connection.info
        version = info.parameter_status("server_version")
        self._output.say(
            f"octop doctor {__version__}: database {info.dbname}, schema {settings.schema}, PostgreSQL {version}, as {info.user}"
        )

    def checks(self, checked: Iterable[Checked]) -> list[Finding]:
        """Print what each check found, as soon as it is known, and return all findings."""
        found: list[Finding] = []
        for each in checked:
            found += each.findings
            self._fine += not (each.findings or each.left_out)
            if self._output.as_json:
                continue
            self._listing.subject(each.check.subject)
            if each.left_out:
                self._listing.say(
                    f"  -       whether {each.check.fine}: not asked on the private database", "bright_black"
                )
            elif not each.findings:
                self._listing.fine(each.check.fine)
            for finding in each.findings:
                self._listing.finding(finding)
        return found

    def end(self, findings: list[Finding]) -> None:
        """Print the sum, or all as JSON."""
        if self._output.as_json:
            self._output.json([finding.as_json() for finding in findings])
            return
        if any(finding.cure for finding in findings):
            self._listing.say("Lines with => are typed in psql, lines with $ in the shell.", "bright_black")
        counts = Counter(finding.kind.severity for finding in findings)
        said = [f"{self._fine} check{'s are' if self._fine != 1 else ' is'} fine"]
        said += [
            f"{counts[each]} {each}{'s' * (counts[each] > 1 and each is not Severity.INFO)}"
            for each in reversed(Severity)
            if counts[each]
        ]
        self._listing.say(", ".join(said) + ".", "bold")
