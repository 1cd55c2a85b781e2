"""`octop tasks retry`, `cancel` and `delete`."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from octop.cli.filter_words import ID_OR_FILTER_WORD, FilterCommand, filter_options, options_filter
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.tasks.act import Act
from octop.engine import calls
from octop.engine.call import run
from octop.model.errors import TaskNotFoundError, TaskStatusError
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from octop.engine.connect import EngineConnection

    F = TypeVar("F", bound="Callable[..., Any]")


def bulk_options(function: F) -> F:
    """Give a command its ids or filter, and how to go about them."""
    for option in reversed(
        (
            click.argument("words", metavar="ID...|FILTER...", nargs=-1, type=ID_OR_FILTER_WORD),
            filter_options(),
            click.option("--dry-run", is_flag=True, help="Say how many tasks are meant, show some, do nothing."),
            click.option(
                "--limit", type=click.IntRange(1), help="At most so many tasks of the filter, the latest first."
            ),
            click.option("--yes", "-y", is_flag=True, help="Do not ask about a filter, or about several ids."),
        )
    ):
        function = option(function)
    return function


def _act(invocation: Invocation, act: Act, **given: Any) -> None:
    from octop.cli.tasks.bulk import Wish, act_on_filter, act_on_ids  # noqa: PLC0415 - help needs no filters
    from octop.model.filters import parse_words  # noqa: PLC0415 - as above

    options = options_filter(given)
    wish = Wish(options=options, **given)
    if not wish.words and not options:
        message = f"name the tasks to {act.verb}: ids, or a filter such as status:failed type:send_*"
        raise click.UsageError(message)
    if not wish.by_filter:
        if wish.limit is not None:
            message = "--limit goes with a filter, not with ids"
            raise click.UsageError(message)
        act_on_ids(invocation, act, wish)
        return
    if ids := [word for word in wish.words if re.fullmatch(r"[0-9a-fA-F-]{8,}", word)]:
        message = f"name tasks by ids, or by a filter, not by both; as a word of a filter the id is id:{ids[0]}"
        raise click.UsageError(message)
    act_on_filter(invocation, act, wish, parse_words(wish.words) & options)


# --- retry ------------------------------------------------------------------------------------------------------------


def _retry_one(connection: EngineConnection, task_id: str) -> tuple[dict[str, object], str]:
    new = run(connection, calls.octop_retry(task_id))
    text = f"{task_id} is pending again." if new == task_id else f"{task_id} had ended: its repetition is {new}."
    return {"id": task_id, "retried_as": new}, text


RETRY: Final = Act(
    verb="retry",
    possible=frozenset({Status.FROZEN, Status.FAILED, Status.PENDING, Status.SUCCESS, Status.CANCELLED}),
    default=frozenset({Status.FROZEN, Status.FAILED}),
    meant="failed or frozen",
    otherwise="Running and blocked tasks are cancelled first.",
    one=_retry_one,
    many=calls.octop_retry_many,
    spoken={
        "retried": "pending again.",
        "repeated": "had ended, and run again as new tasks.",
        "exists": "left alone: another task holds the unique key.",
        "refused": "refused.",
    },
)


@click.command(cls=FilterCommand)
@bulk_options
@global_options(reads=True)
@pass_invocation
def retry(invocation: Invocation, /, **given: Any) -> None:
    """Run tasks again.

    Frozen and failed ones at once; a finished one as a new task that names the old one. A FILTER that names no status
    means frozen and failed tasks.
    """
    _act(invocation, RETRY, **given)


# --- cancel -----------------------------------------------------------------------------------------------------------


def _cancel_one(connection: EngineConnection, task_id: str, *, reason: str) -> tuple[dict[str, object], str]:
    answer = run(connection, calls.octop_cancel(task_id, reason))
    text = f"{task_id} is cancelled." if answer == "cancelled" else f"{task_id} runs: its worker is told to end it."
    return {"id": task_id, "verdict": answer}, text


UNFINISHED: Final = frozenset({Status.PENDING, Status.FAILED, Status.BLOCKED, Status.FROZEN, Status.RUNNING})


def _cancelling(reason: str) -> Act:
    return Act(
        verb="cancel",
        possible=UNFINISHED,
        default=UNFINISHED,
        meant="unfinished",
        otherwise="Finished tasks stay what they are.",
        one=partial(_cancel_one, reason=reason),
        many=partial(calls.octop_cancel_many, reason=reason),
        spoken={"cancelled": "cancelled.", "requested": "running: their workers are told to end them."},
    )


@click.command(cls=FilterCommand, short_help="Cancel tasks.")
@bulk_options
@click.option("--reason", default="", help="Why: kept in the audit.")
@global_options(reads=True)
@pass_invocation
def cancel(invocation: Invocation, /, reason: str, **given: Any) -> None:
    """Cancel tasks; of a running one its worker is told within a second.

    A FILTER means all that is not finished.
    """
    _act(invocation, _cancelling(reason), **given)


# --- delete -----------------------------------------------------------------------------------------------------------

ONLY_FROZEN: Final = (
    "What is not finished can be cancelled (octop tasks cancel); finished tasks go by themselves, day by day, after"
    " history.retention_days."
)


def _delete_one(connection: EngineConnection, task_id: str) -> tuple[dict[str, object], str]:
    ((_, verdict),) = run(connection, calls.octop_delete_many([task_id]))
    if verdict == "not found":
        message = f"there is no task {task_id}"
        raise TaskNotFoundError(message, hint="It may be gone already; octop audit lists who deleted what.")
    if verdict != "deleted":
        message = f"task {task_id} is {verdict}, and only frozen tasks can be deleted"
        raise TaskStatusError(message, hint=ONLY_FROZEN)
    return {"id": task_id, "verdict": verdict}, f"{task_id} is deleted."


DELETE: Final = Act(
    verb="delete",
    possible=frozenset({Status.FROZEN}),
    default=frozenset({Status.FROZEN}),
    meant="frozen",
    otherwise=ONLY_FROZEN,
    one=_delete_one,
    many=calls.octop_delete_many,
    spoken={"deleted": "deleted."},
)


@click.command(cls=FilterCommand)
@bulk_options
@global_options(reads=True)
@pass_invocation
def delete(invocation: Invocation, /, **given: Any) -> None:
    """Delete frozen tasks for good.

    Only frozen ones: what is not finished is cancelled (`octop tasks cancel`), and finished tasks go by themselves, day by
    day, after `history.retention_days`. A FILTER means frozen tasks.
    """
    _act(invocation, DELETE, **given)
