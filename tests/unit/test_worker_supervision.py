"""What a supervisor knows of its processes, and what it does about it: without a database."""

import asyncio
import logging
import signal
import socket
import time

import pytest

from octop.worker.charge import SILENT_SECONDS_MIN, WorkerProcess
from octop.worker.frames import Channel
from octop.worker.heart import Culprit, Pulse
from octop.worker.load import Loaded
from octop.worker.options import WorkerOptions
from octop.worker.supervisor import Supervisor


class FakeProcess:
    pid = 0
    returncode = None

    def __init__(self, code=None):
        self.code = code
        self.signals = []

    def send_signal(self, number):
        self.signals.append(number)
        self.returncode = -int(number)

    async def wait(self):
        return self.returncode if self.code is None else self.code


class FakeWriter:
    def is_closing(self):
        return True

    def close(self):
        return None


def worker_process(process=None):
    return WorkerProcess(process or FakeProcess(), None, FakeWriter(), "w")  # type: ignore[arg-type]


class FakeLink:
    def __init__(self):
        self.texts = []

    async def call(self, call, *, seconds=0.0):
        self.texts.append(call.text)
        return 1


def test_a_loop_that_is_held_by_a_named_task_is_borne_until_that_tasks_time_is_over():
    worker = worker_process()
    assert worker.silent_until(10) == float("inf"), "it has not begun to turn"
    worker.heard({"pulse": 300.0})
    now = time.monotonic()
    assert now + 305 < worker.silent_until(10) < now + 311, "nobody named: the longest time limit of all its tasks"
    worker.heard({"pulse": 0.0})
    assert abs(worker.silent_until(10) - now - SILENT_SECONDS_MIN) < 1
    worker.heard({"blocked": "the task x", "deadline": now + 5.0})
    assert worker.silent_until(1.0) == now + 6.0
    worker.forgive(100.0)
    assert worker.silent_until(1.0) == pytest.approx(now + 106.0, abs=0.5)
    worker.heard({"pulse": 1.0})
    assert worker.culprit is None
    worker.heard({"delivering": True})
    assert worker.silent_until(1.0) == float("inf")
    worker.heard({"pulse": 1.0})
    assert worker.silent_until(1.0) == float("inf"), "what was on its way changes nothing"


def test_a_leaving_worker_is_not_beaten_for():
    async def look():
        supervisor = Supervisor(WorkerOptions(dsn="", application="x"))
        supervisor._workers = {0: (worker := worker_process())}
        worker.heard({"registered": True})
        assert supervisor._living() == ["w"]
        worker.heard({"leaving": True})
        assert supervisor._living() == []

    asyncio.run(look())


@pytest.mark.parametrize(
    ("messages", "killed", "called"),
    [
        ([{"registered": True}], False, "octop_lost"),
        ([], False, "octop_lost"),
        ([{"registered": True}], True, "octop_deregister"),
        ([], True, "octop_deregister"),
        ([{"registered": True}, {"leaving": True}], False, "octop_lost"),
        ([{"registered": True}, {"leaving": True}, {"left": True}], False, None),
        (
            [{"registered": True}, {"ended": True, "drained": False, "recycled": "it has run 5 tasks"}],
            False,
            "octop_deregister",
        ),
        ([{"fatal": 1}], False, None),
        ([{"registered": True}, {"ended": True, "drained": False, "recycled": ""}], False, "octop_deregister"),
        ([{"registered": True}, {"fatal": 5}], False, "octop_deregister"),
    ],
)
def test_what_a_dead_process_held_is_given_back_at_once(messages, killed, called, monkeypatch):
    async def look():
        supervisor = Supervisor(WorkerOptions(dsn="", application="x"))
        supervisor._link = link = FakeLink()  # type: ignore[assignment]
        worker = worker_process(FakeProcess(code=-9))
        worker.killed = killed

        async def start(*, patient):
            return worker

        async def follow(worker):
            for message in messages:
                worker.heard(message)
            supervisor._stopping.set()
            return -9

        monkeypatch.setattr(supervisor, "_start", start)
        monkeypatch.setattr(supervisor, "_follow", follow)
        monkeypatch.setattr(supervisor, "_stop", lambda worker: None)
        await supervisor._keep(0)
        assert [text.split()[1].partition("(")[0] for text in link.texts] == ([called] if called else [])

    asyncio.run(look())


def test_a_process_that_was_stopped_before_it_registered_is_released_too():
    async def look():
        supervisor = Supervisor(WorkerOptions(dsn="", application="x"))
        worker = worker_process()
        supervisor._stop(worker)
        assert worker.killed

    asyncio.run(look())


def test_a_failing_fork_is_tried_again(monkeypatch, caplog):
    tries = []

    async def look():
        supervisor = Supervisor(WorkerOptions(dsn="", application="x"))

        async def no_memory(*arguments, **options):
            tries.append(1)
            if len(tries) == 3:
                supervisor._stopping.set()
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr("asyncio.create_subprocess_exec", no_memory)
        async with asyncio.timeout(10):
            await supervisor._keep(0)

    asyncio.run(look())
    assert len(tries) == 3
    assert "no worker process can be started" in caplog.text


def test_the_pulse_tells_of_turning_and_of_who_blocks():
    turned: list[int] = []
    blocked: list[Culprit] = []

    async def look():
        pulse = Pulse(lambda _since: Culprit("x", None), on_turn=lambda: turned.append(1), on_blocked=blocked.append)
        await asyncio.sleep(0.01)
        assert turned == [1]
        time.sleep(1.8)  # noqa: ASYNC251 - what this is about
        assert blocked == [Culprit("x", None)]
        await asyncio.sleep(0.01)
        assert turned == [1, 1]
        pulse.stop()

    asyncio.run(look())


def test_a_pulse_does_not_wait_for_a_supervisor_that_does_not_listen():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    began = time.monotonic()
    sent = sum(channel.offer({"pulse": 1.0}) for _ in range(20_000))
    assert 0 < sent < 20_000
    assert time.monotonic() - began < 10
    for end in (ours, theirs):
        end.close()


@pytest.mark.parametrize("signalled", [False, True])
def test_a_file_that_changes_after_a_signal_restarts_nothing(signalled, tmp_path, monkeypatch, caplog):
    async def one_change(folder):
        yield {f"{folder}/tasks.py"}

    async def body():
        supervisor = Supervisor(WorkerOptions(dsn="", reload=True))
        supervisor._folder.set_result(tmp_path)
        supervisor._workers[0] = worker_process(process)
        if signalled:
            supervisor._stopping.set()
        await supervisor._reload()

    process = FakeProcess()
    monkeypatch.setattr("octop.worker.supervisor.changes", one_change)
    caplog.set_level(logging.INFO)
    asyncio.run(body())
    assert len(process.signals) == (0 if signalled else 1)
    assert ("restarting" in caplog.text) is not signalled


def test_a_process_that_makes_room_is_told_once_and_its_end_is_no_failure(tmp_path, monkeypatch, caplog):
    async def two_changes(folder):
        yield {f"{folder}/tasks.py"}
        yield {f"{folder}/tasks.py"}

    async def body():
        supervisor = Supervisor(WorkerOptions(dsn="", reload=True))
        supervisor._link = link = FakeLink()  # type: ignore[assignment]
        supervisor._folder.set_result(tmp_path)
        started: list[WorkerProcess] = []

        async def start(*, patient):
            if started:
                supervisor._stopping.set()
            started.append(worker_process(process))
            return started[-1]

        async def follow(worker):
            worker.heard({"registered": True})
            if len(started) == 1:
                await supervisor._reload()
            return -15

        monkeypatch.setattr(supervisor, "_start", start)
        monkeypatch.setattr(supervisor, "_follow", follow)
        await supervisor._keep(0)
        assert process.signals[0] == signal.SIGTERM
        assert [text.split()[1].partition("(")[0] for text in link.texts][:1] == [
            "octop_deregister"
        ]  # no try is used up
        assert len(started) == 2
        return started[0]

    process = FakeProcess()
    monkeypatch.setattr("octop.worker.supervisor.changes", two_changes)
    replaced = asyncio.run(body())
    assert replaced.replaced
    assert "ended by" not in caplog.text


@pytest.mark.parametrize(
    ("reload", "has_run", "mendable", "waits"),
    [(True, False, True, True), (True, True, False, True), (True, False, False, False), (False, True, True, False)],
)
def test_only_what_a_save_may_mend_is_waited_for(reload, has_run, mendable, waits):
    async def look():
        supervisor = Supervisor(WorkerOptions(dsn="", reload=reload))
        supervisor._has_run = has_run
        worker = worker_process()
        worker.heard({"fatal": 1, "message": "x", "mendable": mendable})
        waiting = asyncio.create_task(supervisor._may_try_again(worker))
        await asyncio.sleep(0)
        assert waiting.done() is not waits
        supervisor._changed.set()
        assert await waiting is waits
        assert supervisor._exit_code == (0 if waits else 1)

    asyncio.run(look())


def test_a_queue_of_no_task_type_is_warned_of_once_and_the_first_load_is_told(caplog):
    told: list[Loaded] = []

    async def look():
        queues = {"slo": 2, "default": None, "slow": None, "bulk": None}
        supervisor = Supervisor(WorkerOptions(dsn="", queues=queues), told.append)
        for _ in range(2):
            supervisor._heard(
                worker_process(), {"loaded": {"file": "a.py", "task_types": 3, "queues": ["slow", "mail"]}}
            )

    asyncio.run(look())
    assert told == [Loaded("a.py", 3, ["slow", "mail"])]  # type: ignore[arg-type]
    assert [record.message for record in caplog.records] == [
        "no task type of the application is in the queue slo; did you mean slow?",
        "no task type of the application is in the queue bulk: they are in slow, mail",
    ]
