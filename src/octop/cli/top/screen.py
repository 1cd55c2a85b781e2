"""What is selected, what is asked, and what each key means. Knows no terminal and no database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octop.cli.top.reader import Act
from octop.engine import calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octop.cli.top.snapshot import Snapshot

PANES: Final = ("queues", "workers", "running", "failures")
REASON: Final = "octop top"
KEYS: Final = (
    ("↑ ↓ j k", "select"),
    ("Tab", "next part"),
    ("p", "pause or resume the queue"),
    ("r", "retry the task that failed"),
    ("c", "cancel the task"),
    ("?", "help"),
    ("q", "quit"),
)

UP: Final = ("up", "k")
DOWN: Final = ("down", "j")
FORWARD: Final = ("tab", "right", "l")
BACK: Final = ("backtab", "left", "h")


class Screen:
    """The state of the view.

    Attributes:
        pane: The part that has the selection.
        asked: An act that waits for `y`.
        helping: The help is shown.
        over: `q` was pressed.
        note: What the last key came to.
    """

    def __init__(self) -> None:
        """Begin at the first queue."""
        self.pane: str = PANES[0]
        self.asked: Act | None = None
        self.helping = False
        self.over = False
        self.note = ""
        self._keys: dict[str, str] = {}
        self._places: dict[str, int] = {}

    def selected(self, pane: str, rows: Sequence[Mapping[str, Any]]) -> int | None:
        """Return the place of the selected row; the row is followed when it moves, and its place kept when it goes."""
        if not rows:
            return None
        key = self._keys.get(pane)
        place = next((n for n, row in enumerate(rows) if key_of(pane, row) == key), None)
        if place is None:
            place = min(self._places.get(pane, 0), len(rows) - 1)
        self._places[pane] = place
        return place

    def press(self, key: str, snapshot: Snapshot) -> Act | None:
        """Take one key.

        Args:
            key: As `octop.cli.top.terminal` names it.
            snapshot: What is shown.

        Returns:
            An act that was confirmed and is to be done.
        """
        self.note = ""
        if self.asked is not None:
            act, self.asked = self.asked, None
            if key in ("y", "Y"):
                return act
            self.note = "Nothing was done."
            return None
        if self.helping:
            self.helping = False
            return None
        rows = rows_of(self.pane, snapshot)
        if key in UP or key in DOWN:
            self._move(rows, -1 if key in UP else 1)
        elif key in FORWARD or key in BACK:
            self.pane = PANES[(PANES.index(self.pane) + (1 if key in FORWARD else -1)) % len(PANES)]
        elif key == "?":
            self.helping = True
        elif key in ("q", "end"):
            self.over = True
        elif key in ("p", "r", "c"):
            self._ask(key, rows)
        return None

    def _move(self, rows: Sequence[Mapping[str, Any]], step: int) -> None:
        place = self.selected(self.pane, rows)
        if place is not None:
            place = max(0, min(len(rows) - 1, place + step))
            self._keys[self.pane] = key_of(self.pane, rows[place])
            self._places[self.pane] = place

    def _ask(self, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
        place = self.selected(self.pane, rows)
        row = None if place is None else rows[place]
        if key == "p" and self.pane == "queues":
            self.asked = _pause(row)
        elif key == "r" and self.pane == "failures":
            self.asked = _retry(row)
        elif key == "c" and self.pane in ("running", "failures"):
            self.asked = _cancel(row)
        else:
            where = {"p": "queues", "r": "failures", "c": "running or failures"}[key]
            self.note = f"{key} acts in {where}: Tab goes there."
            return
        if self.asked is None:
            self.note = "Nothing is selected."
        elif row is not None:  # the question is about this one, whatever moves meanwhile
            self._keys[self.pane] = key_of(self.pane, row)


def rows_of(pane: str, snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the rows of one part; queues with work before idle ones, for a low window shows the first few."""
    rows: list[dict[str, Any]] = getattr(snapshot, pane)
    return sorted(rows, key=_is_idle) if pane == "queues" else rows


def _is_idle(queue: Mapping[str, Any]) -> bool:
    return not any(queue.get(count) for count in ("waiting", "running", "blocked"))


def key_of(pane: str, row: Mapping[str, Any]) -> str:
    """Return what tells one row of a part from the others."""
    return str(row["name"] if pane == "queues" else row["id"])


def _pause(row: Mapping[str, Any] | None) -> Act | None:
    if row is None:
        return None
    name = row["name"]
    if row["paused"]:
        return Act(f"Resume the queue {name}", calls.octop_resume(name), f"Queue {name} runs again.")
    return Act(f"Pause the queue {name}", calls.octop_pause(name, REASON), f"Queue {name} is paused.")


def _retry(row: Mapping[str, Any] | None) -> Act | None:
    if row is None:
        return None
    what = f"{row['task_type']} {row['id']}"
    return Act(f"Retry {what} now", calls.octop_retry(row["id"]), f"{what} is tried again.")


def _cancel(row: Mapping[str, Any] | None) -> Act | None:
    if row is None:
        return None
    what = f"{row['task_type']} {row['id']}"
    return Act(f"Cancel {what}", calls.octop_cancel(row["id"], REASON), f"The cancellation of {what} was asked for.")
