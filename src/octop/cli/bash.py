"""Completion in bash of words with a colon or an equals sign in them, which bash hands over in pieces.

Bash breaks `queue:ma` into `queue`, `:` and `ma`, and puts what is answered in place of the last piece alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from click.shell_completion import BashComplete, add_completion_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem


def joined(pieces: Sequence[str]) -> tuple[list[str], int]:
    """Put words together again, and say how much of the last one bash has behind it already.

    An equals sign between an option and its value goes, for click takes two words as well.

    Example:
        >>> joined(["list", "queue", ":", "ma"])
        (['list', 'queue:ma'], 6)
        >>> joined(["worker", "--queue", "=", "ma"])
        (['worker', '--queue', 'ma'], 0)
    """
    words: list[str] = []
    goes_on = False
    behind = 0
    for piece in pieces:
        if piece == "=" and words and words[-1].startswith("-"):
            words.append("")
            goes_on, behind = True, 0
            continue
        breaks = bool(piece) and not piece.strip(":=")
        joins = breaks and bool(words)
        if joins or (goes_on and piece):
            words[-1] += piece
            behind = len(words[-1]) - (0 if breaks else len(piece))
        else:
            words.append(piece)
            behind = 0
        goes_on = joins
    return words, behind


class Bash(BashComplete):
    """As click's, with words that bash broke."""

    behind = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one under it."""
        before, under = super().get_completion_args()
        words, self.behind = joined([*before, under])
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return one answer as the script reads it, without what stands before the last piece."""
        value: Any = item.value
        return f"{item.type},{value[self.behind :]}"


def register() -> None:
    """Let click use it."""
    add_completion_class(Bash)
