"""Rights: nobody has more than he needs, and the roles have what they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import MEMBERSHIP, SCHEMA_OWNER, found
from octop.cli.findings import Finding, Step, psql
from octop.engine.diagnosis import excess, picture, rights

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination
    from octop.engine.rows import Row

MIGHT: Final = {
    "superuser": ("is a superuser", "nosuperuser"),
    "bypass_rls": ("may bypass row security", "nobypassrls"),
    "create_role": ("may create roles", "nocreaterole"),
    "create_db": ("may create databases", "nocreatedb"),
    "replication": ("may replicate", "noreplication"),
}
"""Power over the server by the attribute of a role: in words, and the option that takes it away."""
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


def schema_grants(examination: Examination, lacking: Sequence[Row]) -> Iterator[str]:
    """Return the statements that give the rights on the schema that our roles lack."""
    for role, of_role in groupby(lacking, key=itemgetter("role")):
        privileges = ", ".join(each["privilege"].lower() for each in of_role)
        yield f"grant {privileges} on schema {examination.role(examination.schema)} to {examination.role(role)};"


def objects(examination: Examination) -> Iterator[Finding]:
    """Compare the rights on the schema and on every object in it with those that the package gives."""
    lacking = examination.ask(rights.lacking_on_schema(examination.schema, examination.role_prefix))
    if lacking:
        said = ", ".join(f"{each['privilege']} of {each['role']}" for each in lacking)
        what = f"rights on the schema {examination.schema} are gone: {said}"
        yield found("grants.missing", what, psql(*schema_grants(examination, lacking)), by=SCHEMA_OWNER)
    workers = examination.ask(rights.at_work_as_worker())
    for difference in excess.excess(
        picture.expected(), examination.picture, examination.schema, examination.role_prefix, workers
    ):
        if difference.grantee in examination.logins:
            yield found(difference.id, difference.what, hint=_last_of_all(difference.sql))
        else:
            by = f"{MEMBERSHIP} (for the grant)" if any(each.startswith("grant ") for each in difference.sql) else ""
            yield found(difference.id, difference.what, examination.steps(difference), hint=difference.hint, by=by)


def roles(examination: Examination) -> Iterator[Finding]:
    """Look what the five roles may do to the server; what belongs to a role that is not there is another finding."""
    for role in examination.ask(rights.roles(examination.role_prefix)):
        # one of the other four may be made a login: of those a person logs in as one
        wrong = (
            {"superuser": MIGHT["superuser"], "login": ("can log in", "nologin"), **MIGHT} if role["owner"] else MIGHT
        )
        said = [words for key, words in wrong.items() if role[key]]
        if said:
            lines = (f"alter role {examination.role(role['name'])} {' '.join(option for _, option in said)};",)
            cure, hint = _commands(lines, KEEP if role["keep"] else "")
            yield found(
                "roles.owner_is_mighty" if role["owner"] else "roles.group_is_mighty",
                f"{role['name']} {' and '.join(what for what, _ in said)}",
                cure,
                hint=hint,
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
    said = [MIGHT[key] for key in ("superuser", "bypass_rls", "create_role") if login[key]]
    if login["works"] and said and not login["ours"]:
        lines = (f"alter role {who} {' '.join(option for _, option in said)};",)
        cure, hint = _commands(lines, KEEP if login["self"] or login["last"] else "")
        yield found(
            "roles.application_is_mighty",
            f"{login['name']}, with which Octop works, {' and '.join(what for what, _ in said)}",
            cure,
            hint=hint,
        )
