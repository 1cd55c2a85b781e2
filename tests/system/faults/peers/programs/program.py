"""What all adapters have in common: phases, producing, and the two lines that each writes about a transaction. Standard library only.

A program gets JSON as its only argument: the phase, and what `run.py` knows. `setup` installs the schema. `produce` enqueues until
SIGTERM. `states` prints what the contender holds now, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.system.faults.peers.programs.book import note

BROKER = "OCTOP_TEST_BROKER"
"""The URL of the broker as a worker sees it, in its environment."""

PLACES = 8
PATIENT = 40
"""Retries that no plan of faults uses up."""

PAUSE_SECONDS_MAX = 1.0
BATCH_MAX = 20
ROLLED_BACK = 0.2
SECONDS = (0.0, 0.05, 0.3, 1.0, 3.0)
WEIGHTS = (11, 3, 3, 2, 1)
AWAY_SECONDS = 0.2
CONNECT_SECONDS = 3


class Task(NamedTuple):
    """One task that is to be: its key is the caller's."""

    key: str
    seconds: float


class Program:
    """One contender. A subclass says how to install, how to enqueue in a transaction of the caller, and what is left."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.broker: str = options["broker"]

    async def setup(self) -> None:
        """Install what is needed, the caller's own table too."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Begin a transaction of the caller, on a connection that is opened if there is none."""
        raise NotImplementedError

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        """Write the caller's rows and enqueue the tasks, in that transaction."""
        raise NotImplementedError

    async def commit(self) -> None:
        raise NotImplementedError

    async def roll_back(self) -> None:
        raise NotImplementedError

    async def drop(self) -> None:
        """Close the connection, whatever state it is in."""
        raise NotImplementedError

    async def states(self) -> dict[str, list[str]]:
        """Return keys: `committed` by the caller's own table; what the contender holds as `waiting`, as `running`, as `failed` for good."""
        raise NotImplementedError

    async def produce(self) -> None:
        """Enqueue until SIGTERM."""
        name = self.options["name"]
        chance = random.Random(f"{self.options['seed']}/{name}")
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        count = 0
        while not await _waited(over, chance.uniform(0, PAUSE_SECONDS_MAX)):
            count += 1
            tasks = drawn(chance)
            rolls_back, drops = chance.random() < ROLLED_BACK, chance.random() < 0.5
            batch = f"{name}-{count}"
            note("meant", batch=batch, keys=[each.key for each in tasks])
            ending = await self._transaction(tasks, rolls_back=rolls_back, drops=drops)
            note("settled", batch=batch, ending=ending)
            if ending in ("failed", "unknown"):
                await _waited(over, AWAY_SECONDS)
        await self.drop()

    async def _transaction(self, tasks: Sequence[Task], *, rolls_back: bool, drops: bool) -> str:
        try:
            await self.begin()
            await self.enqueue(tasks)
            if rolls_back:
                await (self.drop() if drops else self.roll_back())
                return "rolled back"
        except Exception as error:
            note("trouble", error=f"{type(error).__name__}: {error}"[:200])
            await self._dropped()
            return "failed"  # nobody has said COMMIT
        try:
            await self.commit()
        except Exception as error:
            note("trouble", error=f"{type(error).__name__}: {error}"[:200])
            await self._dropped()
            return "unknown"
        return "committed"

    async def _dropped(self) -> None:
        with contextlib.suppress(Exception):
            await self.drop()


def drawn(chance: random.Random) -> list[Task]:
    """Draw the tasks of one transaction."""
    count = chance.randint(2, BATCH_MAX) if chance.random() < 0.25 else chance.randint(1, 2)
    seconds = chance.choices(SECONDS, WEIGHTS, k=count)
    return [Task(f"{chance.getrandbits(64):016x}", each) for each in seconds]


async def _waited(over: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await over.wait()
    return over.is_set()


def run(kind: type[Program]) -> None:
    """Run the phase that the argument names; leave at once, without waiting for pools to close in good order."""
    options = json.loads(sys.argv[1])
    answer = asyncio.run(getattr(kind(options), options["phase"])())
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)
