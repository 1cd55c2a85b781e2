"""SQL that a person is to run: names as SQL has them, quoted where need be."""

import re
from dataclasses import dataclass
from typing import Final

from octop.engine.script import literal, quoted

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


def ownership_lines(schema: str, owner: str) -> tuple[str, ...]:
    """Return the lines for psql that give all objects of ours to their owner, the days too."""
    lines = (
        "select format('alter table %s owner to %I', c.oid::regclass, OWNER) from pg_class c where c.relnamespace = SCHEMA::regnamespace"
        " and c.relname ~ '^_?octop_' and (c.relkind in ('r', 'p', 'v') or c.relkind = 'S' and not exists (select from pg_depend d"
        " where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i'))) \\gexec",
        "select format('alter function %s owner to %I', p.oid::regprocedure, OWNER) from pg_proc p"
        " where p.pronamespace = SCHEMA::regnamespace and p.proname ~ '^_?octop_' \\gexec",
    )
    values = {"OWNER": literal(owner), "SCHEMA": literal(quoted(schema))}
    return tuple(re.sub("OWNER|SCHEMA", lambda found: values[found[0]], line) for line in lines)


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
