"""Run the checks that were asked for; one that fails becomes a finding and stops no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octop.cli.doctor.checks import CHECKS, LOCAL, OWNERSHIP, VERSION, Check, LocalCheck
from octop.cli.doctor.examination import Examination
from octop.cli.doctor.kinds import found
from octop.cli.findings import Finding, psql
from octop.engine.diagnosis import rights
from octop.model.errors import DatabaseUnreachableError, NotPermittedError, OctopError, TryAgainError

if TYPE_CHECKING:
    from octop.engine.connect import EngineConnection
    from octop.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Choice:
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
    left_out: bool = False
    """Not asked: it judges what is nobody's to change on the private development database."""


def on_machine(settings: Settings, choice: Choice) -> Iterator[Checked]:
    """Run the checks that need no database."""
    for check in LOCAL:
        if choice.asks(check):
            yield Checked(check, _wanted(check.run(settings), choice))


def on_database(
    connection: EngineConnection, settings: Settings, choice: Choice, *, longer_than: float, check_seconds: float
) -> Iterator[Checked]:
    """Run the checks on a database; on a schema of another version only those that do not need it.

    Args:
        connection: In autocommit.
        settings: What this process started with.
        choice: What was asked for.
        longer_than: Older transactions hold back vacuum too long, in seconds.
        check_seconds: Time for one question.
    """
    examination = Examination(connection, settings, longer_than, check_seconds)
    fits = _fits(examination)
    misowned = False
    for check in CHECKS:
        # that the schema does not fit is never hidden: without it most of the others see nothing
        if check is VERSION and not fits:
            yield Checked(check, tuple(_run(check, examination)))
        elif check is OWNERSHIP and fits is not False and any(choice.asks(each) for each in CHECKS if each.owned):
            findings = _run(check, examination)
            misowned = bool(findings)
            if misowned or choice.asks(check):
                yield Checked(check, tuple(findings))
        elif not choice.asks(check) or (fits is False and not check.always) or (misowned and check.owned):
            continue
        elif not check.private and examination.private:
            yield Checked(check, (), left_out=True)
        else:
            yield Checked(check, _wanted(iter(_run(check, examination)), choice))


def _fits(examination: Examination) -> bool | None:
    """Tell whether the schema is of this version; None: nobody can tell now, so that the others look as far as they can."""
    try:
        return examination.installed.current
    except TryAgainError:
        return None


def _wanted(findings: Iterator[Finding], choice: Choice) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if choice.takes(finding.kind.id))


def _run(check: Check, examination: Examination) -> list[Finding]:
    try:
        return list(check.run(examination))
    except DatabaseUnreachableError:
        raise
    except NotPermittedError as error:
        viewer = f"{examination.role_prefix}viewer"
        # who has the viewer's rights already is refused by the server, not by us
        need = "pg_monitor" if examination.ask(rights.has_role(viewer)) else viewer
        login = examination.role(examination.place["login"])
        return [
            found(
                "doctor.not_looked_at",
                f"not looked at whether {check.fine}: needs {need} ({error.message})",
                psql(f"grant {examination.role(need)} to {login};"),
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
