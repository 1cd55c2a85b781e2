"""Values that the shell completes: names of queues, task types and settings, and ids, from the database if it answers at once.

Pressing Tab may never start a database, print an error or keep anybody waiting: whatever is in the way, there is
nothing to complete.
"""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octop.cli.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from octop.engine.call import Call

SECONDS_MAX: Final = 1.0
"""So long a press of Tab waits for the database."""

ID_BEGINS: Final = re.compile(r"[0-9a-f]{8,32}")
IDS_MAX: Final = 50
THREAD: Final = "octop completion"


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the queues whose name begins like this."""
    from octop.engine import names  # noqa: PLC0415 - keeps help fast

    return _beginning(ctx, names.queue_names(), incomplete)


def task_type_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the task types whose name begins like this."""
    from octop.engine import names  # noqa: PLC0415 - keeps help fast

    return _beginning(ctx, names.task_type_names(), incomplete)


def schedule_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the schedules whose name begins like this."""
    from octop.engine import schedules  # noqa: PLC0415 - keeps help fast

    return _beginning(ctx, schedules.schedule_names(), incomplete)


def task_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids that begin like this, from 8 characters on: fewer are those of too many tasks."""
    digits = incomplete.lower().replace("-", "")
    if not ID_BEGINS.fullmatch(digits):
        return []
    from octop.engine import reads  # noqa: PLC0415 - loads psycopg

    first, last = (str(uuid.UUID(digits.ljust(32, digit))) for digit in "0f")
    return _beginning(ctx, reads.ids_like(first, last, IDS_MAX), incomplete)


def module_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the modules of the current folder, and of a package in it, whose name begins like this."""
    package, dot, _ = incomplete.rpartition(".")
    with contextlib.suppress(OSError):
        found = [
            f"{package}{dot}{each.stem}"
            for each in sorted(Path(*package.split(".")).iterdir())
            if each.stem.isidentifier() and (each.suffix == ".py" or (each / "__init__.py").is_file())
        ]
        return [each for each in found if each.startswith(incomplete) and not each.endswith("__init__")]
    return []


def queue_limits(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the value of `worker -q` with its last name completed: mail=5,re → mail=5,reports."""
    return _last_of_list(ctx, queue_names, param, incomplete)


def filter_values(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return a word of a filter with its last value completed, after `queue:`, `type:` and `id:`; names that need quotes are left out."""
    key, colon, values = incomplete.partition(":")
    names = {"queue": queue_names, "type": task_type_names, "id": task_ids}.get(key)
    if names is None or not colon:
        return []
    found = _last_of_list(ctx, names, param, values)
    return [f"{key}:{each}" for each in found if re.fullmatch(r"[\w.,-]+", each)]


def _last_of_list(
    ctx: click.Context,
    names: Callable[[click.Context, click.Parameter, str], list[str]],
    param: click.Parameter,
    incomplete: str,
) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names(ctx, param, last)]


def config_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the settings whose key begins like this."""
    from octop.engine import names  # noqa: PLC0415 - keeps help fast

    return _beginning(ctx, names.config_keys(), incomplete)


def _beginning(ctx: click.Context, call: Call[list[str]], incomplete: str) -> list[str]:
    found: list[str] = []
    invocation = ctx.ensure_object(Invocation)
    # A thread that nobody waits for any longer: a connection that hangs ends with the process.
    asking = threading.Thread(target=_ask, args=(invocation, call, found), name=THREAD, daemon=True)
    asking.start()
    asking.join(SECONDS_MAX)
    return [name for name in found if name.startswith(incomplete)]


def _ask(invocation: Invocation, call: Call[list[str]], found: list[str]) -> None:
    with contextlib.suppress(Exception):
        from octop.engine import private_database  # noqa: PLC0415 - loads psycopg
        from octop.engine.call import run  # noqa: PLC0415 - as above
        from octop.engine.connect import open_connection  # noqa: PLC0415 - as above
        from octop.model.settings import load_settings  # noqa: PLC0415 - as above

        settings = load_settings(dsn=invocation.dsn, schema=invocation.schema, app=invocation.app)
        dsn = settings.dsn
        if dsn is None:
            running = private_database.status()
            if running is None:
                return
            dsn = running.url
        with contextlib.closing(
            open_connection(dsn, application_name="octop completion", schema=settings.schema, connect_timeout=2)
        ) as connection:
            names = run(connection, call)
            found.extend(names)
