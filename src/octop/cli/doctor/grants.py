"""Rights: nobody has more than he needs, and the roles have what they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import MEMBERSHIP, found
from octop.cli.findings import Finding, Step, psql
from octop.engine.diagnosis import excess, picture, rights

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

KEEP: Final = (
    "This is the login of this very session, or the last superuser that can log in: leave its rights, and give the"
    " application a login of its own, a member of the roles that it needs."
)


def creators(examination: Examination) -> Iterator[Finding]:
    """Look who may create objects in the schema."""
    may = examination.ask(rights.creators(examination.schema, examination.owner))
    schema = examination.role(examination.schema)
    if may["public"]:
        yield found(
            "grants.public_creates",
            f"PUBLIC may create objects in the schema {examination.schema}",
            psql(f"revoke create on schema {schema} from public;"),
        )
    for role in may["roles"]:
        lines = (f"revoke create on schema {schema} from {examination.role(role)};",)
        cure, hint = _commands(lines, _last_of_all(lines) if role in examination.logins else "")
        yield found(
            "grants.others_create", f"{role} may create objects in the schema {examination.schema}", cure, hint=hint
        )


def posing(examination: Examination) -> Iterator[Finding]:
    """Look whether something in the schema could be taken for PostgreSQL's own."""
    for each in examination.ask(rights.posing(examination.schema, examination.owner)):
        yield found(
            "grants.posing",
            f"the {each['what']} bears a name of PostgreSQL's and belongs to {each['owner']}",
            psql(each["drop"]),
            hint="Does somebody need it? Then move it away: alter … set schema …;",
        )


def _commands(lines: tuple[str, ...], instead: str) -> tuple[tuple[Step, ...], str]:
    """Return lines as a cure, or, if there is a hint instead, that alone: nobody is to cut himself off by copying."""
    return ((), instead) if instead else (psql(*lines), "")


def _last_of_all(lines: tuple[str, ...]) -> str:
    return f"That is the login of this very session, so after all other cures, and by another login: {' '.join(lines)}"


def objects(examination: Examination) -> Iterator[Finding]:
    """Compare the rights on every object with those that the package gives."""
    workers = examination.ask(rights.at_work_as_worker())
    for difference in excess.excess(
        picture.expected(), examination.picture, examination.schema, examination.role_prefix, workers
    ):
        if difference.grantee in examination.logins:
            yield found(difference.id, difference.what, hint=_last_of_all(difference.sql))
        else:
            by = f"{MEMBERSHIP} (for the grant)" if any(each.startswith("grant ") for each in difference.sql) else ""
            yield found(difference.id, difference.what, examination.steps(difference), hint=difference.hint, by=by)


def owner(examination: Examination) -> Iterator[Finding]:
    """Look what the owner's role may."""
    may = examination.ask(rights.owner_role(examination.owner))
    if not may:
        return  # what belongs to a role that is not there is another finding
    wrong = {
        "superuser": ("is a superuser", "nosuperuser"),
        "bypass_rls": ("may bypass row security", "nobypassrls"),
        "login": ("can log in", "nologin"),
    }
    said = [words for key, words in wrong.items() if may[key]]
    if said:
        lines = (f"alter role {examination.role(examination.owner)} {' '.join(option for _, option in said)};",)
        cure, hint = _commands(lines, KEEP if may["keep"] else "")
        yield found(
            "roles.owner_is_mighty", f"{examination.owner} {' and '.join(what for what, _ in said)}", cure, hint=hint
        )


def logins(examination: Examination) -> Iterator[Finding]:
    """Look what the logins may that work with Octop."""
    owner = examination.role(examination.owner)
    for login in examination.ask(rights.logins(examination.role_prefix)):
        who = examination.role(login["name"])
        if login["owner"] and not login["superuser"] and not login["ours"]:
            kind = "roles.member_of_owner" if login["works"] else "roles.installer"
            works = " and runs workers or enqueues" if login["works"] else ""
            lines = (f"revoke {owner} from {who};",)
            cure, hint = _commands(lines, _last_of_all(lines) if login["self"] else "")
            yield found(kind, f"{login['name']} is a member of {examination.owner}{works}", cure, hint=hint)
        yield from _too_mighty(login, who)


def _too_mighty(login: dict[str, object], who: str) -> Iterator[Finding]:
    wrong = {
        "superuser": ("is a superuser", "nosuperuser"),
        "bypass_rls": ("may bypass row security", "nobypassrls"),
        "create_role": ("may create roles", "nocreaterole"),
    }
    said = [words for key, words in wrong.items() if login[key]]
    if login["works"] and said and not login["ours"]:
        lines = (f"alter role {who} {' '.join(option for _, option in said)};",)
        cure, hint = _commands(lines, KEEP if login["self"] or login["last"] else "")
        yield found(
            "roles.application_is_mighty",
            f"{login['name']}, with which Octop works, {' and '.join(what for what, _ in said)}",
            cure,
            hint=hint,
        )
