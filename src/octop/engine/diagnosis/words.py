"""SQL that a person is to run: names as SQL has them, quoted where need be."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from octop.engine.script import function_names, literal, quoted, relation_names

_DAY: Final = re.compile(r"octop_tasks_done_[0-9]{8}")
_PLAIN: Final = re.compile(r"public|_?octop_[a-z0-9_]+")


def name(text: str) -> str:
    """Return a name as an identifier, without quotes where it can be no reserved word.

    Example:
        >>> name("octop_tasks"), name("My App")
        ('octop_tasks', '"My App"')
    """
    return text if _PLAIN.fullmatch(text) else quoted(text)


def within(schema: str, text: str) -> str:
    """Return the qualified name of an object of ours; a function's arguments stay as they are.

    Example:
        >>> within("jobs", "octop_cancel(id uuid)")
        '"jobs".octop_cancel(id uuid)'
    """
    return f"{name(schema)}.{text}"


def ours() -> dict[str, list[str]]:
    """Return the names of what the package makes, as parameters of a call: relations (without the days) and functions."""
    return {"relations": list(relation_names()), "functions": list(function_names())}


def is_ours(kind: str, thing: str) -> bool:
    """Tell whether the package makes an object of this name, or its sweep does: a person's own may begin with `octop_` too.

    Example:
        >>> (
        ...     is_ours("function", "octop_cancel(id uuid)"),
        ...     is_ours("table", "octop_invoices"),
        ...     is_ours("table", "octop_tasks_done_20260131"),
        ... )
        (True, False, True)
    """
    if kind == "function":
        return thing.partition("(")[0] in function_names()
    return thing in relation_names() or _DAY.fullmatch(thing) is not None


def ownership_lines(schema: str, owner: str, others: Collection[str] = ()) -> tuple[str, ...]:
    """Return the lines for psql that give all objects of ours to their owner, the days too.

    Args:
        schema: Where.
        owner: The role that is to own them.
        others: Names that begin with ours, of what is not ours.
    """
    lines = (
        "select format('alter table %s owner to %I', c.oid::regclass, OWNER) from pg_class c where c.relnamespace = SCHEMA::regnamespace"
        " and c.relname ~ '^_?octop_'RELATIONS and (c.relkind in ('r', 'p', 'v') or c.relkind = 'S' and not exists (select from pg_depend d"
        " where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i'))) \\gexec",
        "select format('alter function %s owner to %I', p.oid::regprocedure, OWNER) from pg_proc p"
        " where p.pronamespace = SCHEMA::regnamespace and p.proname ~ '^_?octop_'FUNCTIONS \\gexec",
    )
    these = ", ".join(literal(each) for each in sorted(others))
    values = {
        "OWNER": literal(owner),
        "SCHEMA": literal(quoted(schema)),
        "RELATIONS": f" and c.relname not in ({these})" if these else "",
        "FUNCTIONS": f" and p.proname not in ({these})" if these else "",
    }
    return tuple(re.sub("OWNER|SCHEMA|RELATIONS|FUNCTIONS", lambda found: values[found[0]], line) for line in lines)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it should be.

    Attributes:
        id: Of the finding.
        what: What differs, in words.
        sql: What puts it right, for psql.
        hint: What else may be needed, in words: it depends on what can not be seen.
        again: Must functions, views and grants be put in place again, afterwards?
        grantee: Whose rights it is about.
    """

    id: str
    what: str
    sql: tuple[str, ...] = ()
    hint: str = ""
    again: bool = False
    grantee: str = ""
