"""`octop init`: write the files of a new project that are missing, all or none, and never over anybody's work."""

from __future__ import annotations

import contextlib
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.program import typed_name
from octop.model.errors import ConfigurationError, WouldOverwriteError

TASKS: Final = "tasks.py"
TOML: Final = "octop.toml"
FILES: Final = (TASKS, TOML)
RUFF: Final = ".ruff.toml"
RUFF_NAMES: Final = (".ruff.toml", "ruff.toml")

EXAMPLE: Final = "send_welcome user_id=42"
NEXT: Final = (
    ("dev", "a database, the schema and a worker, until Ctrl-C; then, in another terminal:"),
    (f"enqueue {EXAMPLE} --wait", "run one of your tasks and see its result"),
    ("top", "watch them all"),
)


@click.command(short_help="Write tasks.py, octop.toml and .ruff.toml to begin with.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Write over tasks.py and octop.toml that are there.")
@global_options(reads=True)
@pass_invocation
def init(invocation: Invocation, directory: Path, force: bool) -> None:
    """Write what a project needs into DIR (here, if none is named), with comments.

    \b
    tasks.py     three tasks that run: async, in a thread, in a process
    octop.toml   which application, and where a database is named
    .ruff.toml   rules for task modules, each with its reason

    With DIR, and no database named, octop.toml gives the project a schema of that name: all projects share the private
    database, and so do not meet there.

    What is there already stays; when tasks.py and octop.toml both are, nothing is written (exit code 8). Where ruff is
    configured already, nothing is changed: what to add is printed.
    """
    kept = [] if force else [name for name in FILES if (directory / name).exists()]
    if len(kept) == len(FILES):
        message = f"{' and '.join(str(directory / name) for name in kept)} are there already"
        raise WouldOverwriteError(
            message, hint="Nothing was written. Another folder: octop init DIR; write over: --force"
        )
    ruff = _ruff_of(directory)
    texts = {name: _text(name) for name in FILES if name not in kept}
    schema = "" if str(directory) == "." or invocation.settings.dsn is not None else _schema_of(directory)
    if schema and TOML in texts:
        texts[TOML] = texts[TOML].replace('# schema = "public"', f'schema = "{schema}"')
    if TASKS in kept:
        texts[TOML] = texts[TOML].replace('app = "tasks:octop"', 'app = "tasks"')  # whatever it calls its application
    if ruff is None:
        texts[RUFF] = _text("contract.toml")
    _write(directory, texts)
    rules = "" if ruff is None or _same(ruff) else _rules(ruff)
    if invocation.as_json:
        invocation.output.json(
            {
                "directory": str(directory.resolve()),
                "written": list(texts),
                "kept": kept,
                "ruff": None if ruff is None else str(ruff),
                "add": rules or None,
            }
        )
        return
    for name in texts:
        invocation.output.line(f"wrote {directory / name}")
    for name in kept:
        invocation.output.say(f"{directory / name} was there and stays as it is (write over: --force)")
    if rules:
        invocation.output.say(f"\n{ruff} configures ruff already; the contract of task modules, to add there:\n")
        invocation.output.line(rules)
    _say_next(invocation, directory, ours=not kept)


def _schema_of(directory: Path) -> str:
    """Return the folder's name as the name of a schema; "" = it is none without quotes."""
    plain = re.sub(r"[^a-z0-9]+", "_", directory.resolve().name.lower()).strip("_")
    return plain if re.match("(?!pg_|public$|information_schema$)[a-z]", plain) and len(plain) < 64 else ""


def _say_next(invocation: Invocation, directory: Path, *, ours: bool) -> None:
    octop = typed_name()
    follow = [(words if ours else words.replace(EXAMPLE, "TYPE name=value"), says) for words, says in NEXT]
    width = max(len(words) for words, _ in follow)
    first = [] if directory.resolve() == Path.cwd() else [f"  cd {directory}"]
    lines = [f"  {octop} {words:<{width}}  {says}" for words, says in follow]
    invocation.output.say("\n".join(["", "What to type next:", *first, *lines]))


def _text(name: str) -> str:
    return resources.files("octop.cli.project").joinpath(name).read_text(encoding="utf-8")


def _ruff_of(directory: Path) -> Path | None:
    """Return the file that configures ruff for a folder: ruff takes the nearest one and merges none, so ours would hide it."""
    here = directory.resolve()
    for folder in (here, *here.parents):
        for name in RUFF_NAMES:
            if (folder / name).is_file():
                return folder / name
        if _is_in_pyproject(folder / "pyproject.toml"):
            return folder / "pyproject.toml"
        if (folder / ".git").exists():
            return None
    return None


def _is_in_pyproject(path: Path) -> bool:
    try:
        return "ruff" in tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def _same(ruff: Path) -> bool:
    return ruff.name in RUFF_NAMES and ruff.read_text(encoding="utf-8", errors="replace") == _text("contract.toml")


def _rules(ruff: Path) -> str:
    """Return our rules as they are written in the file that is there: tables of pyproject.toml begin with tool.ruff."""
    text = _text("contract.toml")
    text = text[text.index("[lint]") :].rstrip()
    return (
        text.replace("\n[lint", "\n[tool.ruff.lint").replace("[lint]", "[tool.ruff.lint]", 1)
        if (ruff.name == "pyproject.toml")
        else text
    )


def _write(directory: Path, texts: dict[str, str]) -> None:
    """Write all files, or none: what was there before comes back when one of them cannot be written."""
    before = {name: _read(directory / name) for name in texts}
    made: list[Path] = []
    try:
        for folder in reversed([folder for folder in (directory, *directory.parents) if not folder.exists()]):
            folder.mkdir()
            made.append(folder)
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        for name, old in before.items():
            with contextlib.suppress(OSError):
                (directory / name).unlink() if old is None else (directory / name).write_bytes(old)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        message = f"{error.filename or directory} cannot be written: {error.strerror}"
        raise ConfigurationError(message, hint="Nothing was left behind.") from error


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
