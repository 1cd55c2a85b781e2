"""From whatever a task raised to what is written down. Nothing that a task raises may stop this, and nothing of it is kept."""

import contextlib
import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from octop.model.errors import TransactionEndedError
from octop.model.task import Fence, Outcome, OutcomeKind
from octop.worker.threads import Job

MESSAGE_CHARACTERS_MAX: Final = 10_000
TRACEBACK_CHARACTERS_MAX: Final = 50_000
FRAMES_MAX: Final = 60
CLASSES_MAX: Final = 40
CHAIN_MAX: Final = 20
GROUP_MAX: Final = 15
GROUP_DEPTH_MAX: Final = 5
EXCEPTIONS_MAX: Final = 200
STOOD_HERE: Final = "The thread stood here at the time limit (most recent call last):\n"
_HERE: Final = str(Path(__file__).parent)
# What leads into a task's code in a thread: Python's frames, ours, and octop.model, which calls the function.
_BEFORE_TASKS: Final = (threading.__file__, _HERE, str(Path(__file__).parent.parent / "model"))
# What Python itself keeps of an exception and of its class. `error.__traceback__` would ask the user's `__getattribute__`.
_OF_ERROR: Final[dict[str, Any]] = {
    name: BaseException.__dict__[name]
    for name in ("__traceback__", "__cause__", "__context__", "__suppress_context__", "__dict__")
}
_OF_CLASS: Final[dict[str, Any]] = {name: type.__dict__[name] for name in ("__module__", "__qualname__", "__mro__")}
# Code whose frame may be suspended, and run on.
_GOES_ON: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OF_GROUP: Final[Any] = BaseExceptionGroup.__dict__["exceptions"]


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
        module, name = _OF_CLASS["__module__"].__get__(kind), _OF_CLASS["__qualname__"].__get__(kind)
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
    for kind in _OF_CLASS["__mro__"].__get__(type(error))[:CLASSES_MAX]:
        if kind is not object:
            full = class_name(kind)
            names += [full] if "." not in full else [full, full.rpartition(".")[2]]
    return tuple(dict.fromkeys(names))


def traceback_of(error: BaseException, message: str | None = None) -> str:
    """Return the traceback without our own frames, the end kept when it is too long.

    The standard library's formatter asks an exception for its text again, and for attributes: both run the user's code, which may
    take its time.

    Args:
        error: What was raised.
        message: What ``message_of`` said of it already; None = ask.
    """
    try:
        text = "".join(_told(error, message, set(), 0))
    except BaseException:  # noqa: BLE001 - RecursionError, MemoryError: what can still be said is said
        text = f"{class_name(type(error))}: {message or ''}\n"
    return cleaned(text, TRACEBACK_CHARACTERS_MAX, keep_end=True)


def _told(error: BaseException, message: str | None, seen: set[int], depth: int) -> Iterator[str]:
    """Tell an exception after those that led to it."""
    chain: list[tuple[BaseException, str]] = []
    at: BaseException | None = error
    link = ""
    while at is not None and id(at) not in seen and len(chain) < CHAIN_MAX and len(seen) < EXCEPTIONS_MAX:
        seen.add(id(at))
        chain.append((at, link))
        cause = _OF_ERROR["__cause__"].__get__(at)
        if cause is not None:
            at, link = cause, "\nThe above exception was the direct cause of the following exception:\n\n"
        elif _OF_ERROR["__suppress_context__"].__get__(at):
            at = None
        else:
            at = _OF_ERROR["__context__"].__get__(at)
            link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    for each, after in reversed(chain):
        yield from _one_told(each, message if each is error else None, seen, depth)
        yield after


def _one_told(error: BaseException, message: str | None, seen: set[int], depth: int) -> Iterator[str]:
    frames = _beyond_ours(_OF_ERROR["__traceback__"].__get__(error))
    if frames is not None:
        yield "Traceback (most recent call last):\n"
        try:
            yield "".join(_up_to_ours(traceback.extract_tb(frames, limit=-FRAMES_MAX)).format())
        except BaseException:  # noqa: BLE001 - the loader that finds the source lines may be the user's
            yield "  <no frames: finding their source raised>\n"
    message = message_of(error) if message is None else message
    yield f"{class_name(type(error))}: {message}\n" if message else f"{class_name(type(error))}\n"
    for note in _notes(error):
        yield f"{note}\n"
    if issubclass(type(error), BaseExceptionGroup) and depth < GROUP_DEPTH_MAX:
        inner = _OF_GROUP.__get__(error)
        for number, each in enumerate(inner[:GROUP_MAX], 1):
            yield f"  +---- {number} of {len(inner)} ----\n"
            for line in "".join(_told(each, None, seen, depth + 1)).splitlines():
                yield f"  | {line}\n"


def _notes(error: BaseException) -> list[str]:
    try:
        found = dict.get(_OF_ERROR["__dict__"].__get__(error), "__notes__")
        if type(found) is not list:
            return []
        return [cleaned(note, MESSAGE_CHARACTERS_MAX) for note in found[:CHAIN_MAX] if issubclass(type(note), str)]
    except BaseException:  # noqa: BLE001 - a str of the user's own
        return []


def stack_in(job: Job) -> str | None:
    """Return where the code of a task stands in its thread at this moment, its last call last.

    A thread that is over its time limit goes on, and nothing is raised in it: this is what can be said of it instead of a
    traceback.

    Args:
        job: The call in the thread.

    Returns:
        Text like a traceback, without our own frames; None = it is not in the task's code (any more).
    """
    stack: list[tuple[FrameType, int]] = []
    try:
        thread = job.thread
        frame = None if thread is None else sys._current_frames().get(thread)
        while frame is not None:
            stack.append((frame, frame.f_lineno))
            frame = frame.f_back
        if job.thread is None:  # it ended meanwhile, and the thread may be in another task
            return None
        beyond = dropwhile(lambda each: each[0].f_code.co_filename.startswith(_BEFORE_TASKS), reversed(stack))
        lines = "".join(traceback.StackSummary.extract(iter(list(beyond)[-FRAMES_MAX:])).format())
    except BaseException:  # noqa: BLE001 - the loader that finds the source lines may be the user's
        return None
    return cleaned(f"{STOOD_HERE}{lines}", TRACEBACK_CHARACTERS_MAX, keep_end=True) if lines else None


def failure_of(
    fence: Fence,
    error: BaseException,
    *,
    kind: OutcomeKind = OutcomeKind.FAILURE,
    final: bool = False,
    keep_frames: bool = False,
) -> Outcome:
    """Turn an exception into an outcome, and let go of everything it held.

    Args:
        fence: Of which attempt.
        error: What was raised; its frames are cleared, so that no local variable of the task outlives it.
        kind: failure or timeout.
        final: No retry, whatever is left.
        keep_frames: The caller lets go of it himself: hooks are to see where it was raised.

    Returns:
        The outcome; never raises.
    """
    message = message_of(error)  # once: a __str__ may take its time
    outcome = Outcome(
        fence=fence,
        kind=kind,
        error_class=class_name(type(error)),
        error_message=message,
        traceback=traceback_of(error, message),
        final=final
        or issubclass(type(error), TransactionEndedError),  # it may have committed what a retry would do again
        mro=class_names(error),
    )
    if not keep_frames:
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
    """Let go of all frames of an exception and of those that led to it, or are grouped in it.

    An exception that points at itself would keep megabytes until the next collection. Locals of plain functions are cleared,
    too, for whoever still holds a frame; not those of coroutines and generators: one that caught the exception and goes on
    (a reader of a connection, shared by tasks) would be closed by it.
    """
    seen: set[int] = set()
    left = [error]
    while left:
        at = left.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        with contextlib.suppress(BaseException):  # RecursionError, MemoryError: what can still be let go of is
            left += [each for name in ("__cause__", "__context__") if (each := _OF_ERROR[name].__get__(at)) is not None]
            if issubclass(type(at), BaseExceptionGroup):
                left += _OF_GROUP.__get__(at)
            frames: TracebackType | None = _OF_ERROR["__traceback__"].__get__(at)
            _OF_ERROR["__traceback__"].__set__(at, None)
            _clear(frames)


def _clear(frames: TracebackType | None) -> None:
    while frames is not None:
        if not frames.tb_frame.f_code.co_flags & _GOES_ON:
            with contextlib.suppress(RuntimeError):  # it runs
                frames.tb_frame.clear()
        frames = frames.tb_next


def _up_to_ours(stack: traceback.StackSummary) -> traceback.StackSummary:
    """Leave out the frame by which a cancellation came into the task; what is ours from end to end stays."""
    theirs = [at for at, frame in enumerate(stack) if not frame.filename.startswith(_HERE)]
    return traceback.StackSummary.from_list(stack[: theirs[-1] + 1]) if theirs else stack


def _beyond_ours(frames: TracebackType | None) -> TracebackType | None:
    """Skip the frames that lead from the worker into the task."""
    at = frames
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_HERE):
        at = at.tb_next
    return at or frames
