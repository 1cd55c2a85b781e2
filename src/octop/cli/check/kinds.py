"""The one table of everything that `octop check` can find. A test compares `docs/how-to/check-before-deploy.md` with it."""

# ruff: noqa: E501 - a row of the table is read along, not down

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octop.cli.findings import Finding, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR, INFO = Severity.ERROR, Severity.INFO

KINDS: Final = (
    # --- the code alone ---
    Kind("code.annotation", ERROR, "an annotation can not be resolved", "No task of this type can run: each would fail before its body.", "correct the annotation"),
    # --- what is queued ---
    Kind("tasks.unknown_type", ERROR, "tasks wait under a name that no function has, not even as an alias", "No worker with this code runs them: once the old workers are gone, they are parked.", "`aliases=` on the function with the new name"),
    Kind("tasks.of_others", INFO, "tasks wait under a name that no function has, and living workers know it that serve no queue of this application", "They belong to another application, it seems.", "none is needed"),
    Kind("tasks.unexpected_argument", ERROR, "tasks have an argument that the function does not take", "Each of them would fail before its body.", "keep the parameter, with a default"),
    Kind("tasks.missing_argument", ERROR, "tasks lack an argument that the function needs", "Each of them would fail before its body.", "give the parameter a default"),
    Kind("tasks.wrong_value", ERROR, "a value can not be read as the annotated type", "Each of these tasks would fail before its body.", "let the annotation take the old form too"),
    Kind("tasks.needs_newer_code", ERROR, "tasks need a higher `version=` than this code has, as after a step back", "They wait until a worker with newer code runs.", "a worker with newer code"),
    # --- who runs ---
    Kind("workers.lacks_type", INFO, "a living worker serves the queue of a task type that it does not know", "Such tasks wait, parked, until a worker with this code runs.", "start those first"),
    Kind("workers.older_code", INFO, "a living worker has older code of a task type than its `version=` here", "What this code enqueues waits for new workers while only old ones run.", "start new workers soon"),
    Kind("workers.knows_more", INFO, "a living worker runs a task type that this code does not have", "What is enqueued for it before the last of them stops will wait, parked.", "`aliases=`, if it was renamed"),
)  # fmt: skip

BY_ID: Final = {kind.id: kind for kind in KINDS}


def found(
    kind_id: str,
    what: str,
    hint: str = "",
    *,
    task_type: str = "",
    count: int = 0,
    ids: Sequence[str] = (),
    sampled: bool = False,
) -> Finding:
    """Return a finding of a kind of the table."""
    return Finding(BY_ID[kind_id], what, hint=hint, task_type=task_type, count=count, ids=ids, sampled=sampled)
