"""How findings are printed: grouped by subject, or as JSON; colours on a terminal alone."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from octop import __version__
from octop.cli.doctor.finding import Finding, Severity, Step
from octop.cli.output import clean, masked

if TYPE_CHECKING:
    from octop.cli.doctor.run import Checked
    from octop.cli.output import Output
    from octop.engine.connect import EngineConnection
    from octop.model.settings import Settings

COLOURS: Final = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
FINE: Final = "green"
DIM: Final = "bright_black"
MARGIN: Final = 10


class Report:
    """Prints what was found, check by check."""

    def __init__(self, output: Output) -> None:
        """Keep where to print."""
        self._output = output
        self._fine = 0
        self._subject = ""
        self._console = output.console() if sys.stdout.isatty() and not output.as_json else None

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
            self._fine += not each.findings
            if self._output.as_json:
                continue
            if each.check.subject != self._subject:
                self._subject = each.check.subject
                self._say(self._subject.capitalize(), "bold")
            if not each.findings:
                self._say(f"  {'ok':<{MARGIN - 2}}{each.check.fine}", FINE, head=MARGIN)
            for finding in each.findings:
                self._finding(finding)
        return found

    def end(self, findings: list[Finding]) -> None:
        """Print the sum, or all as JSON."""
        if self._output.as_json:
            self._output.json([finding.as_json() for finding in findings])
            return
        counts = Counter(finding.kind.severity for finding in findings)
        said = [f"{self._fine} check{'s are' if self._fine != 1 else ' is'} fine"]
        said += [
            f"{counts[each]} {each}{'s' * (counts[each] > 1 and each is not Severity.INFO)}"
            for each in reversed(Severity)
            if counts[each]
        ]
        self._say(", ".join(said) + ".", "bold")

    def _finding(self, finding: Finding) -> None:
        severity = finding.kind.severity
        self._say(f"  {severity!s:<{MARGIN - 2}}{finding.what}  [{finding.kind.id}]", COLOURS[severity], head=MARGIN)
        indent = " " * MARGIN
        for line in finding.detail:
            self._say(f"{indent}- {line}", DIM)
        self._say(f"{indent}{finding.kind.why}", DIM)
        for step in finding.cure:
            self._say(f"{indent}{_typed(step)}", "bold", wrap=False)

    def _say(self, text: str, style: str, *, head: int = 0, wrap: bool = True) -> None:
        """Print one line; on a terminal wrapped below its beginning, and coloured: all of it, or its first characters."""
        text = masked(clean(text))
        if self._console is None:
            self._output.line(text)
            return
        from rich.text import Text  # noqa: PLC0415 - rich costs 60 ms, and pipes do not need it

        indent = " " * (head or len(text) - len(text.lstrip()))
        lines = textwrap.wrap(text, max(40, self._console.width - 1), subsequent_indent=indent) if wrap else [text]
        for number, line in enumerate(lines):
            shown = Text(line)
            if not head:
                shown.stylize(style)
            elif not number:
                shown.stylize(style, 0, head)
            self._console.print(shown, soft_wrap=True)


def _typed(step: Step) -> str:
    return f"$ {step.text}" if step.place == "shell" else f"=> {step.text}"
