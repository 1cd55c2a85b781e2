"""What the faults happen to: the broker, a proxy before each worker and before the producers, the workers, and the file apart."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import servers
from tests.servers import HOUSE
from tests.system.faults.peers.brokers import Broker, broker
from tests.system.faults.peers.contenders import Contender
from tests.system.faults.peers.crews import Crew
from tests.system.faults.peers.programs import book
from tests.system.faults.peers.programs.program import BROKER
from tests.system.faults.proxy import Proxy

WORKERS = ("w1", "w2")
PRODUCERS = ("p1", "p2")
CALLER = "producers"
START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 60.0


class Stage:
    """All that a run needs."""

    def __init__(
        self, contender: Contender, broker: Broker, networks: dict[str, Proxy], folder: Path, seed: int
    ) -> None:
        self.contender = contender
        self.broker = broker
        self.networks = networks
        self.folder = folder
        self.book = folder / "book"
        self.broker_lock = threading.Lock()
        self.suspended: set[str] = set()
        self._seed = seed
        self._python = contender.python()
        if contender.name == "octop":
            broker.prepare_octop()
        self._ask("setup")
        self.crews: list[Crew] = []
        self.producers: list[subprocess.Popen[bytes]] = []

    def start_workers(self) -> None:
        for name in WORKERS:
            command = [str(self._python), *self.contender.worker(name, self.folder)]
            environment = self._environment(name)
            self.crews.append(Crew(name, command, environment, self.folder, self.contender.runs_in, self._tell_gone))

    def _tell_gone(self, pid: int, alive_at: float) -> None:
        book.write(self.book, "gone", pid=pid, alive_at=alive_at)

    def tell(self, kind: str, pids: list[int]) -> None:
        """Write down what happens to processes."""
        for pid in pids:
            book.write(self.book, kind, pid=pid)

    def _environment(self, network: str) -> dict[str, str]:
        url = self.broker.url(self.networks[network].port)
        # The last two are the names by which Octop and oban read it.
        return {book.VARIABLE: str(self.book), BROKER: url, "OCTOP_DSN": url, "OBAN_DSN": url}

    def start_producers(self) -> None:
        for name in PRODUCERS:
            with (self.folder / f"{name}.log").open("ab") as log:
                self.producers.append(subprocess.Popen(**self._program("produce", name=name), stdout=log, stderr=log))

    def stop_producers(self) -> None:
        """End them in good order.

        Raises:
            RuntimeError: One has not: then the run proves nothing.
        """
        for each in self.producers:
            each.terminate()
        for each in self.producers:
            if each.wait(ANSWER_SECONDS_MAX) != 0:
                raise RuntimeError(f"a producer did not end well; see {self.folder}")

    def states(self) -> dict[str, list[str]]:
        """Return what the contender holds now."""
        answer: dict[str, list[str]] = self._ask("states")
        return answer

    def _program(self, phase: str, **options: object) -> dict[str, Any]:
        environment = {**os.environ, "PYTHONPATH": f"{HOUSE / 'src'}{os.pathsep}{HOUSE}", **self._environment(CALLER)}
        told = {
            "phase": phase,
            "broker": environment[BROKER],
            "folder": str(self.folder),
            "seed": self._seed,
            **options,
        }
        command = [str(self._python), "-m", self.contender.module, json.dumps(told)]
        return {"args": command, "env": environment, "cwd": HOUSE, "stdin": subprocess.DEVNULL}

    def _ask(self, phase: str) -> Any:
        answer = subprocess.run(
            **self._program(phase), capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
        if answer.returncode != 0:
            raise RuntimeError(f"{self.contender.name} {phase} failed: {answer.stderr[-2000:]}")
        return json.loads(answer.stdout.splitlines()[-1])

    def wait_for_workers(self) -> None:
        """Wait until each worker has begun a task: before that a fault strikes nobody."""
        deadline = time.monotonic() + START_SECONDS_MAX
        missing = list(self.crews)
        while missing:
            began = {line["pid"] for line in book.read(self.book) if line["kind"] == "began"}
            missing = [each for each in missing if not began.intersection(each.processes())]
            if time.monotonic() > deadline:
                raise RuntimeError(f"{', '.join(each.name for each in missing)} does not start; see {self.folder}")
            time.sleep(0.1)

    def end(self) -> None:
        """End what still runs."""
        for producer in self.producers:
            if producer.poll() is None:
                producer.kill()
                producer.wait()
        for each in self.crews:
            each.kill()


@contextlib.contextmanager
def staged(contender: Contender, version: int, seed: int, logs: Path | None) -> Iterator[Stage]:
    """Set all up for the length of a `with`; the logs are copied to a folder if one is named."""
    # In memory if there is enough, as the servers of the tests; short, because a socket lies in it.
    folder = Path(tempfile.mkdtemp(prefix="peer-", dir=servers.run_directory()))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if logs is not None:
            stack.callback(shutil.copytree, folder, logs, ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)
        keeper = stack.enter_context(broker(contender.broker, version, folder))
        networks = {name: stack.enter_context(Proxy(keeper.socket)) for name in (CALLER, *WORKERS)}
        stage = Stage(contender, keeper, networks, folder, seed)
        stack.callback(stage.end)
        yield stage
