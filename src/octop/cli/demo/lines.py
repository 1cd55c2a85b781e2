"""The demo without a terminal: a line on stderr each second, and one when a kind of task has reached its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octop.cli.moments import spoken

if TYPE_CHECKING:
    from octop.cli.demo.picture import Picture
    from octop.cli.output import Output

LINE_SECONDS: Final = 1.0


class Lines:
    """Says what is new in a picture."""

    def __init__(self, picture: Picture, output: Output) -> None:
        """Keep what is watched and where it is said."""
        self._picture = picture
        self._output = output
        self._told: set[str] = set()
        self._next = 0.0

    def refresh(self) -> None:
        """Say what has changed since the last time."""
        picture = self._picture
        for kind in picture.kinds:
            if kind.settled and kind.name not in self._told:
                self._told.add(kind.name)
                mark = "ok " if kind.okay else "BAD"
                self._output.say(
                    f"{picture.seconds:6.1f} s  {mark} {kind.name}: {kind.status}  {kind.note or kind.says}"
                )
        if picture.seconds >= self._next:
            self._next = picture.seconds + LINE_SECONDS
            counts = "  ".join(f"{status} {count:,}" for status, count in sorted(picture.counts.items()))
            rate = f"{picture.rates[-1]:,.0f}/s" if picture.rates else "-"
            delay = spoken(picture.delay_median)
            self._output.say(
                f"{picture.seconds:6.1f} s  {counts or 'no task yet'}  finished {rate}  enqueue to start {delay}"
            )
