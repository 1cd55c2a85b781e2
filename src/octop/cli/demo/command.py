"""`octop demo`: starts everything, lets the story happen, and takes everything away again."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column
from octop.cli.demo.lines import Lines
from octop.cli.demo.picture import Picture
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION
from octop.cli.output import COLOURS
from octop.cli.program import typed_name
from octop.cli.worker_process import WorkerProcess, worker_process
from octop.model.errors import OctopError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octop.cli.demo.story import Story

TICK_SECONDS: Final = 0.2
OPENING_SECONDS_MAX: Final = 20.0
"""So long the worker may take to appear before the seconds of `--seconds` begin."""

SETTLE_SECONDS_MAX: Final = 60.0
"""A kind that has not reached its end by then is a fault."""

SETTINGS: Final = {"worker.heartbeat_seconds": 0.5, "worker.rescue_seconds": 0.5}
"""Often, so that the lease can be short when the task that kills its process comes; see `story`."""

WORKER: Final = (
    "-A",
    "octop.cli.demo.tasks:octop",
    "--processes",
    "2",
    "--name",
    "demo",
    "-q",
    "default=20,bulk=500,tickets=1",
)

NEXT: Final = (
    ("migrate", "a database that keeps its data"),
    ("worker -A octop.cli.demo.tasks:octop", "run these very tasks in it, and"),
    ("enqueue greet name=you --wait", "in another terminal enqueue one"),
    ("tasks list", "see it; --help has the rest"),
)

COLUMNS: Final = (
    Column(""),
    Column("kind"),
    Column("what it does", width_min=20, rank=1),
    Column("status"),
    Column("seen", width_min=20),
)

MARKS: Final = {True: "ok", False: "WRONG", None: "?"}


@click.command(short_help="See Octop work, on a PostgreSQL of its own.")
@click.option("--seconds", type=DURATION, metavar="N", help="End by itself after so many seconds of show.")
@global_options(reads=True)
@pass_invocation
def demo(invocation: Invocation, seconds: float | None) -> int:
    """Start a private PostgreSQL, a worker with two processes, one task of every kind; watch, check, delete it all.

    On a terminal it goes on until Ctrl-C. Elsewhere it ends when every kind of task has reached its end. Exit code 1
    when one of them ended in another way than it must.
    """
    live = sys.stdout.isatty() and not invocation.as_json
    picture = Picture("")
    picture.ends = f"ends after {seconds:.0f} s" if seconds else "Ctrl-C ends" if live else ""
    show = _Show(invocation, picture, seconds=seconds, live=live)
    # Ctrl-C is the normal end; a second one, while everything is being stopped, only hurries.
    with contextlib.suppress(KeyboardInterrupt):
        show.run()
    return show.conclude()


class _Show:
    def __init__(self, invocation: Invocation, picture: Picture, *, seconds: float | None, live: bool) -> None:
        self._invocation = invocation
        self._output = invocation.output
        self._picture = picture
        self._seconds = seconds
        self._live = live
        self._story: Story | None = None
        self._interrupted = False
        self._began = time.monotonic()
        self._story_began = 0.0
        self._opened_at: float | None = None
        self._checks: dict[str, object] = {}

    def run(self) -> None:
        """Start everything, let it happen, stop everything."""
        from octop.engine import private_database  # noqa: PLC0415 - help need not load psycopg
        from octop.engine.connect import open_connection  # noqa: PLC0415 - as above
        from octop.engine.install import install  # noqa: PLC0415 - as above

        with contextlib.ExitStack() as stack:
            self._say("starting a private PostgreSQL …")
            # What is needed later is loaded meanwhile: half of the time until something is to be seen is spent importing.
            threading.Thread(target=importlib.import_module, args=("octop.cli.demo.story",), daemon=True).start()
            database = stack.enter_context(private_database.temporary())
            self._picture.psql = f"psql -h {database.socket_directory} -U octop octop"
            self._say(f"look for yourself while it runs: {self._picture.psql}")
            self._say("installing the schema …")
            install(database.url)
            folder = Path(tempfile.mkdtemp(prefix="octop-demo-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            connection = stack.enter_context(
                contextlib.closing(open_connection(database.url, application_name="octop demo", schema="public"))
            )
            self._configure(connection)
            self._say("starting a worker with two processes …")
            environment = {"OCTOP_DSN": database.url, "OCTOP_SCHEMA": "public"}
            worker = stack.enter_context(worker_process(WORKER, environment, folder / "worker.log"))
            os.environ.update(environment)  # the application below reads them, like any other
            version = str(connection.info.server_version)[:2]
            self._picture.title = f"PostgreSQL {version}, a worker with two processes"
            stack.callback(self._say, "stopping …")
            self._happen(connection, worker)

    def _configure(self, connection: Any) -> None:
        from octop.engine import calls  # noqa: PLC0415 - loads psycopg
        from octop.engine.call import run  # noqa: PLC0415 - loads psycopg

        for key, value in SETTINGS.items():
            run(connection, calls.octop_config_set(key, str(value)))

    def _happen(self, connection: Any, worker: WorkerProcess) -> None:
        from octop.cli.demo.story import Story  # noqa: PLC0415 - loads the demo's application, which reads OCTOP_DSN

        self._story = Story(connection, self._picture, trickle=self._live or self._seconds is not None)
        with self._shown() as refresh, self._until_ctrl_c():
            self._story_began = time.monotonic()
            self._story.begin()
            while not self._over():
                self._story.step()
                refresh()
                if worker.ended is not None:
                    message = f"the worker of the demo ended by itself, with exit code {worker.ended}"
                    raise OctopError(message, detail=worker.last_words())
                time.sleep(TICK_SECONDS)

    @contextlib.contextmanager
    def _until_ctrl_c(self) -> Iterator[None]:
        """Take Ctrl-C as a wish, looked at between two steps: an exception may be raised where Python swallows it, in a finalizer."""

        def wish(_number: int, _frame: object) -> None:
            self._interrupted = True

        before = signal.signal(signal.SIGINT, wish)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _over(self) -> bool:
        """Set the clock, and tell whether it is time to end."""
        now = time.monotonic()
        waited = now - self._story_began
        if self._opened_at is None and (self._picture.workers or waited > OPENING_SECONDS_MAX):
            self._opened_at = now
        self._picture.since_start = now - self._began
        # The clock that is shown is that of --seconds: it runs as soon as a worker is there.
        self._picture.seconds = now - (self._opened_at or now)
        if self._interrupted:
            return True
        if self._seconds is not None:
            # What is shown is what counts: a machine that is slow to start shows as much as a fast one.
            return self._opened_at is not None and self._picture.seconds >= self._seconds
        return not self._live and (self._picture.settled or waited > SETTLE_SECONDS_MAX)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Callable[[], None]]:
        if not self._live:
            yield Lines(self._picture, self._output).refresh
            return
        from rich.live import Live  # noqa: PLC0415 - rich costs 60 ms

        from octop.cli.demo.view import View  # noqa: PLC0415 - loads rich

        with Live(View(self._picture), console=self._output.console(), screen=True, auto_refresh=False) as live:
            yield live.refresh

    def _say(self, text: str) -> None:
        self._output.say(f"octop demo: {text}")

    def conclude(self) -> int:
        """Print what was seen and what to type next; return the exit code."""
        picture = self._picture
        if self._story is None:
            self._say("ended before it began")
            return 0
        waited = time.monotonic() - self._story_began
        wrong = [
            each for each in picture.kinds if each.okay is False or (each.okay is None and waited > SETTLE_SECONDS_MAX)
        ]
        open_ = [each.name for each in picture.kinds if each.okay is None]
        if self._invocation.as_json:
            self._output.json(self._summary(ok=not wrong))
        else:
            self._print(picture)
        if wrong:
            self._output.warn(f"not as it must be: {', '.join(f'{each.name} ({each.status})' for each in wrong)}")
        elif open_:
            self._output.say(f"Still on the way when it ended: {', '.join(open_)}.")
        from octop.cli.demo import tasks  # noqa: PLC0415 - loaded long ago, by the story

        octop, width = typed_name(), max(len(words) for words, _ in NEXT)
        lines = [f"  {octop} {words:<{width}}  {says}" for words, says in NEXT]
        self._output.say(
            "\n".join(
                ["", "What to type next:", *lines, "The tasks of this demo, to copy from:", f"  {tasks.__file__}"]
            )
        )
        return 1 if wrong else 0

    def _print(self, picture: Picture) -> None:
        self._output.table(
            COLUMNS,
            [[MARKS[each.okay], each.name, each.says, each.status, each.note] for each in picture.kinds],
        )
        counts = ", ".join(f"{picture.counts[status]:,} {status}" for status in COLOURS if picture.counts.get(status))
        self._output.line(counts)

    def _summary(self, *, ok: bool) -> dict[str, object]:
        picture, story = self._picture, self._story
        if story is None:
            return {"ok": ok}
        return {
            "ok": ok,
            "seconds": round(picture.seconds, 2),
            "seconds_since_start": round(picture.since_start, 2),
            "first_finished_seconds": round(picture.first_finished_seconds or 0, 2) or None,
            "counts": {status: picture.counts.get(status, 0) for status in COLOURS},
            "rates": {
                "bulk_enqueued_per_second": round(20_000 / max(story.bulk_seconds, 1e-3)),
                "finished_per_second_peak": round(max(picture.rates, default=0)),
            },
            "checks": story.checks(),
            "kinds": [
                {
                    "kind": each.name,
                    "task_type": each.task_type,
                    "status": each.status,
                    "expected": each.expected,
                    "ok": each.okay,
                    "tasks": each.total,
                    "note": each.note,
                }
                for each in picture.kinds
            ],
        }
