"""SQL that a person is to run: names as SQL has them, quoted where need be."""

import re
from dataclasses import dataclass
from typing import Final

from octop.engine.script import quoted

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


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it should be.

    Attributes:
        id: Of the finding.
        what: What differs, in words.
        sql: What puts it right, for psql.
        again: Must functions, views and grants be put in place again, afterwards?
    """

    id: str
    what: str
    sql: tuple[str, ...] = ()
    again: bool = False
