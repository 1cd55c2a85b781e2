import asyncio
import contextvars
import logging
import math
import os
import re
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from octop.model.errors import ApplicationError, ConfigurationError
from octop.model.hooks import Hooks
from octop.model.settings import load_settings
from octop.model.task import Fence, Outcome, OutcomeKind, Success
from octop.worker.children import ended_how, environment_of_children
from octop.worker.frames import Channel, encoded, read_message
from octop.worker.lease import Lease
from octop.worker.link import pause_before_try
from octop.worker.load import described, is_mendable, load_application, named_application
from octop.worker.logs import JsonFormatter
from octop.worker.options import WorkerOptions
from octop.worker.outbox import BATCH_BYTES_MAX, Outbox
from octop.worker.reload import changes, snapshot
from octop.worker.slot import Reason, Slot
from octop.worker.watchdog import Watchdog
from tests.unit.house import House, claimed, house_test, until

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@house_test
async def test_runs_in_the_order_given_and_no_context_variable_leaks():
    seen = []

    async def paint(n: int) -> None:
        seen.append((n, COLOUR.get()))
        COLOUR.set(str(n))
        if n % 2:
            await asyncio.sleep(0.01)
            assert COLOUR.get() == str(n)

    house = House(paint, limit=100)
    house.give(*(claimed("paint", n, f'{{"n": {n}}}') for n in range(20)))
    await house.idle()
    assert seen == [(n, "none") for n in range(20)]
    assert len(house.holdings.outbox.successes) == 20
    assert not house.holdings.active


@house_test
async def test_tasks_that_never_wait_need_one_place():
    async def noop() -> None: ...

    house = House(noop, limit=500)
    house.give(*(claimed("noop", n) for n in range(500)))
    await house.idle()
    assert len(house.pool._slots) == 1


@house_test
async def test_a_task_that_cancels_itself_fails_and_the_next_one_runs():
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def then_waits() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async def fine() -> None:
        await asyncio.sleep(0.01)

    house = House(cancels_itself, then_waits, fine, limit=1)
    house.give(claimed("cancels_itself", 1))
    house.give(claimed("then_waits", 2))
    house.give(claimed("fine", 3))
    await house.idle()
    assert [outcome.error_class for outcome in house.holdings.outbox.outcomes] == ["asyncio.exceptions.CancelledError"]
    assert [success.fence.id for success in house.holdings.outbox.successes] == ["1", "3"]


@house_test
async def test_c049_reasons_are_told_apart():
    async def waits() -> None:
        await asyncio.sleep(30)

    house = House(waits)
    house.give(claimed("waits", 1, timeout=0.5), *(claimed("waits", n) for n in (2, 3, 4)))
    running = house.holdings.running
    await until(lambda: len(running) == 4)
    house.runner.cancel(running["2"])
    house.runner.interrupt(running["3"], Reason.SHUTDOWN)
    lost = running["4"]
    del house.holdings.active["4"]
    house.runner.interrupt(lost, Reason.LOST)
    await house.idle()
    kinds = {outcome.fence.id: outcome.kind for outcome in house.holdings.outbox.outcomes}
    assert kinds == {"1": OutcomeKind.TIMEOUT, "2": OutcomeKind.CANCELLED, "3": OutcomeKind.RELEASED}


@house_test
async def test_a_task_whose_claim_the_server_forgot_runs_once_under_the_new_fence():
    starts = []

    async def waits() -> None:
        starts.append(1)
        await asyncio.sleep(0.05)

    house = House(waits)
    first = claimed("waits", 1)
    house.give(first)
    await until(lambda: bool(starts))
    house.give(first._replace(claim_id="d"))
    await house.idle()
    assert starts == [1]
    assert [success.fence for success in house.holdings.outbox.successes] == [Fence("1", 1, "d")]


@house_test
async def test_nothing_starts_while_the_lease_is_in_doubt():
    async def noop() -> None: ...

    house = House(noop)
    house.lease.beaten(time.monotonic(), unbroken=False)
    house.lease.on_renewed = house.pool.renew
    house.give(claimed("noop", 1))
    await asyncio.sleep(0.05)
    assert not house.holdings.outbox.successes
    house.lease.confirmed()
    await house.idle()
    assert len(house.holdings.outbox.successes) == 1


@house_test
async def test_a_thread_over_its_limit_keeps_its_place_until_it_ends():
    gate = threading.Event()

    def blocks() -> None:
        gate.wait(5)

    house = House(blocks, limit=1)
    house.give(claimed("blocks", 1, timeout=0.05))
    await asyncio.wait_for(house.holdings.urgent.wait(), 5)
    assert house.holdings.outbox.outcomes[0].kind is OutcomeKind.TIMEOUT
    assert house.pool.free == 0
    assert house.holdings.accept([claimed("blocks", 1)]) == [], "the same task must not start beside it"
    gate.set()
    await house.idle()
    assert house.pool.free == 1


@house_test
async def test_middleware_wraps_in_order_and_a_hook_that_raises_changes_nothing():
    told = []

    async def outer(context, call_next):
        told.append("outer")
        answer = await call_next()
        told.append("after")
        return answer

    async def inner(context, call_next):
        told.append("inner")
        return await call_next()

    def bad_hook(context, value):
        told.append(value)
        raise ValueError

    def sync_task() -> int:
        told.append("body")
        return 7

    house = House(sync_task, hooks=Hooks(middleware=[outer, inner], success=[bad_hook]))
    house.give(claimed("sync_task", 1))
    await house.idle()
    assert told == ["outer", "inner", "body", "after", 7]
    assert [success.result for success in house.holdings.outbox.successes] == ["7"]


@house_test
async def test_the_watchdog_keeps_one_entry_per_place():
    barked: list[Slot] = []
    dog = Watchdog(barked.append)
    slot = Slot()
    slot.claimed = claimed("x")
    for _ in range(1000):
        dog.watch(slot, time.monotonic() + 60)
    assert len(dog._heap) == 1
    dog.watch(slot, time.monotonic() + 0.01)
    await asyncio.sleep(0.05)
    assert barked == [slot]
    assert slot.deadline == math.inf
    dog.close()


def test_the_outbox_is_bounded_in_bytes_and_loses_nothing():
    outbox = Outbox()
    for number in range(10):
        outbox.add_success(Success(Fence(str(number), 1, "c"), "x" * (BATCH_BYTES_MAX // 4)))
    outbox.add_outcome(Outcome(Fence("last", 1, "c"), OutcomeKind.FAILURE))
    seen = []
    while len(outbox):
        successes, outcomes = outbox.take()
        assert len(successes) <= 4
        seen += [success.fence.id for success in successes] + [outcome.fence.id for outcome in outcomes]
    assert seen == [*map(str, range(10)), "last"]


def test_pauses_grow_are_bounded_and_differ_between_workers():
    pauses = [pause_before_try(number, "a") for number in range(1, 40)]
    assert 0.05 <= pauses[0] <= 0.1
    assert max(pauses) <= 5
    assert min(pauses[10:]) >= 2.5
    assert pause_before_try(5, "a") != pause_before_try(5, "b")


def test_a_lease_ends_at_two_thirds_and_a_broken_one_at_once():
    lease = Lease(3)
    lease.beaten(100.0, unbroken=True)
    assert lease.until == 102.0
    lease.set_seconds(6)
    assert lease.until == 104.0
    lease.beaten(103.0, unbroken=False)
    assert lease.until == 0.0
    lease.beaten(104.0, unbroken=True)
    assert lease.until == 0.0, "still in doubt"
    lease.confirmed()
    assert lease.until == 108.0


def test_messages_pass_through_a_socket_and_rubbish_ends_it():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)

    async def read():
        reader, writer = await asyncio.open_connection(sock=theirs)
        channel.send({"text": "ä\ud800", "n": 1})
        first = await read_message(reader)
        writer.write(encoded({"back": True}))
        await writer.drain()
        ours.sendall(b"\xff\xff\xff\xff")
        second = await read_message(reader)
        writer.close()
        return first, second

    assert asyncio.run(read()) == ({"text": "ä\ud800", "n": 1}, None)
    assert channel.receive() == {"back": True}
    assert channel.receive() is None
    ours.close()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (":octop", "names no module"),
        ("no_such_module_here:octop", "no module no_such_module_here"),
        ("json:dumps", "not an Octop"),
        ("json:absent", "no attribute absent"),
        ("json", "holds no application"),
        ("json", "has no `octop = Octop\\(\\)`"),
        ("../app/tasks.pyy", "neither the name of a module nor a .py file"),
        ("no_such_folder/tasks.py:octop", "there is no file no_such_folder/tasks.py"),
    ],
)
def test_c121_a_wrong_application_is_named(spec, words):
    with pytest.raises(ApplicationError, match=words) as caught:
        load_application(spec)
    assert not is_mendable(caught.value)


def test_the_module_of_a_settings_file_is_found_from_a_folder_below_it(tmp_path, monkeypatch):
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "octop.toml").write_text('app = "app_of_a_file"\n')
    (tmp_path / "app_of_a_file.py").write_text("from octop import Octop\noctop = Octop(name='right')\n")
    (below / "app_of_a_file.py").write_text("from octop import Octop\noctop = Octop(name='wrong')\n")
    (below / "tasks.py").write_text("")
    monkeypatch.chdir(below)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "app_of_a_file", raising=False)
    named = named_application(load_settings(environment={}))
    assert named == ("app_of_a_file", tmp_path)
    assert repr(load_application(*named)).startswith("<Octop 'right'")
    del sys.modules["app_of_a_file"]
    (tmp_path / "octop.toml").unlink()
    assert named_application(load_settings(environment={})) == ("tasks", below)
    assert named_application(load_settings(environment={"OCTOP_APP": "a:b"})) == ("a:b", None)
    (below / "tasks.py").unlink()
    assert named_application(load_settings(environment={})) is None


@pytest.mark.parametrize(
    "body", ["raise ImportError('libfoo')", "import sys; sys.exit(0)", "def (", "raise KeyboardInterrupt"]
)
def test_c121_whatever_an_import_raises_is_told_with_its_traceback(tmp_path, body, monkeypatch):
    (tmp_path / "faulty_app.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty_app", raising=False)
    with pytest.raises(ApplicationError, match="faulty_app does not import") as caught:
        load_application("faulty_app:octop")
    assert "faulty_app.py" in caught.value.detail
    assert is_mendable(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"processes": 0},
        {"queues": {}},
        {"queues": {"": 1}},
        {"queues": {"a": -1}},
        {"grace_seconds": -1},
        {"log_format": "xml"},
        {"max_tasks_per_process": 0},
        {"max_memory_mb": 0},
        {"health_port": -1},
        {"health_port": 65_536},
        {"health_host": "0.0.0.0"},
        {"health_port": 1, "health_host": ""},
        {"health_file": ""},
    ],
)
def test_options_out_of_bounds_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        WorkerOptions(dsn="", **wrong)


def test_c113_the_dsn_is_never_shown():
    assert "secret" not in repr(WorkerOptions(dsn="postgresql://u:secret@h/d"))


def test_children_get_no_rights_they_do_not_need():
    worker = {"OCTOP_DSN": "a", "PGPASSWORD": "p", "DATABASE_URL": "u", "PATH": "/bin"}
    assert environment_of_children(worker) == worker
    assert environment_of_children({**worker, "OCTOP_TASK_DSN": "b"}) == {"OCTOP_DSN": "b", "PATH": "/bin"}
    assert environment_of_children({**worker, "OCTOP_TASK_DSN": ""}) == {"PATH": "/bin"}


def test_the_end_of_a_process_is_told_in_words():
    assert ended_how(-9).endswith("SIGKILL")
    assert ended_how(3).endswith("code 3")
    assert "closed" in ended_how(None)


def test_a_log_line_is_json_with_its_fields():
    record = logging.makeLogRecord({"msg": "a %s", "args": ("b",), "levelname": "INFO", "task_id": "t"})
    line = JsonFormatter().format(record)
    assert '"message": "a b"' in line
    assert '"task_id": "t"' in line
    assert "\n" not in line


def test_a_changed_file_is_noticed(tmp_path):
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "a.py"
    file.write_text("1")
    (tmp_path / "b.txt").write_text("1")
    before = snapshot(tmp_path)
    assert list(before) == [file]
    os.utime(file, ns=(1, 1))
    assert snapshot(tmp_path) != before


def test_files_that_are_saved_after_each_other_are_one_change(monkeypatch):
    looks = [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2, "b": 1}, {"a": 3, "b": 1}, {"a": 3, "b": 1}]
    monkeypatch.setattr("octop.worker.reload.snapshot", lambda folder: looks.pop(0))
    for pause in ("LOOK_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(f"octop.worker.reload.{pause}", 0)

    async def first():
        return await anext(changes(Path()))

    assert asyncio.run(first()) == {"a", "b"}
    assert looks == []


def test_what_was_loaded_is_described(tmp_path, monkeypatch):
    (tmp_path / "described_app.py").write_text(
        "from octop import Octop\noctop = Octop()\n\n"
        "@octop.task(queue='mail', aliases=['old'])\ndef one() -> None: ...\n\n@octop.task\ndef two() -> None: ...\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "described_app", raising=False)
    loaded = described("described_app:octop", load_application("described_app:octop", tmp_path))
    assert loaded == (str(tmp_path / "described_app.py"), 2, ("default", "mail"))
    del sys.modules["described_app"]


@pytest.mark.parametrize("tells", [False, True])
def test_the_end_of_each_task_is_told_where_that_is_asked_for(tells, caplog):
    async def greet() -> str:
        return "hello"

    async def quiet() -> None: ...

    async def breaks() -> None:
        raise LookupError("no such order")

    @house_test
    async def run():
        house = House(greet, quiet, breaks)
        house.runner.tells = tells
        house.give(*(claimed(name, number) for number, name in enumerate(("greet", "quiet", "breaks"))))
        await house.idle()

    caplog.set_level(logging.INFO, "octop.worker.runner")
    run()
    told = [each.getMessage() for each in caplog.records]
    successes = [each for each in told if each.startswith("success of ")]
    assert len(successes) == (2 if tells else 0)
    assert all(re.fullmatch(r"success of (greet 0|quiet 1) after \d+ ms", each) for each in successes)
    (failure,) = [each for each in told if each.startswith("failure of breaks")]
    assert "LookupError: no such order" in failure.splitlines()[0]
    assert ('raise LookupError("no such order")' in failure) is tells
