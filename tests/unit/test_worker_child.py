"""A real child process, asked as a worker asks it."""

import asyncio
import contextlib
import functools
import json
import socket
from typing import Any, cast

import pytest

from octop.model.task import Claimed, Fence
from octop.worker.child import run_one
from octop.worker.children import Child, ChildLostError, Children
from octop.worker.frames import encoded, opened
from octop.worker.load import load_application
from octop.worker.report import failure_of
from tests.system.apps import processes

APPLICATION = "tests.system.apps.processes:octop"


def question(task_type, number=0, **payload):
    values = dict.fromkeys(Claimed._fields)
    values |= {"id": str(number), "attempt": 1, "claim_id": f"c{number}", "task_type": task_type, "isolated": False}
    values["timeout_seconds"] = 60.0
    return values | {"payload": json.dumps(payload)}


def with_children(function):
    @functools.wraps(function)
    def test(*arguments, **named):
        async def and_close():
            children = Children(APPLICATION)
            try:
                async with asyncio.timeout(60):
                    await function(children, *arguments, **named)
            finally:
                await children.close()

        asyncio.run(and_close())

    del test.__wrapped__  # pytest would take `children` for a fixture
    return test


@pytest.mark.parametrize("how", ["return", "raise", "exit"])
def test_a_forked_copy_of_a_task_that_comes_back_never_answers(how):
    async def body(children):
        child = await children.take()
        said = []
        for number in range(12):
            asked = (
                question("fork", number, seconds=0.3, how=how) if number == 0 else question("say", number, word=number)
            )
            asked["payload"] = asked["payload"].replace(f'"word": {number}', f'"word": "{number}"')
            answer = await child.ask(asked)
            assert (answer["id"], answer["attempt"], answer["claim_id"]) == (str(number), 1, f"c{number}")
            said.append(answer["result"])
            children.give_back(child)
            assert await children.take() is child
            await asyncio.sleep(0.06)
        assert said == ['"FORKER"', *(f'"{number}"' for number in range(1, 12))]

    with_children(body)()


@with_children
async def test_a_child_that_has_said_a_word_too_many_is_not_asked_again(children):
    child = await children.take()
    with contextlib.suppress(ChildLostError):  # the false answer may come first: then it is refused
        await child.ask(question("answer_twice"))
    children.give_back(child)
    assert await children.take() is not child


class Ended:
    pid = 2**22 + 1  # nobody's
    returncode = None


@pytest.mark.parametrize("wrong", [{"id": "2"}, {"attempt": 2}, {"claim_id": "old"}, {}])
def test_an_answer_to_another_question_is_refused(wrong):
    async def body():

        ours, theirs = socket.socketpair()
        with theirs:
            child = Child(cast(Any, Ended()), *await opened(ours))
            children = Children(None)
            own = {"id": "1", "attempt": 1, "claim_id": "c"}
            theirs.sendall(encoded({"result": "1", **own}))
            assert (await child.ask(own))["result"] == "1"
            children.give_back(child)
            assert await children.take() is child
            theirs.sendall(encoded({"result": "1", **({**own, **wrong} if wrong else {})}))
            assert not child.is_usable, "unread: in the socket"
            await asyncio.sleep(0.05)
            assert not child.is_usable, "unread: in the stream"
            with pytest.raises(ChildLostError, match="another question"):
                await child.ask(own)
            assert not child.is_usable

    asyncio.run(body())


@with_children
async def test_a_result_that_can_not_be_kept_is_a_final_failure_of_a_child_that_lives_on(children):
    child = await children.take()
    kinds = {"huge": "ResultTooLargeError", "deep": "NotJsonError", "levels": "NotJsonError", "object": "NotJsonError",
             "coroutine": "NotJsonError", "unbound": "NotJsonError"}  # fmt: skip
    for number, (which, name) in enumerate(kinds.items()):
        answer = await child.ask(question("result_in_process", number, which=which))
        assert "failure" in answer, (which, str(answer)[:200])
        failure = answer["failure"]
        assert failure["final"], which
        assert failure["error_class"].rpartition(".")[2] == name, failure
    assert (await child.ask(question("wait_in_process", 9)))["result"] == '"awaited"'
    assert child.is_usable


@with_children
async def test_an_exception_that_refuses_to_be_looked_at_is_an_ordinary_failure(children):
    child = await children.take()
    found = {}
    for number, which in enumerate(["UnboundError", "SilentError", "SlowError", "OddCancel"]):
        found[which] = (await child.ask(question("fail", number, which=which)))["failure"]
        assert not found[which]["final"]
    names = [failure["error_class"].rpartition(".")[2] for failure in found.values()]
    assert names == ["UnboundError", "SilentError", "SlowError", "ZeroDivisionError"]
    assert found["UnboundError"]["error_message"] == "said"
    for which in ("UnboundError", "SilentError", "SlowError"):
        assert ", in fail\n" in found[which]["traceback"], which
    assert found["SlowError"]["traceback"].endswith("SlowError: asked 1 times\n")
    assert (await child.ask(question("fail", 9, which="Cancel")))["cancel"] == "5"


def test_run_one_knows_no_such_task_type():
    answer = run_one(load_application(APPLICATION), question("gone"))
    assert "has no task type gone" in answer["failure"]["error_message"]


def test_the_text_of_each_exception_is_asked_for_once_along_a_chain_and_in_a_group():
    class Counted(Exception):
        def __init__(self):
            self.asked = 0

        def __str__(self):
            self.asked += 1
            return f"text {self.asked}"

    first, second, third = Counted(), Counted(), Counted()
    group = ExceptionGroup("several", [first, second])
    group.add_note("a note")
    try:
        try:
            raise third
        except Counted:
            raise group  # noqa: B904 - the context is what is looked at
    except ExceptionGroup as error:
        outcome = failure_of(Fence("i", 1, "c"), error)
    assert (first.asked, second.asked, third.asked) == (1, 1, 1)
    text = outcome.traceback or ""
    assert text.index("Counted: text 1") < text.index("During handling") < text.index("ExceptionGroup: several")
    assert "\na note\n  +---- 1 of 2 ----\n" in text
    assert text.count("text 1") == 3


def test_the_cause_is_told_before_what_it_caused_and_a_suppressed_context_is_not():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        text = failure_of(Fence("i", 1, "c"), error).traceback or ""
    assert text.index("KeyError: 'inner'") < text.index("direct cause") < text.index("ValueError: outer")
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer") from None
    except ValueError as error:
        text = failure_of(Fence("i", 1, "c"), error).traceback or ""
    assert "inner" not in text


def test_an_exception_with_attributes_of_its_own_still_has_its_frames():
    try:
        raise processes.SilentError("said")
    except BaseException as error:
        outcome = failure_of(Fence("i", 1, "c"), error)
        left = BaseException.__dict__["__traceback__"].__get__(error)
    assert left is None, "let go of"
    assert "in test_an_exception" in (outcome.traceback or "")
    assert (outcome.error_message, outcome.mro[1]) == ("said", "SilentError")
