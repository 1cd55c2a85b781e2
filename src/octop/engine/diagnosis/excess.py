"""Rights on our objects that the package does not give, and rights that it gives and that are gone."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from octop.engine.diagnosis.picture import Picture
from octop.engine.diagnosis.words import Difference, is_ours, name, within

Right = tuple[str, str, str | None, str, str]
PRODUCER: Final = "producer"
# In the order in which they are cured: first what lets an application go on by its roles.
KINDS: Final = ("grants.too_wide", "grants.on_leaf", "grants.public_execute", "grants.direct")


def excess(
    expected: Picture, found: Picture, schema: str, role_prefix: str, workers: Collection[str]
) -> Iterator[Difference]:
    """Compare the rights on objects with those that the package gives.

    Args:
        expected: The picture of the package.
        found: What is there.
        schema: Where.
        role_prefix: Before the names of our roles.
        workers: Logins that are seen to run workers.
    """
    wanted = {
        (kind, thing, column, f"{role_prefix}{grantee}", privilege)
        for kind, thing, column, grantee, privilege in expected.grants
    }
    own = {grantee for _, _, _, grantee, _ in wanted}
    by: dict[tuple[str, str], list[Right]] = defaultdict(list)
    for right in sorted(found.grants - wanted, key=str):
        if not is_ours(right[0], right[1]):
            continue
        by[_kind(right, expected, found), right[3]].append(right)
    for (finding, grantee), rights in sorted(by.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1])):
        who = name(grantee) if grantee else "public"
        lines = tuple(_revocations(rights, schema, who))
        hint = ""
        if grantee and grantee not in own and (whole := _role_within(grantee, expected, found)):
            ours = name(f"{role_prefix}{whole}")
            lines = (f"grant {ours} to {who};", *lines)
            hint = (
                f"It has all the rights of {ours}: was that role renamed?"
                f" Then better: drop role {ours}; alter role {who} rename to {ours};"
            )
        elif grantee and (role := _role_instead(finding, rights)):
            lines = (f"grant {name(f'{role_prefix}{role}')} to {who};", *lines)
            if role == PRODUCER:
                also = f"grant {name(f'{role_prefix}worker')} to {who};"
                # what a worker may is more than to enqueue: nobody gets it for nothing
                lines, hint = ((also, *lines), "") if grantee in workers else (lines, f"If it runs workers: {also}")
        things = sorted({right[1].partition("(")[0] for right in rights})
        shown = ", ".join(things[:3]) + (f" and {len(things) - 3} more" if len(things) > 3 else "")
        privileges = ", ".join(sorted({right[4] for right in rights}))
        yield Difference(finding, f"{grantee or 'PUBLIC'} has {privileges} on {shown}", lines, hint, grantee=grantee)
    gone = [right for right in sorted(wanted - found.grants, key=str) if _is_there(right, found)]
    if gone:
        shown = ", ".join(f"{privilege} on {thing} of {grantee}" for _, thing, _, grantee, privilege in gone[:3])
        more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
        yield Difference("grants.missing", f"rights are gone: {shown}{more}", again=True)


def _kind(right: Right, expected: Picture, found: Picture) -> str:
    kind, thing, _, grantee, privilege = right
    if kind == "function":
        if not grantee:
            return "grants.public_execute"
        return "grants.too_wide" if thing.startswith("_") else "grants.direct"
    # a day is in neither picture: it is a leaf as well
    table = expected.tables.get(thing) or found.tables.get(thing) or {"partition_of": "octop_tasks_done"}
    if thing.startswith("_") or (table.get("partition_of") and kind == "table"):
        return "grants.on_leaf"
    reads = privilege in {"SELECT", "USAGE"}
    return "grants.direct" if reads and grantee else "grants.too_wide"


def _role_within(grantee: str, expected: Picture, found: Picture) -> str | None:
    """Return that of our roles all of whose rights somebody has directly, the largest; whoever lost them would stop working."""
    theirs = {right[:3] + right[4:] for right in found.grants if right[3] == grantee}
    roles: dict[str, set[tuple[str | None, ...]]] = defaultdict(set)
    for right in expected.grants:
        roles[right[3]].add(right[:3] + right[4:])
    whole = [role for role, rights in roles.items() if role and rights <= theirs]
    return max(whole, key=lambda role: len(roles[role]), default=None)


def _role_instead(finding: str, rights: list[Right]) -> str | None:
    """Return the role by which somebody may go on with what he seems to do: enqueue, or read."""
    on_tasks = {privilege for kind, thing, _, _, privilege in rights if kind == "table" and thing == "octop_tasks"}
    if finding == "grants.too_wide" and "INSERT" in on_tasks:
        return PRODUCER
    if finding == "grants.direct" and "SELECT" in on_tasks:
        return "viewer"
    return None


def _revocations(rights: list[Right], schema: str, who: str) -> Iterator[str]:
    things: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, thing, column, _, privilege in rights:
        things[kind, f"{privilege.lower()} ({name(column)})" if column else privilege.lower()].append(thing)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (kind, privilege), on in things.items():
        together[kind, tuple(on)].append(privilege)
    for (kind, same), privileges in together.items():
        objects = ", ".join(within(schema, thing) for thing in same)
        yield f"revoke {', '.join(privileges)} on {kind} {objects} from {who};"


def _is_there(right: Right, found: Picture) -> bool:
    return right[1] in (found.functions if right[0] == "function" else found.tables)
