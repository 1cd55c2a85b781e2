"""``python -m octop.worker.child``: runs one task at a time for its worker, in a process that may be killed.

It speaks frames of JSON over the socket that it gets as its standard input. It ends when its worker does: the socket closes, and on
Linux the kernel kills it. Where its worker stands still, stopped by SIGSTOP or a debugger, it ends itself soon after the task's time limit:
the sweep of others ends the attempt in the database then, and the next one must not run beside it.
"""

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final

from octop.engine.connect import leave_to_parent
from octop.engine.task_transaction import NotBegunError
from octop.model.batch import BatchTask, spread
from octop.model.context import Context, context_variable
from octop.model.control_flow import Cancel, Retry, Snooze
from octop.model.definition import TaskDefinition
from octop.model.errors import ApplicationError, ResultTooLargeError
from octop.model.task import Claimed, Fence, Outcome
from octop.worker.ending import AttemptLostError
from octop.worker.frames import Channel, Message, identity_of
from octop.worker.load import Application, load_application
from octop.worker.report import cleaned, failure_of, message_of
from octop.worker.slot import AttemptContext
from octop.worker.transactions import Committed, Transactions

PR_SET_PDEATHSIG = 1
STDERR: Final = 2
# The largest value of task.result_bytes_max. As ASCII in a frame it grows to three times this at most, and so fits.
RESULT_BYTES_MAX: Final = 67_108_864
# After the time limit, at which a worker that can kills it; far less than the default of worker.deadline_grace_seconds.
END_SECONDS: Final = 0.5


def main() -> None:
    """Serve until the worker closes the socket."""
    channel = Channel.from_descriptor(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hello = channel.receive()
    if hello is None:
        return
    _die_with_parent(int(hello["parent"]))
    sys.path[:] = dict.fromkeys([*hello["path"], *sys.path])  # what the worker would import, in the same order
    os.register_at_fork(after_in_child=channel.close)
    os.register_at_fork(after_in_child=leave_to_parent)
    own = os.getpid()
    try:
        application = load_application(hello["application"], hello.get("folder"))
    except ApplicationError as error:
        _end_copy(own)
        channel.send({"unable": cleaned(str(error), 10_000)})
        return
    _end_copy(own)
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, inbox), daemon=True).start()
    channel.send({"ready": True})
    while True:
        question = inbox.get()
        identity = identity_of(question)
        # a thread of C: it needs neither the interpreter's lock nor a task that comes back, and says where that stood
        faulthandler.dump_traceback_later(question["timeout_seconds"] + END_SECONDS, exit=True, file=STDERR)
        answer = run_one(application, question, lambda: channel.send({"commits": True, **identity}))  # noqa: B023 - called now
        faulthandler.cancel_dump_traceback_later()
        _end_copy(own)
        channel.send({**answer, **identity})


def _end_copy(own: int) -> None:
    """End a copy of this process that a task has made with ``fork`` and that came back: one question gets one answer."""
    if os.getpid() != own:
        os._exit(0)


def run_one(application: Application, message: Message, commits: Callable[[], object] = lambda: None) -> Message:
    """Run one task and return what came of it; never raises.

    Args:
        application: Knows the task types.
        message: The claimed task, field by field, and what a transaction needs.
        commits: Called when nothing but the COMMIT of a transactional task is left.
    """
    claimed = Claimed(**{name: message[name] for name in Claimed._fields})
    definition = application.registry.get(claimed.task_type)
    if definition is None:
        reason = f"the application in the child process has no task type {claimed.task_type}"
        return _outcome(failure_of(claimed.fence, ApplicationError(reason)))
    try:
        if definition.transactional:
            return copy_context().run(_in_transaction, definition, claimed, message["transaction"], commits)
        value = copy_context().run(_call, definition, claimed)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its failure, SystemExit too
        return _raised(claimed.fence, error)
    return _returned(definition, claimed, value, RESULT_BYTES_MAX)


def _returned(definition: TaskDefinition, claimed: Claimed, value: Any, limit: int) -> Message:
    if issubclass(type(value), _ORDERS):
        return _raised(claimed.fence, value)
    try:
        text = definition.encode_result(value)
        size = 0 if text is None else len(text.encode())
        if size > limit:
            reason = f"the result has {size:,} bytes of JSON, more than the {limit:,} that task.result_bytes_max allows"
            raise ResultTooLargeError(reason, hint="Return a reference to the data instead.")
    except BaseException as error:  # noqa: BLE001 - encoding may run the user's code
        return _outcome(failure_of(claimed.fence, error, final=True))
    return {"result": text}


def _in_transaction(
    definition: TaskDefinition, claimed: Claimed, transaction: Message, commits: Callable[[], object]
) -> Message:
    """Run a task whose success commits here, with what it does."""
    attempt = _Attempt(definition, claimed, transaction["result_bytes_max"], commits)
    transactions = Transactions(transaction["dsn"], transaction["schema"], transaction["worker_id"])
    try:
        answer = asyncio.run(transactions.run_async(attempt)) if definition.is_async else transactions.run(attempt)
    except NotBegunError as error:
        return {"not_begun": cleaned(error.error.message, 10_000)}
    except AttemptLostError:
        return {"lost": True}
    finally:
        transactions.close_here()
    return {**attempt.answer, "committed": type(answer) is Committed}


class _Attempt:
    """The attempt of a transactional task in this process."""

    def __init__(self, definition: TaskDefinition, claimed: Claimed, limit: int, commits: Callable[[], object]) -> None:
        self.answer: Message = {}
        self._commits = commits
        self._definition = definition
        self._claimed = claimed
        self._limit = limit
        self._context = AttemptContext(claimed)
        self._own = os.getpid()

    def begins(self, connection: Any, _cut: Callable[[], None]) -> None:
        context_variable.set(self._context)
        self._context.lend(connection)

    def call(self) -> Any:
        return self._definition.call(self._definition.unbind(self._claimed.payload), self._context)

    def written(self, value: Any) -> tuple[bool, str | None]:
        _end_copy(self._own)  # it would commit on the session of its parent
        self._context.lend(None)
        self.answer = _returned(self._definition, self._claimed, value, self._limit)
        return "result" in self.answer, self.answer.get("result")

    def claimed(self) -> Claimed:
        return self._claimed

    def commits(self) -> None:
        self._commits()


def _call(definition: TaskDefinition, claimed: Claimed) -> Any:
    context = Context(claimed)
    if definition.batch is not None:
        return _call_batch(definition, definition.one_of_batch(claimed.payload, context))
    context_variable.set(context)
    answer = definition.call(definition.unbind(claimed.payload), context)
    return asyncio.run(answer) if definition.is_async else answer


def _call_batch(definition: TaskDefinition, task: BatchTask[Any]) -> Any:
    """Call the function of a batch with one task: it was lost before, so it is alone."""
    try:
        answer = definition.function([task])
        (ended,) = spread([task], asyncio.run(answer) if definition.is_async else answer)
    except BaseException:
        if task.ended is None:
            raise
        ended = task.ended
    if ended.error is not None:
        raise ended.error
    return ended.value


def _raised(fence: Fence, error: BaseException) -> Message:
    try:
        return _order(error) or _outcome(failure_of(fence, error))
    except BaseException as problem:  # noqa: BLE001 - an order of a class of the user's own
        return _outcome(failure_of(fence, problem))


# By the class that it has, not by the one that it claims: `isinstance` asks `__class__`, which is the user's code in a proxy.
_ORDERS: Final = (Snooze, Cancel, Retry)


def _order(error: Any) -> Message | None:
    kind = type(error)
    if issubclass(kind, Snooze):
        return {"snooze": float(error.seconds)}
    if issubclass(kind, Cancel):
        return {"cancel": cleaned(error.reason, 10_000)}
    if issubclass(kind, Retry):
        delay = error.delay_seconds
        return {"retry": None if delay is None else float(delay), "reason": cleaned(message_of(error), 10_000)}
    return None


def _outcome(outcome: Outcome) -> Message:
    return {
        "failure": {
            "error_class": outcome.error_class,
            "error_message": outcome.error_message,
            "traceback": outcome.traceback,
            "final": outcome.final,
            "mro": list(outcome.mro),
        }
    }


def _listen(channel: Channel, inbox: "queue.SimpleQueue[Message]") -> None:
    """Pass tasks on; when the worker is gone, end at once, in the middle of a task too: it is not ours any more."""
    while (message := channel.receive()) is not None:
        inbox.put(message)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _die_with_parent(parent: int) -> None:
    """Ask the kernel to kill us when the worker dies: a task that holds the interpreter's lock would not notice the closed socket."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
