"""Run contenders' programs, in turn, and put their answers together."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers import environments
from benchmarks.peers.peer import Peer
from benchmarks.server import Server

SECONDS_MAX = 300.0
SECONDS_MAX_SHORT = 60.0
"""After so long a program is ended, and its contender left out. In the short form sooner: who hangs must not cost the others theirs."""
SLOW = 4_000
"""Tasks per second; a difference of a tenth says nothing about who is that far behind."""


class ContenderError(Exception):
    """A contender's program failed; the message has the end of what it said."""


_BEGAN = time.monotonic()


def tell(text: str) -> None:
    """Say on stderr how far the run is, and since when it runs."""
    print(f"benchmarks: {time.monotonic() - _BEGAN:4.0f} s  {text}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Arena:
    """Where contenders run: the server, Redis, and who can not take part."""

    server: Server
    redis: str | None = None
    seconds_max: float = SECONDS_MAX
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    _templates: dict[str, str] = field(default_factory=dict)

    def present(self, peers: Iterable[Peer]) -> list[Peer]:
        """Return those that are installed, or can be; remember why the others are not."""
        found = []
        for peer in peers:
            if peer.needs_redis and self.redis is None:
                self.absent[peer.name] = "there is no redis-server"
                continue
            try:
                environments.command(peer)
            except environments.PeerUnavailableError as error:
                self.absent[peer.name] = str(error)
                tell(f"{peer.name} is left out: {error}")
                continue
            found.append(peer)
        return found

    def missing(self) -> dict[str, str]:
        """Return who is not in the answers of the last rounds, and why."""
        return {**self.absent, **self.failed}

    @contextlib.contextmanager
    def fresh(self, peer: Peer) -> Iterator[str]:
        """Give a database in which a contender is installed and nothing has happened yet; yield its URL.

        It is installed once, and each run gets a copy. What needs no database, only Redis, is emptied.
        """
        if peer.needs_redis:
            self.run(peer, "", ["setup"])
            yield ""
            return
        # The yardstick and Octop share theirs.
        key = "octop" if peer.kind == "octop" else peer.name
        if key not in self._templates:
            name = f"template_{key.replace('-', '_')}"
            with self.server.database(name, keep=True) as dsn:
                self.run(peer, dsn, ["setup"])
            self._templates[key] = name
        with self.server.database(template=self._templates[key]) as dsn:
            yield dsn

    @contextlib.contextmanager
    def filled(self, peer: Peer, name: str, fill: Callable[[str], None]) -> Iterator[str]:
        """Give a copy of a database of a contender that was filled once under this name; yield its URL."""
        if name not in self._templates:
            with self.fresh(peer):
                pass
            template = self._templates["octop" if peer.kind == "octop" else peer.name]
            made = f"filled_{len(self._templates)}"
            with self.server.database(made, template=template, keep=True) as dsn:
                fill(dsn)
            self._templates[name] = made
        with self.server.database(template=self._templates[name]) as dsn:
            yield dsn

    def run(self, peer: Peer, dsn: str, phases: Sequence[str], **options: Any) -> dict[str, Any]:
        """Run phases of a contender in one process of its own, and return its answer.

        Raises:
            ContenderError: It failed, or took too long.
        """
        chosen = {"dsn": dsn, "redis": self.redis, "phases": list(phases), **peer.options, **options}
        command = [*environments.command(peer), json.dumps(chosen)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "OCTOP_"))}
        environment["BENCH_REDIS"] = self.redis or ""
        if peer.kind == "octop":
            environment["PYTHONPATH"] = str(environments.HOUSE)
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # so that its workers end with it
        )
        try:
            out, err = process.communicate(timeout=self.seconds_max)
        except subprocess.TimeoutExpired as error:
            message = f"{peer.name}: {', '.join(phases)} took longer than {self.seconds_max:.0f} s"
            raise ContenderError(message) from error
        finally:
            _end_group(process)
        if process.returncode != 0 or not out.strip():
            message = f"{peer.name}: {', '.join(phases)} failed:\n{err.strip()[-2000:]}"
            raise ContenderError(message)
        answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return answer


def _end_group(process: subprocess.Popen[str]) -> None:
    """End a program and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def rounds(
    arena: Arena,
    peers: Sequence[Peer],
    number: int,
    one: Callable[[Peer], dict[str, Any]],
    what: str,
    *,
    slow_once: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Let every contender run once, then every one again: a slow minute of the machine hits all alike.

    Args:
        arena: Where; who fails is left out from then on, and noted there.
        peers: Who.
        number: How many rounds.
        one: Runs one contender once.
        what: Told on stderr.
        slow_once: Those under 4,000 tasks/s run in the first round only.

    Returns:
        The answers of each contender, one per round.
    """
    answers: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    arena.failed.clear()
    for turn in range(number):
        # Another one begins each round.
        order = [*peers[turn % len(peers) :], *peers[: turn % len(peers)]]
        for peer in order:
            if peer.name in arena.failed or (slow_once and turn and peer.rate < SLOW):
                continue
            tell(f"{what}: round {turn + 1} of {number}: {peer.name}")
            try:
                answers[peer.name].append(one(peer))
            except ContenderError as error:
                arena.failed[peer.name] = f"{what}: {str(error).splitlines()[-1]}"
                tell(str(error))
    return {name: found for name, found in answers.items() if found}


def median(values: Iterable[float]) -> float:
    """Return the middle one."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
