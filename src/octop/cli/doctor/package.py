"""The package and its surroundings on this machine: no database is asked."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import octop
from octop.cli.doctor.kinds import found
from octop.cli.findings import Finding, shell
from octop.model.settings import Settings, masked_dsn, unknown_variables

OURS: Final = "octop-scheduler"
OTHER: Final = "octop"


def distributions(path: list[str] | None = None) -> Iterator[Finding]:
    """Look which distributions bring a package `octop`, and which one is imported.

    Args:
        path: Where to look; default: the import path of this process.
    """
    places = sys.path if path is None else path
    ours = _named(OURS, places)
    for other in _named(OTHER, places):
        yield found(
            "package.clash",
            f"the distribution octop {other.version} is installed in {_folder(other)}, and is not ours",
            shell(f"{_pip()} uninstall -y {OTHER}", f"{_pip()} install --force-reinstall {OURS}"),
        )
    if len(ours) > 1:
        said = tuple(f"{each.version} in {_folder(each)}" for each in ours)
        yield found(
            "package.twice",
            f"{len(ours)} copies of {OURS} are on the path",
            shell(f"rm -r {' '.join(shlex.quote(str(_files(each))) for each in ours[1:])}"),
            said,
        )
    imported = Path(octop.__file__).resolve().parent
    if ours and not any(_brings(each, imported) for each in ours):
        yield found(
            "package.elsewhere",
            f"octop {octop.__version__} is imported from {imported}, but {OURS} {ours[0].version} is installed in {_folder(ours[0])}",
            shell("unset PYTHONPATH   # or start Python elsewhere, with -P: the folder in front hides the package"),
        )


def _named(name: str, path: list[str]) -> list[metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    for each in metadata.distributions(name=name, path=path):
        # the same folder may stand on the path twice; importlib finds our name also where only the beginning is the same
        if re.sub(r"[-_.]+", "-", each.metadata["Name"] or "").lower() == name:
            found.setdefault(str(_files(each)), each)
    return list(found.values())


def _files(distribution: metadata.Distribution) -> Path:
    """Return the folder of its metadata: what makes it an installed distribution."""
    return Path(str(getattr(distribution, "_path", distribution.locate_file("")))).resolve()


def _folder(distribution: metadata.Distribution) -> Path:
    return Path(str(distribution.locate_file(""))).resolve()


def _brings(distribution: metadata.Distribution, package: Path) -> bool:
    if (_folder(distribution) / "octop").resolve() == package:
        return True
    text = distribution.read_text("direct_url.json")
    if not text:
        return False
    source = json.loads(text)
    if not source.get("dir_info", {}).get("editable"):
        return False
    return package.is_relative_to(Path(unquote(urlsplit(source["url"]).path)).resolve())


def _pip() -> str:
    return f"{shlex.quote(sys.executable)} -m pip"


def variables(environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Look for variables that look like ours and mean nothing."""
    for name, near in unknown_variables(environment).items():
        also = f"; did you mean {near}?" if near else ""
        yield found(
            "environment.unknown_variable", f"the variable {name} means nothing to Octop{also}", shell(f"unset {name}")
        )


def passwords(settings: Settings) -> Iterator[Finding]:
    """Look whether a file that holds the password can be read by others."""
    path = Path(re.sub(r":\d+$", "", settings.origins.get("dsn", "default")))  # a file and its line
    if settings.dsn is None or masked_dsn(settings.dsn) == settings.dsn or not path.is_file():
        return
    if path.stat().st_mode & 0o077:
        yield found(
            "environment.readable_password",
            f"{path} holds a password and can be read by others (mode {path.stat().st_mode & 0o777:03o})",
            shell(f"chmod 600 {shlex.quote(str(path))}"),
        )
