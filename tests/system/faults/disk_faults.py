"""What can go wrong when the disk of the database is full. Tables that can not grow are refused; a log that can not grow ends the server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import DiskFull

from tests.system.faults.plan import Step
from tests.system.faults.server_return import BACK_SECONDS_MAX, come_back
from tests.system.faults.stage import Stage
from tests.system.faults.striking import Refusals, kept_up, times

FULL_WORDS = "ERROR: .*No space left on device"
LOOK_SECONDS = 0.05

# Unlogged: what fills the disk shall not be the log.
CREATE = """
create unlogged table if not exists ballast (filler text);
alter table ballast alter filler set storage external;
"""
FILL = "insert into ballast select repeat('x', %s) from generate_series(1, %s)"
FILLERS = ((1_000_000, 16), (100_000, 1), (7_000, 4), (7_000, 1))
"""How long rows are, and how many are added at once, until not even the smallest fits."""

TABLE_BYTES = 24 << 20
LEFT_BYTES = 1 << 20
"""Less than a segment of the log."""
SEGMENTS_MAX = 60


def disk_full(stage: Stage, step: Step) -> str:
    """Let another table take all room that is left, again and again until others were refused as well, and drop it in the end.

    Most of the disk is taken by a file before: a table that grows to its size takes seconds.
    """
    if not stage.variant.disk:
        return ""
    ballast = _ballast(stage)
    with stage.refusal_lock, stage.server_lock:
        stage.crashed()  # the log may find no room either
        try:
            _take(ballast, TABLE_BYTES)
            hit = times(_fill(stage, step.seconds), "statements refused")
        except psycopg.OperationalError:
            hit = "the server has ended itself"
            stage.crashed()
        finally:
            ballast.unlink(missing_ok=True)
            come_back(stage)
            _drop(stage)
        stage.crashed()
    return hit


def _fill(stage: Stage, seconds: float) -> int:
    """Fill the disk, and keep it full for so long, and until others were refused; return how often they were.

    Raises:
        OperationalError: The server has ended.
    """
    refusals = Refusals(stage, FULL_WORDS)
    with stage.admin() as connection:
        connection.execute(CREATE)
        refusals.own += _filled(connection)

        def fill() -> int:
            refusals.own += _filled(connection)
            return refusals.of_others()

        return kept_up(seconds, fill)


def _filled(connection: psycopg.Connection[Any]) -> int:
    refused = 0
    for size, count in FILLERS:
        try:
            while True:
                connection.execute(FILL, (size, count))
        except DiskFull as error:
            if not _is_refusal(error):
                raise
            refused += 1
    return refused


def _is_refusal(error: psycopg.Error) -> bool:
    """Tell whether the server lives on: of a log that found no room it says the same, and it is the last that it says."""
    return isinstance(error, DiskFull) and error.diag.severity_nonlocalized == "ERROR"


def _drop(stage: Stage) -> None:
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while True:
        try:
            with stage.admin() as connection:
                connection.execute("drop table if exists ballast")
                return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise
            if not _is_refusal(error):
                stage.crashed()
                come_back(stage)
            time.sleep(LOOK_SECONDS)


def log_disk_full(stage: Stage, step: Step) -> str:
    """Leave no room for the next segment of the log: the server ends itself (PANIC), and can not start until there is room again."""
    if not stage.variant.disk:
        return ""
    ballast = _ballast(stage)
    with stage.server_lock:
        stage.crashed()
        try:
            _take(ballast, LEFT_BYTES)
            segments = _written_until_it_ends(stage)
            stage.crashed()
            time.sleep(step.seconds)
        finally:
            ballast.unlink(missing_ok=True)
            come_back(stage)
        stage.crashed()
    return f"after {segments} segments"


def _ballast(stage: Stage) -> Path:
    return stage.server.running.data_directory / "ballast"


def _take(ballast: Path, left: int) -> None:
    """Take all room but so many bytes by a file."""
    with ballast.open("wb") as file:
        room = os.statvfs(ballast)
        os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - left))


def _written_until_it_ends(stage: Stage) -> int:
    for segment in range(SEGMENTS_MAX):
        try:
            # not stage.admin(), which waits for a server that has ended already
            with psycopg.connect(stage.server.url(), autocommit=True) as connection:
                connection.execute("select pg_logical_emit_message(true, 'octop', 'a segment is not empty')")
                connection.execute("select pg_switch_wal()")
        except psycopg.OperationalError as error:
            if not _is_refusal(error):
                return segment
    raise RuntimeError("the log finds room for ever: the run proves nothing")
