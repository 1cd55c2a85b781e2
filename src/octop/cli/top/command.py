"""`octop top`: starts the reader, hears keys, draws, and gives the terminal back."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation

if TYPE_CHECKING:
    from octop.engine.connect import EngineConnection

KEY_SECONDS: Final = 0.2
"""So often the picture is drawn anew; a key is answered at once."""

CONNECT_SECONDS: Final = 2
WIDTH_WITHOUT_TERMINAL: Final = 140


@click.command(short_help="Watch queues, workers and tasks live, and act with keys.")
@click.option("--once", is_flag=True, help="Print one look as text and end; without a terminal this is what happens.")
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@global_options(reads=True)
@pass_invocation
def top(invocation: Invocation, once: bool, interval: float) -> int:
    """Watch queues, workers, running tasks and latest failures, live.

    \b
    ↑ ↓ j k  select      Tab  next part      ?  help      q  quit
    p  pause or resume the queue      r  retry the failed task      c  cancel the task

    Acts are asked about first. One connection, a few bounded reads a second. --once and --json look twice, --interval
    apart, because a rate is a difference.
    """
    live = sys.stdout.isatty() and sys.stdin.isatty() and not (once or invocation.as_json)
    return _live(invocation, interval) if live else _once(invocation, interval)


def _once(invocation: Invocation, interval: float) -> int:
    from octop.cli.top.snapshot import Rates, as_json, look  # noqa: PLC0415 - help need not load psycopg

    rates = Rates()
    with invocation.connection() as connection:
        place = _place(connection)
        rates.take(look(connection), time.monotonic())
        time.sleep(interval)
        snapshot = look(connection)
        rates.take(snapshot, time.monotonic())
    if invocation.as_json:
        invocation.output.json(as_json(snapshot, rates))
        return 0
    from octop.cli.top.view import frame  # noqa: PLC0415 - rich costs 60 ms

    console = invocation.output.console()
    width = console.width if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    console.width = width
    console.print(frame(place, snapshot, rates, width), no_wrap=True, crop=False)
    return 0


def _live(invocation: Invocation, interval: float) -> int:
    from rich.live import Live  # noqa: PLC0415 - rich costs 60 ms

    from octop.cli.top.reader import Reader  # noqa: PLC0415 - loads psycopg
    from octop.cli.top.screen import Screen  # noqa: PLC0415 - as above
    from octop.cli.top.snapshot import look  # noqa: PLC0415 - as above
    from octop.cli.top.terminal import Keyboard  # noqa: PLC0415 - as above
    from octop.cli.top.view import View  # noqa: PLC0415 - as above
    from octop.engine.connect import open_connection  # noqa: PLC0415 - as above

    with invocation.connection() as connection:  # what is wrong from the start ends the command as any other
        place = _place(connection)
        first = look(connection)
    dsn, schema = invocation.database_url, invocation.settings.schema

    def connect() -> EngineConnection:
        return open_connection(dsn, application_name="octop top", schema=schema, connect_timeout=CONNECT_SECONDS)

    reader, screen, keyboard = Reader(connect, interval_seconds=interval), Screen(), Keyboard(sys.stdin.fileno())
    reader.snapshot = first
    view = View(reader, screen, place)
    with (
        keyboard.listening(),
        Live(view, console=invocation.output.console(), screen=True, auto_refresh=False) as live,
        reader,
    ):
        while not screen.over and keyboard.stopped_by is None:
            reader.check()
            live.refresh()
            for key in keyboard.keys(KEY_SECONDS):
                act = screen.press(key, reader.snapshot)
                if act is not None:
                    reader.do(act)
                else:
                    reader.said = ""
    # Ctrl-C is a way to leave, as q is; a signal from elsewhere is not
    return 0 if keyboard.stopped_by in (None, signal.SIGINT) else 128 + keyboard.stopped_by


def _place(connection: EngineConnection) -> str:
    info = connection.info
    host = "the local socket" if info.host.startswith("/") else info.host
    return f"{info.dbname} on {host}, as {info.user}, schema {connection.octop_schema}"
