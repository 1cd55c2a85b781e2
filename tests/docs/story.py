"""A page of the documents as a story: its blocks are run from top to bottom, by a real shell and a real psql.

What a block is, its language says; what is special about it, an HTML comment right above it, which no reader sees:

```bash       run by bash in the story's folder; exports and the current folder last until the end of the page
```console    `$ command` lines, each with what it prints below it; `…` stands for anything, a line of it for any lines
```sql        run by psql
```python, ini, toml, yaml, dockerfile, sql … whose first line names a file (`# tasks.py`, `-- report.sql`)
              make that file, or add to it
<!-- second terminal -->   (bash) goes on in the background; it gets Ctrl-C at the end of the page and must end with 0
<!-- second terminal, until: WORDS -->   the story goes on when it has printed them, as a reader would wait for them
<!-- at the end -->         is run when the second terminals have ended
<!-- as NAME -->           logs in as that role; SQL says it to its reader, with a first line `-- as NAME`
<!-- not run: REASON -->   is only parsed: bash -n, compile, YAML, TOML, INI

A page's own roles get names of their own in the test, for roles belong to the whole server: `Story(rename=…)`.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from tests import servers

BLOCK = re.compile(
    r"(?P<comments>(?:^<!-- [^\n]*? -->\n\n?)*)^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
AS_ROLE = re.compile(r"-- as (\w+)\n")
FILE_NAME = re.compile(r"(?:#|--|//) ([\w./-]+\.\w+|Dockerfile)(?:[:;].*)?\n")
RUNS = ("bash", "console", "sql", "python")
SECONDS_MAX = 60
PSQL_FLAGS = ("-X", "-v", "ON_ERROR_STOP=1", "-f", "-")
PSQL_BOUND = {"PGOPTIONS": "-c statement_timeout=30s"}
PASTED = "--- all of this block is pasted ---"


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: What stands behind the fence.
        body: The text between the fences.
        directives: The comments above it.
        line: Where it begins in the page.
    """

    language: str
    body: str
    directives: tuple[str, ...]
    line: int

    @property
    def file(self) -> str | None:
        """Return the file that the block makes, if its first line names one."""
        found = FILE_NAME.match(self.body)
        return None if found is None or self.language in ("bash", "console") else found[1]

    @property
    def why_not_run(self) -> str | None:
        """Return the reason for which it is only parsed."""
        return self.said("not run: ")

    @property
    def role(self) -> str | None:
        """Return the role that psql logs in as."""
        found = AS_ROLE.match(self.body) if self.language == "sql" else None
        return found[1] if found else self.said("as ")

    def said(self, beginning: str) -> str | None:
        """Return the rest of the comment that begins like this."""
        return next((each.removeprefix(beginning) for each in self.directives if each.startswith(beginning)), None)


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found["language"], found["body"], tuple(re.findall(r"<!-- (.*?) -->", found["comments"])), line)


def parse(block: Block) -> None:
    """Look at a block that can not be run here: it must at least be of its language."""
    match block.language:
        case "bash":
            subprocess.run(["bash", "-n"], input=block.body, text=True, check=True, capture_output=True)
        case "python":
            compile(block.body, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        case "yaml":
            assert list(yaml.safe_load_all(block.body))
        case "toml":
            assert tomllib.loads(block.body)
        case "ini":
            parser = configparser.ConfigParser(strict=False, interpolation=None)
            parser.read_string(block.body)
            assert parser.sections()
        case "sql":
            assert block.body.rstrip().endswith(";")
        case other:
            assert other not in RUNS, f"nothing parses {other}"


def libpq(url: str) -> dict[str, str]:
    """Return the variables by which libpq finds a database."""
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
    return {names[key]: str(value) for key, value in conninfo_to_dict(url).items() if key in names}


def plain_environment() -> dict[str, str]:
    """Return a reader's environment: our commands on the PATH, nothing that leads to a database."""
    tools = [str(Path(sys.executable).parent), str(Path(servers.psql()).parent)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "OCTOP_DSN", "DATABASE_"))}
    return {**kept, "PATH": os.pathsep.join([*tools, os.environ["PATH"]]), "PAGER": "", "NO_COLOR": "1"}


class Story:
    """Runs a page.

    Args:
        page: Which.
        folder: Where; the reader's fresh folder.
        url: The database to which libpq's variables lead; None = none.
        rename: Words of the page that are others in the test.
        more: Further variables of the environment.
        events: What has happened meanwhile, by the comment that says so.
        one_psql: All SQL is pasted into one psql, as its login, whoever it is for; else each block gets a psql of its own.
    """

    def __init__(
        self,
        page: Path,
        folder: Path,
        *,
        url: str | None = None,
        rename: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
        events: Mapping[str, Callable[[], object]] | None = None,
        one_psql: bool = False,
    ) -> None:
        self.page = page
        self.folder = folder
        self.printed: list[str] = []
        self._environment = {**plain_environment(), **(libpq(url) if url else {}), **(more or {})}
        self._rename = dict(rename or {})
        self._events = dict(events or {})
        self._behind: list[tuple[Block, subprocess.Popen[bytes]]] = []
        self._one_psql = one_psql
        self._psql_session: subprocess.Popen[str] | None = None
        self._state = folder / ".story"
        self._state.mkdir(exist_ok=True)

    def __enter__(self) -> Story:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _frames: TracebackType | None) -> None:
        if self._psql_session is not None:
            self._psql_session.communicate()
        self.close_second_terminals(failed=kind is not None)

    def close_second_terminals(self, *, failed: bool = False) -> None:
        """Press Ctrl-C in each and see it end."""
        while self._behind:
            block, process = self._behind.pop()
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            try:
                code = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            # a web server says by its code that a signal ended it
            if not failed and code not in ((0,) if "octop" in block.body else (0, 130, -signal.SIGINT)):
                self._fail(block, f"in the second terminal it ended with {code}:\n{self.log()}")

    def log(self) -> str:
        """Return what was printed in the second terminal."""
        return "".join(each.read_text() for each in sorted(self._state.glob("*.log")))

    def run(self, *, only: Sequence[str] = (), without: Sequence[str] = ()) -> Story:
        """Run the page to its end.

        Args:
            only: These languages alone; () = all.
            without: Not these languages: the test does something of its own with them.
        """
        for block in blocks_of(self.page):
            if block.language in without or (only and block.language not in only):
                continue
            self.step(block)
        return self

    def command(self, line: str) -> str:
        """Run one more line, as the reader would, and return what it prints."""
        return self._shell(Block("bash", line, (), 0), line)

    def step(self, block: Block) -> None:
        """Run, write or parse one block."""
        if block.why_not_run is not None:
            try:
                parse(block)
            except (
                subprocess.CalledProcessError,
                SyntaxError,
                ValueError,
                yaml.YAMLError,
                configparser.Error,
            ) as error:
                self._fail(block, f"it does not parse: {error}")
            return
        for each in block.directives:
            if each in self._events:
                self._events[each]()
        if "at the end" in block.directives:
            self.close_second_terminals()
        body = self.renamed(block.body)
        if block.file is not None:
            self._write(block.file, body)
        elif block.language == "bash" and block.said("second terminal") is not None:
            self._begin(block, body)
        elif block.language == "bash":
            self.printed.append(self._shell(block, body))
        elif block.language == "console":
            self._dialogue(block, body)
        elif block.language == "sql":
            self.printed.append(self._psql(block, body))
        elif block.language in RUNS:
            self._fail(block, "it names no file and nothing runs it")

    def renamed(self, text: str) -> str:
        for word, other in self._rename.items():
            text = re.sub(rf"(?<![\w]){re.escape(word)}", other, text)
        return text

    def _write(self, name: str, body: str) -> None:
        goal = self.folder / name
        goal.parent.mkdir(parents=True, exist_ok=True)
        with goal.open("a") as file:
            file.write(("\n\n" if file.tell() else "") + body)

    def _shell(self, block: Block, body: str) -> str:
        script = f"{self._prelude()}\n{body}\n{{ export -p | grep -v ' PGUSER='; printf 'cd %q\\n' \"$PWD\"; }} > {self._state}/env\n"
        answer = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._login(block),
            text=True,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if answer.returncode:
            self._fail(block, f"it ended with {answer.returncode}:\n{answer.stdout}\n{answer.stderr}\n{self.log()}")
        return answer.stdout

    def _login(self, block: Block) -> dict[str, str]:
        return {**self._environment, **({"PGUSER": self.renamed(block.role)} if block.role else {})}

    def _prelude(self) -> str:
        return f"set -euo pipefail\nif [ -f {self._state}/env ]; then . {self._state}/env; fi"

    def _begin(self, block: Block, body: str) -> None:
        (command,) = [line for line in body.splitlines() if line and not line.startswith("#")]
        log = self._state / f"{len(self._behind)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"{self._prelude()}\nexec {command}"],
                cwd=self.folder,
                env=self._login(block),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._behind.append((block, process))
        awaited = (block.said("second terminal, until: ") or "").encode()
        deadline = time.monotonic() + SECONDS_MAX
        while awaited not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                self._fail(block, f"it has not printed {awaited!r}:\n{self.log()}")
            time.sleep(0.01)

    def _dialogue(self, block: Block, body: str) -> None:
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, expected = _split(part)
            printed = self._shell(block, command)
            self.printed.append(printed)
            if not _looks_like(expected, printed):
                self._fail(block, f"{command}\nprinted\n{printed}\nand the page says\n{expected}")

    def _paste(self, block: Block, body: str) -> str:
        """Paste into the one psql and return what it prints, errors too."""
        if self._psql_session is None:
            self._psql_session = subprocess.Popen(
                [servers.psql(), *PSQL_FLAGS],
                cwd=self.folder,
                env={**self._environment, **PSQL_BOUND},
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        into, out = self._psql_session.stdin, self._psql_session.stdout
        assert into is not None
        assert out is not None
        into.write(f"{body}\n\\echo {PASTED}\n")
        into.flush()
        printed = []
        for line in out:
            if line.rstrip() == PASTED:
                break
            printed.append(line)
        else:
            self._fail(block, f"the one psql ended:\n{''.join(printed)}")
        return "".join(printed)

    def _psql(self, block: Block, body: str) -> str:
        if self._one_psql:
            return self._paste(block, body)
        answer = subprocess.run(
            [servers.psql(), *PSQL_FLAGS],
            cwd=self.folder,
            env={**self._login(block), **PSQL_BOUND},
            input=body,
            text=True,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        if answer.returncode:
            self._fail(block, f"psql ended with {answer.returncode}:\n{answer.stdout}\n{answer.stderr}")
        return answer.stdout

    def _fail(self, block: Block, why: str) -> NoReturn:
        pytest.fail(f"{self.page.relative_to(servers.HOUSE)}:{block.line} ({block.language}): {why}\n{block.body}")


def _split(part: str) -> tuple[str, str]:
    """Split one dialogue into the command, with its continued lines, and what it prints."""
    lines = part.splitlines()
    end = 1
    while lines[end - 1].endswith("\\"):
        end += 1
    return "\n".join(lines[:end]), "\n".join(lines[end:])


def _looks_like(expected: str, printed: str) -> bool:
    lines, found = ([line for line in text.splitlines() if line.strip()] for text in (expected, printed))
    return _fits(lines, found, lambda line, other: _fits(line.split(), other.split(), _same_word))


def _same_word(expected: str, printed: str) -> bool:
    return re.fullmatch(re.escape(expected).replace("…", ".*"), printed) is not None


def _fits(expected: Sequence[str], found: Sequence[str], same: Callable[[str, str], bool]) -> bool:
    """Compare two lists, of which the first may have `…` for any number: in steps, where one pattern for all would try for minutes."""
    ends = {0}
    for each in expected:
        if each.strip() == "…":
            ends = set(range(min(ends), len(found) + 1)) if ends else ends
        else:
            ends = {n + 1 for n in ends if n < len(found) and same(each, found[n])}
    return len(found) in ends
