"""Run the checks that were asked for; one that fails becomes a finding and stops no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octop.cli.doctor.checks import CHECKS, LOCAL, Check, LocalCheck
from octop.cli.doctor.examination import Examination
from octop.cli.doctor.finding import Finding, psql
from octop.cli.doctor.kinds import found
from octop.model.errors import DatabaseUnreachableError, NotPermittedError, OctopError, TryAgainError

if TYPE_CHECKING:
    from octop.engine.connect import EngineConnection
    from octop.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Selection:
    """Which findings are wanted.

    Attributes:
        only: None = all.
        skip: Not these.
    """

    only: frozenset[str] | None
    skip: frozenset[str]

    def takes(self, kind_id: str) -> bool:
        """Tell whether a finding of this kind is wanted; what the doctor says of itself always is."""
        if kind_id.startswith("doctor."):
            return kind_id not in self.skip
        return (self.only is None or kind_id in self.only) and kind_id not in self.skip

    def asks(self, check: Check | LocalCheck) -> bool:
        """Tell whether a check can find anything that is wanted."""
        return any(self.takes(kind_id) for kind_id in check.ids)


@dataclass(frozen=True, slots=True)
class Checked:
    """What one check has found; nothing, if all is well."""

    check: Check | LocalCheck
    findings: tuple[Finding, ...]


def on_machine(settings: Settings, selection: Selection) -> Iterator[Checked]:
    """Run the checks that need no database."""
    for check in LOCAL:
        if selection.asks(check):
            yield Checked(check, _wanted(check.run(settings), selection))


def on_database(
    connection: EngineConnection, settings: Settings, selection: Selection, *, longer_than: float, check_seconds: float
) -> Iterator[Checked]:
    """Run the checks on a database; on a schema of another version only those that do not need it.

    Args:
        connection: In autocommit.
        settings: What this process started with.
        selection: What was asked for.
        longer_than: Older transactions hold back vacuum too long, in seconds.
        check_seconds: Time for one question.
    """
    examination = Examination(connection, settings, longer_than, check_seconds)
    fits = examination.installed.current
    for check in CHECKS:
        # that the schema does not fit is never hidden: without it most of the others see nothing
        if (selection.asks(check) and (fits or check.always)) or (check is CHECKS[0] and not fits):
            findings = _run(check, examination)
            yield Checked(check, tuple(findings) if check is CHECKS[0] else _wanted(iter(findings), selection))


def _wanted(findings: Iterator[Finding], selection: Selection) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if selection.takes(finding.kind.id))


def _run(check: Check, examination: Examination) -> list[Finding]:
    try:
        return list(check.run(examination))
    except DatabaseUnreachableError:
        raise
    except NotPermittedError as error:
        role = examination.role(f"{examination.role_prefix}viewer")
        login = examination.role(examination.place["login"])
        return [
            found(
                "doctor.not_looked_at",
                f"not looked at whether {check.fine}: needs {examination.role_prefix}viewer ({error.message})",
                psql(f"grant {role} to {login};"),
            )
        ]
    except TryAgainError as error:
        why = f"it took longer than {examination.check_seconds:g} s or waited for a lock ({error.message})"
    except OctopError as error:
        why = error.message
    return [
        found(
            "doctor.failed",
            f"could not find out whether {check.fine}: {why}",
            examination.octop(f"doctor --only {','.join(check.ids)} --check-timeout 60s"),
        )
    ]
