"""How does the size of the payload change the rates: 100 bytes, 10 kB, 1 MB?

    python -m benchmarks.bench_payload [--full] [--only octop,graphile-worker]

Enqueued in bulk and drained by one worker process; the payload is one text in a JSON object, which the worker decodes.
"""

from typing import Any, Final

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, rounds
from benchmarks.peers.peer import CONTENDERS, Peer
from benchmarks.script import Extent, main

NAMES: Final = ("octop", "graphile-worker", "pgqueuer", "pg-boss", "oban")
CARRIERS: Final = tuple(peer for peer in CONTENDERS if peer.name in NAMES)
SIZES: Final = {"100 B": (100, 5_000), "10 kB": (10_000, 1_000), "1 MB": (1_000_000, 30)}
"""By name: bytes, and tasks in the short form; ten times as many in the full one."""


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    peers = arena.present(extent.peers(CARRIERS if extent.full or extent.only else CARRIERS[:3]))
    answers = []
    for name, (size, number) in SIZES.items():
        count = number * (10 if extent.full else 1)

        def one(peer: Peer, size: int = size, count: int = count) -> dict[str, Any]:
            tasks = count if peer.rate > 2_000 else max(30, count // 5)
            with arena.fresh(peer) as dsn:
                return arena.run(peer, dsn, ["enqueue", "drain"], tasks=tasks, payload_bytes=size)

        found = rounds(arena, peers, extent.turns(1, 3), one, f"payload of {name}")
        for phase in ("drain", "enqueue"):
            answer = Answer(f"Payload of {name}: {phase}", "tasks/s", base="octop", absent=arena.missing())
            for contender, runs in found.items():
                rates = [run["tasks"] / run[f"{phase}_seconds"] for run in runs]
                answer.lines.append(Line(contender, median(rates), rates))
            answer.lines.sort(key=lambda line: -line.value)
            answers.append(answer)
    return answers


if __name__ == "__main__":
    main(measure, __doc__)
