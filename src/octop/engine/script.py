"""The one script that installs or upgrades the schema: run by ``octop migrate``, printed for a DBA by ``octop sql install``.

It is a single transaction and harmless to repeat. Migrations run once each and are remembered with their checksum; functions,
views and grants are the present state and are put in place again.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from octop.model.errors import ConfigurationError

ROLES: Final = ("owner", "producer", "worker", "operator", "viewer")
FUNCTIONS: Final = "functions"
# Groups below this number stand on no table: they run before the migrations, whose defaults use them.
PRELUDE_BELOW: Final = 15

# :"name" an identifier, :'name' a literal, as in psql.
_VARIABLE: Final = re.compile(r""":(["'])(\w+)\1""")
_RELATION: Final = re.compile(
    r"^create (?:or replace )?(?:unlogged )?(?:table|view|sequence|(?:unique )?index)(?: if not exists)? (\w+)",
    re.MULTILINE,
)
_TABLE: Final = re.compile(r"^create (?:unlogged )?(?:table|sequence) (\w+)", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^create (?:or replace )?(?:function|procedure) (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SqlFile:
    """One file of the engine.

    Attributes:
        name: File name, as remembered in ``octop_migrations``.
        text: Its SQL.
    """

    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Return the SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the objects live and to whom they belong.

    Attributes:
        schema: Name of the schema, at most 63 bytes.
        role_prefix: Before ``owner``, ``producer``, ``worker``, ``operator`` and ``viewer``.
    """

    schema: str = "public"
    role_prefix: str = "octop_"

    def __post_init__(self) -> None:
        """Refuse names that PostgreSQL would cut or refuse."""
        for what, name, room in (("schema", self.schema, 63), ("role prefix", self.role_prefix, 55)):
            # $octop would end a dollar-quoted block of the script
            odd = "\x00" in name or "$octop" in name or name.startswith("pg_") or name == "information_schema"
            if not name or len(name.encode()) > room or odd:
                message = f"the {what} {name!r} is no usable name"
                raise ConfigurationError(
                    message, hint=f"1 to {room} bytes, not PostgreSQL's own (pg_…, information_schema), without $octop."
                )

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the identifiers that the files name as ``:"name"``."""
        return {"schema": self.schema, **{role: f"{self.role_prefix}{role}" for role in ROLES}}


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as an SQL literal that means the same under any setting."""
    body = text.replace("'", "''")
    if "\\" not in text:
        return f"'{body}'"
    doubled = body.replace("\\", "\\\\")
    return f"E'{doubled}'"


def _files(folder: str) -> tuple[SqlFile, ...]:
    found = (entry for entry in resources.files("octop.sql").joinpath(folder).iterdir() if entry.name.endswith(".sql"))
    return tuple(
        SqlFile(entry.name, entry.read_text(encoding="utf-8")) for entry in sorted(found, key=lambda e: e.name)
    )


def migrations() -> tuple[SqlFile, ...]:
    """Return the migrations in their order."""
    return _files("migrations")


def functions() -> tuple[SqlFile, ...]:
    """Return the function groups in their order."""
    return _files("functions")


def functions_checksum() -> str:
    """Return one checksum for the present state of all function groups."""
    return hashlib.sha256("".join(file.checksum for file in functions()).encode()).hexdigest()


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: (quoted if found[1] == '"' else literal)(values[found[2]]), text)


def filled_file(folder: str, name: str, values: Mapping[str, str]) -> str:
    """Return one file of a folder, ``NN_name.sql``, with its variables filled in.

    Args:
        folder: Below ``octop.sql``.
        name: Without number and ending.
        values: By variable: ``:"x"`` becomes an identifier, ``:'x'`` a literal.
    """
    (file,) = (file for file in _files(folder) if file.name.endswith(f"_{name}.sql"))
    return _filled(file.text, values)


def _group(file: SqlFile) -> int:
    return int(file.name[:2])


def _part(name: str) -> str:
    (file,) = (file for file in _files("install") if file.name.endswith(f"_{name}.sql"))
    return file.text


def relation_names() -> tuple[str, ...]:
    """Return the names of the tables, views, sequences and indexes that the installer makes, by their order in the files."""
    texts = (_part("register"), *(file.text for file in (*migrations(), *functions())))
    return tuple(name for text in texts for name in _RELATION.findall(text))


def table_names() -> tuple[str, ...]:
    """Return the names of the tables and sequences that the migrations make; everything else is made again at each install."""
    return tuple(name for file in migrations() for name in _TABLE.findall(file.text))


def function_names() -> tuple[str, ...]:
    """Return the names of the functions that the installer makes, each once."""
    return tuple(dict.fromkeys(name for file in functions() for name in _FUNCTION.findall(file.text)))


def opening(place: Place, *, present: bool = False) -> str:
    """Return the first part: one transaction, one installer at a time, checks, schema and roles.

    Args:
        place: Where and whose.
        present: Refuse where nothing is installed yet.
    """
    parts = ("opening", *(("present",) if present else ()), "prefix", "names", "place")
    values = {**place.variables, "names": ",".join(relation_names()), "functions": ",".join(function_names())}
    return "".join(_filled(_part(name), values) for name in parts)


def body(place: Place, version: str) -> str:
    """Return the second part: migrations, functions, views, grants, days."""
    files = functions()
    prelude = [_filled(file.text, place.variables) for file in files if _group(file) < PRELUDE_BELOW]
    steps = [
        _filled(
            _part("migration"), {"name": file.name, "text": file.text, "checksum": file.checksum, "version": version}
        )
        for file in migrations()
    ]
    rest = [f"-- {file.name}\n{_filled(file.text, place.variables)}" for file in files if _group(file) >= PRELUDE_BELOW]
    register = _filled(_part("register"), {"known": ",".join((*(file.name for file in migrations()), FUNCTIONS))})
    locks = _filled(_part("locks"), {**place.variables, "names": ",".join(relation_names())})
    whole = _filled(_part("whole"), {**place.variables, "tables": ",".join(table_names())})
    closing = _filled(_part("closing"), {"checksum": functions_checksum(), "version": version})
    return "\n".join([*prelude, register, locks, *steps, whole, *rest, closing])


def install_script(place: Place, version: str, *, upgrade: bool = False) -> str:
    """Return the whole script for ``psql -f``: one transaction, harmless to repeat.

    Args:
        place: Where and whose.
        version: Of this package.
        upgrade: Refuse where nothing is installed yet: another schema was meant.
    """
    producer, worker = quoted(place.variables["producer"]), quoted(place.variables["worker"])
    return "\n".join(
        [
            f"-- Octop {version}: installs or upgrades schema {quoted(place.schema)}. One transaction; harmless to repeat.",
            f"-- Roles are created NOLOGIN with the prefix {place.role_prefix}; give them to your logins, for example:",
            f"--   GRANT {producer}, {worker} TO my_app;",
            "\\set ON_ERROR_STOP on",
            opening(place, present=upgrade) + body(place, version),
            "commit;",
            _filled(_part("done"), {**place.variables, "version": version}),
        ]
    )


def uninstall_script(place: Place, version: str, *, force: bool = False, roles: bool = False) -> str:
    """Return the script that takes away what the installer made, for ``psql -f``: one transaction, all or nothing.

    Args:
        place: Where it was installed.
        version: Of this package, for the first line.
        force: Also while workers live; their next call fails.
        roles: The roles too; refused while another schema or database needs them.
    """
    start, end = _files("uninstall")
    flags = {"force": str(force).lower(), "roles": str(roles).lower()}
    ours = {"names": ",".join(relation_names()), "functions": ",".join(function_names())}
    return "\n".join(
        [
            f"-- Octop {version}: removes schema {quoted(place.schema)}'s objects with ALL TASKS AND HISTORY. There is no way back.",
            "\\set ON_ERROR_STOP on",
            "".join(_filled(text, place.variables) for text in (start.text, _part("present"), _part("prefix")))
            + _filled(end.text, {**place.variables, **flags, **ours}),
        ]
    )


def grants_script(place: Place) -> str:
    """Return the grants alone, for review."""
    (file,) = (file for file in functions() if file.name.endswith("_grants.sql"))
    return _filled(
        'begin;\nset local standard_conforming_strings = on;\nset local role :"owner";\nset local search_path = :"schema", pg_temp;\n'
        + file.text
        + "commit;\n",
        place.variables,
    )
