"""How fast are tasks enqueued: in bulk, one after the other, awaited concurrently, in the caller's transaction?

    python -m benchmarks.bench_enqueue [--full] [--only octop,pgqueuer]

One producer process. *Bulk* is the best bulk call of each interface; those without one await single calls concurrently (saq) or send one
after the other (Celery, Dramatiq). *One by one*: each call awaited before the next, each its own transaction. *Together*: 200 single calls
awaited at once, as the requests of a web server do. *Transaction*: begin, a row of the caller's own, one task, commit; for those whose
interface takes the caller's connection.
"""

from typing import Any, Final

from benchmarks.answer import Answer, Line
from benchmarks.contender import SLOW, Arena, median, rounds
from benchmarks.peers.peer import CONTENDERS, Peer
from benchmarks.script import Extent, main

ENQUEUERS: Final = tuple(peer for peer in CONTENDERS if peer.name != "octop-inside")
PHASES: Final = {
    "enqueue": ("Enqueue in bulk", 5_000),
    "one_by_one": ("Enqueue one by one, each awaited before the next", 100),
    "together": ("Enqueue one by one, 200 awaited concurrently", 1_000),
    "transaction": ("Enqueue in the caller's transaction", 100),
}
WITHOUT_BULK: Final = {"celery", "dramatiq", "saq"}


def counts(peer: Peer, factor: int) -> dict[str, int]:
    """Return how many tasks each phase gets."""
    found = {phase: count * factor for phase, (_, count) in PHASES.items()}
    if peer.name in WITHOUT_BULK:
        found["enqueue"] = 200 * factor
    elif peer.rate < SLOW:
        found["enqueue"] = 1_000 * factor
    return found


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    factor = 6 if extent.full else 1

    def one(peer: Peer) -> dict[str, Any]:
        with arena.fresh(peer) as dsn:
            number = counts(peer, factor)
            answer = arena.run(peer, dsn, ["one_by_one", "transaction", "together", "enqueue"], tasks=1, counts=number)
            return answer | {"counts": number}

    peers = arena.present(extent.peers(ENQUEUERS))
    found = rounds(arena, peers, extent.turns(1, 5), one, "enqueue")
    answers = []
    for phase, (question, _) in PHASES.items():
        answer = Answer(question, "tasks/s", base="octop", absent=arena.missing())
        for name, runs in found.items():
            rates = [run["counts"][phase] / run[f"{phase}_seconds"] for run in runs if run.get(f"{phase}_seconds")]
            if rates:
                note = "no bulk call" if phase == "enqueue" and name in WITHOUT_BULK else ""
                answer.lines.append(Line(name, median(rates), rates, note))
        answer.lines.sort(key=lambda line: -line.value)
        answers.append(answer)
    return answers


if __name__ == "__main__":
    main(measure, __doc__)
