"""Count the words of many files: one task per file in processes of their own, progress while they run, one result.

There are no workflows yet: the program that enqueued the tasks collects their results itself. It may be ended and
started again: each task has an id that follows from run and file, so nothing is computed twice.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from octop import Octop

octop = Octop()


@octop.task(run_in="process", queue="words", max_retries=2, timeout=60)
def count_words(path: Path) -> dict[str, int]:
    """Count in a process of its own: it uses another core, and can be killed at its time limit."""
    return dict(Counter(path.read_text().lower().split()).most_common(1_000))


async def main(folder: Path, run: str) -> None:
    """Enqueue all files in one transaction, then gather."""
    files = sorted(folder.glob("*.txt"))
    calls = (
        count_words.using(id=uuid5(NAMESPACE_URL, f"{run}/{file}"), tags=[run]).call(file.resolve()) for file in files
    )
    ids = await octop.enqueue_many(calls, return_ids=True)
    print(f"{len(ids)} files")
    total: Counter[str] = Counter()
    for done, id in enumerate(ids, 1):
        total.update(await octop.handle(id, "count_words").result(timeout=300))
        if done % 10 == 0 or done == len(ids):
            print(f"{done} of {len(ids)} counted")
    for word, count in total.most_common(2):
        print(f"{count:8}  {word}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), run=sys.argv[2]))
