"""``python -m octop.worker.child``: runs one task at a time for its worker, in a process that may be killed.

It speaks frames of JSON over the socket that it gets as its standard input. It ends when its worker does: the socket closes, and on
Linux the kernel kills it.
"""

import asyncio
import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

from octop.model.context import Context, _current
from octop.model.control_flow import Cancel, Retry, Snooze
from octop.model.definition import TaskDefinition
from octop.model.errors import ApplicationError
from octop.model.task import Claimed, Fence, Outcome
from octop.worker.frames import Channel, Message
from octop.worker.load import Application, load_application
from octop.worker.report import cleaned, failure_of, message_of

PR_SET_PDEATHSIG = 1


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
    sys.path += [entry for entry in hello["path"] if entry not in sys.path]
    try:
        application = load_application(hello["application"])
    except ApplicationError as error:
        channel.send({"unable": cleaned(str(error), 10_000)})
        return
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, inbox), daemon=True).start()
    channel.send({"ready": True})
    while True:
        channel.send(run_one(application, inbox.get()))


def run_one(application: Application, message: Message) -> Message:
    """Run one task and return what came of it; never raises.

    Args:
        application: Knows the task types.
        message: The claimed task, field by field.
    """
    claimed = Claimed(**{name: message[name] for name in Claimed._fields})
    definition = application.registry.get(claimed.task_type)
    if definition is None:
        reason = f"the application in the child process has no task type {claimed.task_type}"
        return _outcome(failure_of(claimed.fence, ApplicationError(reason)))
    try:
        value = copy_context().run(_call, definition, claimed)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its failure, SystemExit too
        return _raised(claimed.fence, error)
    if isinstance(value, Snooze | Cancel | Retry):
        return _raised(claimed.fence, value)
    try:
        return {"result": definition.encode_result(value)}
    except BaseException as error:  # noqa: BLE001 - encoding may run the user's code
        return _outcome(failure_of(claimed.fence, error, final=True))


def _call(definition: TaskDefinition, claimed: Claimed) -> Any:
    context = Context(claimed)
    _current.set(context)
    answer = definition.call(definition.unbind(claimed.payload), context)
    return asyncio.run(answer) if isinstance(answer, Coroutine) else answer


def _raised(fence: Fence, error: BaseException) -> Message:
    if isinstance(error, Snooze):
        return {"snooze": error.seconds}
    if isinstance(error, Cancel):
        return {"cancel": cleaned(error.reason, 10_000)}
    if isinstance(error, Retry):
        return {"retry": error.delay_seconds, "reason": cleaned(message_of(error), 10_000)}
    return _outcome(failure_of(fence, error))


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
