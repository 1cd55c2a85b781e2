"""Which databases applications may use while tests run: those made for tests, never a real one by accident."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from octop.model.errors import ConfigurationError

databases_of_tests: Final[list[str]] = []
"""DSNs of the test databases in use (``octop.testing``): while there are any, applications lead there or nowhere."""
runs_of_tests: Final[list[Sequence[str]]] = []
"""For each run of pytest in this process, the innermost last: patterns of names of databases that its tests may use."""
__tracebackhide__ = True  # a test that fails in here shows the line that called


def admit(dsn: str | None) -> None:
    """Refuse to let an application reach a database that no test is to touch. Outside of tests everything passes.

    A connection that the caller opened himself and handed over (``connection=``) is not asked about.

    Args:
        dsn: Where the application leads; None = the private development database.

    Raises:
        ConfigurationError: A test database is in use, and the application was not pointed at it; or pytest runs, and
            the database is neither a test's nor one that the setting ``octop_allow_databases`` names.
    """
    if databases_of_tests:
        # also as another role: the name of a test database is like no other
        if dsn not in databases_of_tests and _name(dsn) not in set(map(_name, databases_of_tests)):
            message = f"a test database is in use here, and this application still leads to {_shown(dsn)}"
            raise ConfigurationError(
                f"{message}: nothing was done",
                hint="Set octop_app = module:attribute in the pytest settings, override the fixture octop_app, or use"
                " `with octop_database.override(octop):`.",
            )
    elif runs_of_tests and not _is_allowed(_name(dsn), runs_of_tests[-1]):
        message = f"tests run here, none of their databases is in use, and this application leads to {_shown(dsn)}"
        raise ConfigurationError(
            f"{message}: nothing was done",
            hint="Let the test ask for the fixture octop_database. Or, if tests are to use this very database, name it in"
            " the pytest settings: octop_allow_databases = NAME, a pattern such as test_*, or * for any.",
        )


def _is_allowed(name: str, patterns: Sequence[str]) -> bool:
    from octop.engine.throwaway import is_throwaway  # noqa: PLC0415 - loads psycopg, and each run of pytest loads this

    return is_throwaway(name) or any(fnmatchcase(name, pattern) for pattern in patterns)


def _name(dsn: str | None) -> str:
    """Return the name of a database as libpq will find it; empty = it can not be told."""
    import psycopg  # noqa: PLC0415 - likewise
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - likewise

    if dsn is None:
        return ""
    try:
        said = conninfo_to_dict(dsn)
        if "service" in said and "dbname" not in said:
            return ""
        unsaid = {each.keyword.decode(): each.val for each in psycopg.pq.Conninfo.get_defaults()}
    except psycopg.Error:  # opening it says what is wrong with it
        return ""
    for word in ("dbname", "user"):
        if name := said.get(word) or (unsaid.get(word) or b"").decode():
            return str(name)
    return ""


def _shown(dsn: str | None) -> str:
    from octop.model.settings import masked_dsn  # noqa: PLC0415 - only an error needs it

    return "the private development database" if dsn is None else masked_dsn(dsn)
