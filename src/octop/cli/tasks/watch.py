"""What a person who waits for a task is told meanwhile, on stderr: why it does not run, and each attempt that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octop.cli.moments import spoken
from octop.cli.next_step import Reason, reasons
from octop.cli.output import clean
from octop.engine import calls
from octop.engine.call import run
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octop.cli.output import Output
    from octop.engine.connect import EngineConnection

SILENT_SECONDS: Final = 2.0
"""Most tasks have ended by then, and there is nothing to say."""

COUNTING: Final = frozenset({"not_due", "waits_for_retry", "waits_for_room", "rate", "lane_rate", "runs"})
"""Reasons whose sentence changes with each second."""

TOLD_WITH_THE_FAILURE: Final = frozenset({"waits_for_retry", "not_due", "waits_for_room"})


class Watch:
    """Tells what happens to one task, each thing once."""

    def __init__(self, output: Output, connection: EngineConnection, task_id: str) -> None:
        """Keep where to look and where to tell.

        Args:
            output: Its `say` takes the messages, so that `--quiet` silences them.
            connection: The one that is polled anyway.
            task_id: The whole id.
        """
        self._output = output
        self._connection = connection
        self._task_id = task_id
        self._failures: int | None = None
        self._failure_told = False
        self._told: str | None = None

    def look(self, task: Mapping[str, Any], waited_seconds: float) -> None:
        """Tell what is new.

        Args:
            task: A row of `octop.engine.reads.task` that has not ended.
            waited_seconds: Since the wait began; before 2 nothing but failures is told.
        """
        failures = int(task["retry_count"])
        failed = self._failures is not None and failures > self._failures
        if not failed and waited_seconds < SILENT_SECONDS:
            self._failures = failures
            return
        self._failures = failures
        rows = run(self._connection, calls.octop_why(self._task_id))
        found = reasons(rows)
        if failed:
            self._failure_told = True
            self._output.say(_failure(task, found))
        if waited_seconds >= SILENT_SECONDS:
            self._tell_why(task, found)

    def _tell_why(self, task: Mapping[str, Any], found: Sequence[Reason]) -> None:
        told = TOLD_WITH_THE_FAILURE if self._failure_told and task["status"] == Status.FAILED else ()
        for each in [each for each in found if each.code not in told][:1]:
            self._tell(each.code if each.code in COUNTING else each.sentence, each.sentence)

    def _tell(self, key: str, sentence: str) -> None:
        if key != self._told:
            self._told = key
            self._output.say(f"waiting for {self._task_id}: {clean(sentence)}")


def _failure(task: Mapping[str, Any], found: Sequence[Reason]) -> str:
    """Return one sentence about the attempt that failed last."""
    ended = int(task["attempt"]) - (task["status"] == Status.RUNNING)
    error = clean(str(task["last_error"] or "no message").partition("\n")[0])
    retry = next((each.detail for each in found if each.code == "waits_for_retry"), None)
    if retry is None:
        return f"attempt {ended} failed: {error}"
    return f"attempt {ended} failed: {error}; retry {retry['retry']} of {retry['of']} in {spoken(float(retry['in_seconds']))}"
