"""A server that has ended itself comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psycopg

from octop.model.errors import PrivateDatabaseError
from tests.processes import birth_of
from tests.system.faults.stage import Stage

BACK_SECONDS_MAX = 40.0
PATIENCE_SECONDS = 5.0
LOOK_SECONDS = 0.05


def come_back(stage: Stage) -> None:
    """Wait until the server answers; start it if it has ended, and end it if it does not come up.

    PostgreSQL 18.6 can wait for ever for its checkpointer if that dies while the server recovers from a crash, as it does again and
    again where the log finds no room: seen twice in three runs. An administrator would restart it.
    """
    deadline = time.monotonic() + BACK_SECONDS_MAX
    patient_until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if not birth_of(stage.server.running.server_pid):
                stage.keep_log()
                stage.server.start()
            psycopg.connect(stage.server.url(), autocommit=True).close()
        except (psycopg.OperationalError, PrivateDatabaseError):
            if time.monotonic() > deadline:
                raise
            if time.monotonic() > patient_until:
                patient_until += PATIENCE_SECONDS
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stage.server.running.server_pid, signal.SIGQUIT)
            time.sleep(LOOK_SECONDS)
        else:
            return
