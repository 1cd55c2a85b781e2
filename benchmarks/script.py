"""What all scripts share: their options, their server, how they print."""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from benchmarks.answer import Answer
from benchmarks.contender import SECONDS_MAX, SECONDS_MAX_SHORT, Arena
from benchmarks.peers.peer import Peer, named
from benchmarks.server import postgres, redis


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Args:
        full: Everything at its full size; else a short form that shows the same in less time.
        rounds: How often each contender runs; None = the script's own number.
        only: Names of contenders, separated by commas; None = all that fit the question.
        count: A number of tasks that replaces the script's own; None = its own.
    """

    full: bool = False
    rounds: int | None = None
    only: str | None = None
    count: int | None = None

    def turns(self, short: int, full: int) -> int:
        """Return how many rounds."""
        return self.rounds or (full if self.full else short)

    def peers(self, default: Sequence[Peer]) -> list[Peer]:
        """Return who takes part: those asked for among those that fit the question."""
        chosen = named(self.only, tuple(default))
        return [peer for peer in chosen if peer in default]

    def tasks(self, peer: Peer, seconds: float) -> int:
        """Return how many tasks a contender gets so that it is busy for about so many seconds."""
        return self.count or max(200, int(round(peer.rate * seconds, -2)))


def stop_in_order(_number: int, _frame: object) -> NoReturn:
    """Leave through all `with` blocks at SIGTERM: servers and workers end with us."""
    sys.exit(143)


def above_zero(text: str) -> int:
    """Read a number of rounds or tasks from the command line."""
    if (value := int(text)) < 1:
        message = f"{text} is less than 1"
        raise argparse.ArgumentTypeError(message)
    return value


def contenders(text: str) -> str:
    """Read names of contenders from the command line, and refuse those that nobody has before a server is started."""
    try:
        named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


Measure = Callable[[Arena, Extent], list[Answer]]


@contextlib.contextmanager
def arena(*, durable: bool = False, full: bool = False) -> Iterator[Arena]:
    """Start the one PostgreSQL of a run, and Redis, for the length of a `with`."""
    with redis() as broker, postgres(durable=durable, in_memory=not full) as server:
        yield Arena(server, broker, SECONDS_MAX if full else SECONDS_MAX_SHORT)


def main(measure: Measure, description: str | None) -> None:
    """Run one script from the command line."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all of it; the default is a short form")
    parser.add_argument("--rounds", type=above_zero, help="how often each contender runs")
    parser.add_argument("--only", type=contenders, help="names of contenders, separated by commas")
    parser.add_argument(
        "--tasks", type=above_zero, help="how many tasks each contender gets, instead of the script's own number"
    )
    parser.add_argument("--durable", action="store_true", help="wait for the disk at each commit")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, stop_in_order)
    with arena(durable=given.durable, full=given.full) as place:
        answers = measure(place, Extent(given.full, given.rounds, given.only, given.tasks))
    if given.json:
        print(json.dumps([answer.json() for answer in answers], indent=2))
        return
    for answer in answers:
        print("\n".join(answer.text()))
