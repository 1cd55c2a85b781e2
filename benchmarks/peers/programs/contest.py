"""What every Python contender has in common: its options, its phases, its clock, its one line of JSON. Standard library only.

It runs under each peer's own Python, where Octop is not installed. The clock is CLOCK_MONOTONIC, which all processes of a machine share.
"""

import asyncio
import contextlib
import json
import os
import resource
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

CHUNK = 1_000
TOGETHER = 200
"""So many single enqueues are awaited at once, as the requests of a web server are."""


class Contender:
    """One task queue. A subclass says how to install, enqueue and work; the base measures."""

    bulk: ClassVar[bool] = True
    """Whether it has a bulk call; without one, single calls are awaited concurrently."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.dsn: str = options.get("dsn", "")
        self.tasks: int = options.get("tasks", 1_000)
        self.first: float | None = None
        self.count = 0
        self.expected = self.tasks
        self.last = 0.0
        self.all_ran = asyncio.Event()
        self.one_ran = asyncio.Event()

    async def setup(self) -> None:
        """Install the schema in an empty database."""

    async def open(self) -> None:
        """Open what enqueuing needs."""

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        raise NotImplementedError

    async def enqueue_in_transaction(self, payload: dict[str, Any]) -> None:
        """Enqueue in a transaction that also writes a row of the caller's own."""
        raise NotImplementedError

    async def work(self) -> None:
        """Run a worker until cancelled."""
        raise NotImplementedError

    async def drained_by(self, command: list[str], environment: dict[str, str], folder: Path) -> dict[str, Any]:
        """Let a worker of the peer's own command drain the queue; its tasks write stamps into the folder."""
        worker = subprocess.Popen(command, env=environment, stdout=sys.stderr, cwd=folder)
        try:
            return await drained(folder, self.tasks, self.left) | {"worker_megabytes": resident_megabytes(worker.pid)}
        finally:
            worker.terminate()

    async def latency_of(self, command: list[str], environment: dict[str, str], folder: Path) -> dict[str, Any]:
        """Enqueue one task at a time for an idle worker of the peer's own command; its tasks write stamps into the folder."""
        worker = subprocess.Popen(command, env=environment, stdout=sys.stderr, cwd=folder)
        samples: list[float] = []
        count, gap = self.options.get("samples", 100), self.options.get("gap_seconds", 0.06)
        try:
            for n in range(count + 3):
                # A different moment each time, as in phase_latency.
                await asyncio.sleep(gap + (n * 7 % 13) * gap / 10)
                began = time.monotonic()
                await self.enqueue_one({"n": n})
                while stamped(folder)[1] <= n:
                    await asyncio.sleep(0.001)
                samples.append(1000 * (last_stamped(folder) - began))
        finally:
            worker.terminate()
        return {"latency_ms": samples[3:]}

    async def left(self) -> bool:
        """Tell whether anything waits, runs, or is not yet acknowledged."""
        raise NotImplementedError

    def ran(self) -> None:
        """Note that the task function was called; it does nothing else."""
        if self.first is None:
            self.first = time.monotonic()
        self.count += 1
        if self.count >= self.expected:
            self.last = time.monotonic()
            self.all_ran.set()

    # Measuring

    async def phase_setup(self) -> dict[str, Any]:
        await self.setup()
        return {}

    def payloads(self, count: int) -> list[dict[str, Any]]:
        size = self.options.get("payload_bytes", 0)
        text = {"text": "x" * size} if size else {}
        return [{"n": n, **text} for n in range(count)]

    async def phase_enqueue(self) -> dict[str, Any]:
        payloads = self.payloads(self.tasks)
        await self.open()
        chunk = max(1, min(CHUNK, 8_000_000 // max(1, self.options.get("payload_bytes", 0))))
        began = time.monotonic()
        if self.bulk:
            for start in range(0, len(payloads), chunk):
                await self.enqueue_many(payloads[start : start + chunk])
        else:
            for start in range(0, len(payloads), TOGETHER):
                await together(self.enqueue_one(each) for each in payloads[start : start + TOGETHER])
        return {"enqueue_seconds": time.monotonic() - began}

    async def phase_one_by_one(self) -> dict[str, Any]:
        await self.open()
        await self.enqueue_one({"n": 0})
        began = time.monotonic()
        for each in self.payloads(self.tasks):
            await self.enqueue_one(each)
        return {"one_by_one_seconds": time.monotonic() - began}

    async def phase_together(self) -> dict[str, Any]:
        await self.open()
        await self.enqueue_one({"n": 0})
        began = time.monotonic()
        payloads = self.payloads(self.tasks)
        for start in range(0, len(payloads), TOGETHER):
            await together(self.enqueue_one(each) for each in payloads[start : start + TOGETHER])
        return {"together_seconds": time.monotonic() - began}

    async def phase_transaction(self) -> dict[str, Any]:
        await self.open()
        try:
            await self.enqueue_in_transaction({"n": 0})
        except NotImplementedError:
            return {"transaction_seconds": None}
        began = time.monotonic()
        for each in self.payloads(self.tasks):
            await self.enqueue_in_transaction(each)
        return {"transaction_seconds": time.monotonic() - began}

    async def phase_drain(self) -> dict[str, Any]:
        await self.open()
        async with working(self.work()):
            await self.all_ran.wait()
            while await self.left():
                await asyncio.sleep(0.002)
            ended = time.monotonic()
            rss = resident_megabytes(os.getpid())
        assert self.first is not None
        ran = {"ran_seconds": self.last - self.first}
        return {
            "drain_seconds": ended - self.first,
            **ran,
            "first_at": self.first,
            "done_at": ended,
            "worker_megabytes": rss,
        }

    async def phase_share(self) -> dict[str, Any]:
        """Work beside other processes until nothing is left; all begin at one moment, `begin_at`."""
        await self.open()
        self.expected = sys.maxsize
        await asyncio.sleep(max(0.0, self.options["begin_at"] - time.monotonic()))
        async with working(self.work()):
            seen = -1
            while seen != self.count or await self.left():  # who still runs something need not ask
                seen = self.count
                await asyncio.sleep(0.005)
            return {"first_at": self.first, "done_at": time.monotonic(), "count": self.count}

    async def phase_latency(self) -> dict[str, Any]:
        """Enqueue one task at a time for an idle worker in this process: from before the call to the start of the function."""
        await self.open()
        samples: list[float] = []
        count, gap = self.options.get("samples", 100), self.options.get("gap_seconds", 0.06)
        async with working(self.work()):
            await asyncio.sleep(self.options.get("idle_seconds", 1.5))
            for n in range(count + 3):
                self.all_ran.clear()
                self.expected = self.count + 1
                # A different moment each time: a worker that polls must not be hit in step.
                await asyncio.sleep(gap + (n * 7 % 13) * gap / 10)
                began = time.monotonic()
                await self.enqueue_one({"n": n})
                await self.all_ran.wait()
                samples.append(1000 * (self.last - began))
        return {"latency_ms": samples[3:]}

    async def phase_idle(self) -> dict[str, Any]:
        """Start a worker that has nothing to do, and look at its memory."""
        await self.open()
        async with working(self.work()):
            await asyncio.sleep(self.options.get("idle_seconds", 3.0))
            return {"worker_megabytes": resident_megabytes(os.getpid())}


@contextlib.asynccontextmanager
async def working(worker: Coroutine[Any, Any, None]) -> Any:
    """Run a worker for the length of a `with`; an error of its ends it."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(worker)
        yield
        task.cancel()


async def together(calls: Any) -> None:
    """Await calls concurrently."""
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process and its children, shared pages counted in each."""
    total = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            total = int(line.split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total / 1024 + sum(resident_megabytes(int(each)) for each in children)


class Stamp:
    """In a worker of its own process: counts calls of the task function in a file that the contender reads.

    It survives a fork: each process writes a file of its own.

    Args:
        folder: Of the files.
        last: Note the moment of the last call, too.
    """

    def __init__(self, folder: Path, *, last: bool = False) -> None:
        self._folder = folder
        self._last = last
        self._pid = 0
        self._memory: Any = None
        self._count = 0

    def ran(self) -> None:
        """Note that the task function was called."""
        if self._pid != os.getpid():
            self._begin()
        self._count += 1
        if self._last:  # before the count: who sees that, sees this
            struct.pack_into("d", self._memory, 16, time.monotonic())
        struct.pack_into("q", self._memory, 8, self._count)

    def _begin(self) -> None:
        import mmap  # noqa: PLC0415 - only in the worker

        self._pid, self._count = os.getpid(), 0
        path = self._folder / f"stamp-{self._pid}"
        path.write_bytes(bytes(24))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 24)
        struct.pack_into("d", self._memory, 0, time.monotonic())


def stamped(folder: Path) -> tuple[float | None, int]:
    """Return the moment of the first call in any worker process, and the number of calls in all."""
    first, count = None, 0
    for path in folder.glob("stamp-*"):
        content = path.read_bytes()
        if len(content) == 24:
            at, calls, _ = struct.unpack("dqd", content)
            count += calls
            if at and (first is None or at < first):
                first = at
    return first, count


def last_stamped(folder: Path) -> float:
    """Return the moment of the last call in any worker process; their stamps are made with `last`."""
    return max(float(struct.unpack("dqd", path.read_bytes())[2]) for path in folder.glob("stamp-*"))


def pause_before(expected: int, first: float | None, count: int) -> float:
    """Return how long to wait before the next look, in seconds: looking costs time, so not often while much is left."""
    if first is None or not count:
        return 0.005
    rate = count / max(time.monotonic() - first, 0.001)
    return min(0.1, max(0.002, (expected - count) / rate / 3))


async def drained(folder: Path, expected: int, left: Any) -> dict[str, Any]:
    """Wait until worker processes have made all calls and nothing is left; return the answer of a drain."""
    while (seen := stamped(folder))[1] < expected:
        await asyncio.sleep(pause_before(expected, *seen))
    while await left():
        await asyncio.sleep(0.002)
    ended = time.monotonic()
    first = stamped(folder)[0]
    assert first is not None
    return {"drain_seconds": ended - first, "first_at": first, "done_at": ended}


async def _phases(contender: Contender, names: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {"tasks": contender.tasks}
    for name in names:
        contender.tasks = contender.options.get("counts", {}).get(name, answer["tasks"])
        contender.expected = contender.tasks
        answer |= await getattr(contender, f"phase_{name}")()
    return answer


def run(kind: type[Contender], runner: Any = asyncio.run) -> None:
    """Read the options, run the phases, print one line; leave at once, without waiting for pools to close in good order."""
    options = json.loads(sys.argv[1])
    code = 0
    try:
        answer = runner(_phases(kind(options), options["phases"]))
        answer["megabytes_max"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(answer), flush=True)
    except BaseException:  # noqa: BLE001 - the border of the process: whatever it was is told, and the code says so
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)
