"""Rights: nobody has more than he needs, and the roles have what they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from octop.cli.doctor.finding import Finding, psql
from octop.cli.doctor.kinds import found
from octop.engine.diagnosis import excess, picture, rights

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination


def creators(examination: Examination) -> Iterator[Finding]:
    """Look who may create objects in the schema."""
    may = examination.ask(rights.creators(examination.schema))
    schema = examination.role(examination.schema)
    if may["public"]:
        yield found(
            "grants.public_creates",
            f"PUBLIC may create objects in the schema {examination.schema}",
            psql(f"revoke create on schema {schema} from public;"),
        )
    for role in may["roles"]:
        yield found(
            "grants.others_create",
            f"{role} may create objects in the schema {examination.schema}",
            psql(f"revoke create on schema {schema} from {examination.role(role)};"),
        )


def objects(examination: Examination) -> Iterator[Finding]:
    """Compare the rights on every object with those that the package gives."""
    for difference in excess.excess(
        picture.expected(), examination.picture, examination.schema, examination.role_prefix
    ):
        yield found(difference.id, difference.what, examination.steps(difference))


def owner(examination: Examination) -> Iterator[Finding]:
    """Look what the owner's role may."""
    may = examination.ask(rights.owner_role(examination.owner))
    wrong = {
        "superuser": ("is a superuser", "nosuperuser"),
        "bypass_rls": ("may bypass row security", "nobypassrls"),
        "login": ("can log in", "nologin"),
    }
    said = [words for key, words in wrong.items() if may[key]]
    if said:
        options = " ".join(option for _, option in said)
        yield found(
            "roles.owner_is_mighty",
            f"{examination.owner} {' and '.join(what for what, _ in said)}",
            psql(f"alter role {examination.role(examination.owner)} {options};"),
        )


def logins(examination: Examination) -> Iterator[Finding]:
    """Look what the logins may that work with Octop."""
    owner = examination.role(examination.owner)
    for login in examination.ask(rights.logins(examination.role_prefix)):
        who = examination.role(login["name"])
        if login["owner"] and not login["superuser"]:
            kind = "roles.member_of_owner" if login["works"] else "roles.installer"
            works = " and runs workers or enqueues" if login["works"] else ""
            yield found(
                kind, f"{login['name']} is a member of {examination.owner}{works}", psql(f"revoke {owner} from {who};")
            )
        yield from _too_mighty(examination, login, who)


def _too_mighty(examination: Examination, login: dict[str, object], who: str) -> Iterator[Finding]:
    wrong = {
        "superuser": ("is a superuser", "nosuperuser"),
        "bypass_rls": ("may bypass row security", "nobypassrls"),
        "create_role": ("may create roles", "nocreaterole"),
    }
    said = [words for key, words in wrong.items() if login[key]]
    private = examination.settings.dsn is None  # the private development database has one login, its superuser
    if login["works"] and said and not private:
        options = " ".join(option for _, option in said)
        yield found(
            "roles.application_is_mighty",
            f"{login['name']}, with which Octop works, {' and '.join(what for what, _ in said)}",
            psql(f"alter role {who} {options};"),
        )
