"""Notice that the application's files have changed. Polling: no dependency, and it works on every file system."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 0.3
SETTLE_LOOKS_MAX: Final = 7
FILES_MAX: Final = 20_000
SKIPPED: Final = frozenset(
    {"__pycache__", ".git", ".venv", "venv", "node_modules", ".tox", ".mypy_cache", "site-packages"}
)


async def changes(folder: Path) -> AsyncIterator[set[str]]:
    """Yield the Python files of a folder that were changed, added or removed, at most each half second.

    Files that are saved shortly after each other are one change: it is yielded when they have been still for 0.3 s, or
    after 2 s of saving.

    Args:
        folder: Looked through with all folders below it, up to 20,000 files.
    """
    before = await asyncio.to_thread(snapshot, folder)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = await asyncio.to_thread(snapshot, folder)
        if now != before:
            now = await _settled(folder, now)
        changed = {str(path) for path, stamp in now.items() ^ before.items()}
        before = now
        if changed:
            yield changed


async def _settled(folder: Path, now: dict[Path, int]) -> dict[Path, int]:
    """Wait until nothing more is saved, so that one restart is enough; return the last look."""
    for _ in range(SETTLE_LOOKS_MAX):
        await asyncio.sleep(SETTLE_SECONDS)
        later = await asyncio.to_thread(snapshot, folder)
        if later == now:
            break
        now = later
    return now


def snapshot(folder: Path) -> dict[Path, int]:
    """Return the moment of the last change of each Python file below a folder."""
    found: dict[Path, int] = {}
    folders = [folder]
    while folders and len(found) < FILES_MAX:
        try:
            entries = list(folders.pop().iterdir())
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.suffix == ".py":
                    found[entry] = entry.stat().st_mtime_ns
                elif entry.is_dir() and not entry.is_symlink() and entry.name not in SKIPPED:
                    folders.append(entry)
            except OSError:
                continue  # it went while we looked
    return found
