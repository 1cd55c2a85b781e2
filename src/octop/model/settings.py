"""Settings that start a process: which database, which schema, which application.

Flags > environment > octop.toml > ``[tool.octop]`` in pyproject.toml > default; each answer says where it comes from.
Settings that rule while a process runs are rows of ``octop_config``.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from octop.model.errors import DSN_HINT, ConfigurationError, InvalidSettingError, UnknownSettingError

KEYS: Final = ("dsn", "schema", "app")
ENVIRONMENT: Final = {"dsn": ("OCTOP_DSN", "DATABASE_URL"), "schema": ("OCTOP_SCHEMA",), "app": ("OCTOP_APP",)}
LIBPQ: Final = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT")
# Says nothing, so that libpq looks at its own variables; a name of our own would be seen as a wish of the user.
LIBPQ_DSN: Final = "fallback_application_name=octop"
DEFAULT_SCHEMA: Final = "public"
FILES: Final = ("octop.toml", "pyproject.toml")

VARIABLES: Final = (
    "OCTOP_DSN",
    "OCTOP_SCHEMA",
    "OCTOP_APP",
    "OCTOP_TASK_DSN",
    "OCTOP_ALERT_WEBHOOK",
    "OCTOP_ALERT_SECRET",
)
"""Every variable of ours. In the environment of a worker, OCTOP_TASK_DSN is the login of its tasks, and the last two are where alerts are
sent and what signs them.
"""
VARIABLES_OF_TESTS: Final = ("OCTOP_TEST_", "OCTOP_WALK_")

# What libpq takes: a URL, or words; nothing at all leaves everything to its own variables.
_DSN: Final = re.compile(r"\s*(?:postgres(?:ql)?://|(?:[a-z_]+\s*=|$))")
_HEADING: Final = re.compile(r"\s*\[\s*(?P<name>[^\[\]]+?)\s*\]\s*(?:#.*)?$")
_ANY_PASSWORD: Final = re.compile(r":[^:@/\s]*@")
_URL_PASSWORD: Final = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^:/?#@\s]*:)[^/?#\s]*(?=@)", re.IGNORECASE)
_WORD_PASSWORD: Final = re.compile(
    r"(?P<before>\b(?:password|sslpassword|passfile)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process starts with.

    Attributes:
        dsn: A URL or key=value words; None = the private development database.
        schema: Where Octop is installed.
        app: ``module:attribute`` of the application, or None.
        origins: Where each of the three comes from: ``argument``, ``OCTOP_DSN``, a file's path with the line
            (``/shop/octop.toml:2``), ``default``.
    """

    dsn: str | None
    schema: str
    app: str | None
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def app_folder(self) -> Path | None:
        """Return the folder of the settings file that names the application; None when something else does."""
        path = Path(re.sub(r":\d+$", "", self.origins.get("app", "default")))
        return path.parent if path.name in FILES else None

    def __repr__(self) -> str:
        """Return all but the passwords."""
        shown = None if self.dsn is None else masked_dsn(self.dsn)
        return f"Settings(dsn={shown!r}, schema={self.schema!r}, app={self.app!r}, origins={dict(self.origins)!r})"


def load_settings(
    *,
    dsn: str | None = None,
    schema: str | None = None,
    app: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Find the settings of this process.

    Args:
        dsn: What the caller or a flag says; None = nothing.
        schema: Likewise.
        app: Likewise.
        environment: Instead of ``os.environ``. An empty variable counts as unset.
        folder: Where to begin looking for octop.toml and pyproject.toml, upwards; default: the current folder.

    Returns:
        The settings, each with its origin.

    Raises:
        UnknownSettingError: A file holds a key that does not exist.
        InvalidSettingError: A value is not text, or the schema is no name.
        ConfigurationError: A file can not be read, or the DSN is none.
    """
    found: dict[str, str] = {}
    origins: dict[str, str] = {}
    given = {"dsn": dsn, "schema": schema, "app": app}
    sources = [
        {key: (value, "argument") for key, value in given.items() if value is not None},
        _from_environment(os.environ if environment is None else environment),
    ]
    # Files are looked for only if they can still say something.
    if not all(any(key in source for source in sources) for key in KEYS):
        sources.extend(_from_files(folder or Path.cwd()))
    for source in sources:
        for key, (value, origin) in source.items():
            if key not in found:
                found[key], origins[key] = value, origin
    for key in KEYS:
        origins.setdefault(key, "default")
    if "dsn" in found and not _DSN.match(found["dsn"]):
        raise _no_dsn(found["dsn"], origins["dsn"])
    name = found.get("schema", DEFAULT_SCHEMA)
    if not 1 <= len(name.encode()) <= 63 or not name.isprintable():
        place = "" if origins["schema"] == "argument" else f" (from {origins['schema']})"
        message = f"the schema {name!r}{place} is no name of 1 to 63 bytes"
        raise InvalidSettingError(message)
    return Settings(found.get("dsn"), name, found.get("app"), origins)


def masked_dsn(dsn: str) -> str:
    """Return a DSN without its passwords, in either form.

    Args:
        dsn: A URL or key=value words.

    Examples:
        >>> masked_dsn("postgresql://ann:secret@db/shop?sslpassword=other")
        'postgresql://ann:***@db/shop?sslpassword=***'
        >>> masked_dsn("host=db password='a b' dbname=shop")
        'host=db password=*** dbname=shop'
    """
    return _WORD_PASSWORD.sub(r"\g<before>***", _URL_PASSWORD.sub(r"\g<before>***", dsn))


def unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the variables that look like ours and are not, each with the name that may be meant.

    Args:
        environment: Instead of ``os.environ``.

    Example:
        >>> unknown_variables({"OCTOP_DNS": "postgresql://db/shop", "OCTOP_APP": "shop"})
        {'OCTOP_DNS': 'OCTOP_DSN'}
    """
    names = os.environ if environment is None else environment
    unknown = sorted(
        name
        for name in names
        if name.startswith("OCTOP_") and name not in VARIABLES and not name.startswith(VARIABLES_OF_TESTS)
    )
    if not unknown:
        return {}
    from difflib import get_close_matches  # noqa: PLC0415 - costs 3 ms, and most names are right

    return {name: next(iter(get_close_matches(name, VARIABLES, n=1)), None) for name in unknown}


def _no_dsn(dsn: str, origin: str) -> ConfigurationError:
    shown = _ANY_PASSWORD.sub(":***@", masked_dsn(dsn))
    place = "" if origin == "argument" else f" (from {origin})"
    message = f"the DSN {shown!r}{place} is not a PostgreSQL URL or key=value words"
    return ConfigurationError(message, hint=DSN_HINT)


Source = dict[str, tuple[str, str]]


def _from_environment(environment: Mapping[str, str]) -> Source:
    found: Source = {}
    for key, names in ENVIRONMENT.items():
        for name in names:
            if value := environment.get(name):
                found[key] = (value, name)
                break
    if "dsn" not in found and (libpq := [name for name in LIBPQ if environment.get(name)]):
        found["dsn"] = (LIBPQ_DSN, ", ".join(libpq))
    return found


def _from_files(folder: Path) -> list[Source]:
    """Return what octop.toml and then pyproject.toml say, each the nearest of its name that speaks of us."""
    found: list[Source] = []
    for name in FILES:
        for place in (folder, *folder.parents):
            path = place / name
            if path.is_file() and (table := _table(path)) is not None:
                found.append({key: (value, _place(path, key)) for key, value in _checked(table, path).items()})
                break
    return found


def _place(path: Path, key: str) -> str:
    """Return ``path:line``; the path alone where a key is written in a form that only a TOML parser finds."""
    table = "" if path.name == "octop.toml" else "tool.octop"
    here = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if heading := _HEADING.match(line):
            here = heading["name"]
        elif here == table and re.match(rf"\s*[\"']?{key}[\"']?\s*=", line):
            return f"{path}:{number}"
    return str(path)


def _table(path: Path) -> dict[str, object] | None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        if path.name != "octop.toml":
            return None  # somebody else's file: its own tools complain about it
        message = f"{path} can not be read: {error}"
        raise ConfigurationError(message) from error
    if path.name == "octop.toml":
        return document
    table = document.get("tool", {}).get("octop")
    return table if isinstance(table, dict) else None


def _checked(table: Mapping[str, object], path: Path) -> dict[str, str]:
    for key, value in table.items():
        if key not in KEYS:
            message = f"{path} holds an unknown key {key!r}"
            raise UnknownSettingError(
                message, hint=f"It may say {', '.join(KEYS)}. What rules at run time: octop config."
            )
        if not isinstance(value, str) or not value:
            message = f"{path}: {key} is text, not {value!r}" if key != "dsn" else f"{path}: dsn is text"
            raise InvalidSettingError(message)
    return {key: value for key, value in table.items() if isinstance(value, str)}
