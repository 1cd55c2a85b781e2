"""From whatever a task raised to what is written down. Nothing that a task raises may stop this, and nothing of it is kept."""

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from octop.model.task import Fence, Outcome, OutcomeKind

MESSAGE_CHARACTERS_MAX: Final = 10_000
TRACEBACK_CHARACTERS_MAX: Final = 50_000
FRAMES_MAX: Final = 60
CLASSES_MAX: Final = 40
_HERE: Final = str(Path(__file__).parent)


def cleaned(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Return text that PostgreSQL can keep: no NUL, no lone surrogate, bounded.

    Args:
        text: Anything that is a str, also of a class of the user's own.
        limit: Most characters.
        keep_end: Cut off the beginning rather than the end.

    Returns:
        A plain str of at most ``limit`` characters.
    """
    part = slice(-limit, None) if keep_end else slice(limit)
    text = str.__getitem__(text, part)  # a plain str, whatever methods a subclass may have
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\x00", "\\x00")[part]


def class_name(kind: type[BaseException]) -> str:
    """Return the qualified name of an exception's class; built-in ones go without their module."""
    try:
        module, name = type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__qualname__")
        full = str(name) if module == "builtins" else f"{module}.{name}"
    except BaseException:  # noqa: BLE001 - a metaclass of the user's own may raise anything
        full = "unnameable exception"
    return cleaned(full, 500)


def message_of(error: BaseException) -> str:
    """Return the exception's own words, or what can be said without them."""
    try:
        text = str(error)
    except BaseException as problem:  # noqa: BLE001 - the user's __str__ may raise anything, SystemExit too
        return f"<no message: its __str__ raised {class_name(type(problem))}>"
    return cleaned(text, MESSAGE_CHARACTERS_MAX)


def class_names(error: BaseException) -> tuple[str, ...]:
    """Return the names of the exception's classes, short and qualified, for policies that list final exceptions."""
    names: list[str] = []
    for kind in type.__getattribute__(type(error), "__mro__")[:CLASSES_MAX]:
        if kind is not object:
            full = class_name(kind)
            names += [full] if "." not in full else [full, full.rpartition(".")[2]]
    return tuple(dict.fromkeys(names))


def traceback_of(error: BaseException) -> str:
    """Return the traceback without our own frames, the end kept when it is too long."""
    frames = _beyond_ours(error.__traceback__)
    try:
        lines = traceback.TracebackException(type(error), error, frames, limit=-FRAMES_MAX, compact=True).format()
        text = "".join(lines)
    except BaseException:  # noqa: BLE001 - attributes and texts of the exception are the user's code
        try:
            text = "".join(traceback.format_tb(frames, limit=-FRAMES_MAX))
        except BaseException:  # noqa: BLE001 - so may be the loader that finds the source lines
            text = ""
        text += f"{class_name(type(error))}: {message_of(error)}\n"
    return cleaned(text, TRACEBACK_CHARACTERS_MAX, keep_end=True)


def failure_of(
    fence: Fence, error: BaseException, *, kind: OutcomeKind = OutcomeKind.FAILURE, final: bool = False
) -> Outcome:
    """Turn an exception into an outcome, and let go of everything it held.

    Args:
        fence: Of which attempt.
        error: What was raised; its frames are cleared, so that no local variable of the task outlives it.
        kind: failure or timeout.
        final: No retry, whatever is left.

    Returns:
        The outcome; never raises.
    """
    outcome = Outcome(
        fence=fence,
        kind=kind,
        error_class=class_name(type(error)),
        error_message=message_of(error),
        traceback=traceback_of(error),
        final=final,
        mro=class_names(error),
    )
    let_go(error)
    return outcome


def plain_failure(
    fence: Fence, name: str, message: str, *, kind: OutcomeKind = OutcomeKind.FAILURE, final: bool = False
) -> Outcome:
    """Make an outcome that no exception stands behind."""
    return Outcome(
        fence=fence,
        kind=kind,
        error_class=cleaned(name, 500),
        error_message=cleaned(message, MESSAGE_CHARACTERS_MAX),
        final=final,
        mro=(name,),
    )


def let_go(error: BaseException) -> None:
    """Clear the frames of an exception: an exception that points at itself would keep megabytes until the next collection."""
    try:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
    except BaseException:  # noqa: BLE001 - closing a frame runs the user's `finally`
        return


def _beyond_ours(frames: TracebackType | None) -> TracebackType | None:
    """Skip the frames that lead from the worker into the task."""
    at = frames
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_HERE):
        at = at.tb_next
    return at or frames
