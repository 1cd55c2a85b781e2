"""The engine's clock, in a test database: it can be stopped and moved."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from octop.model.errors import InvalidOptionError
from octop.model.options import checked_moment

if TYPE_CHECKING:
    from octop.testing.database import Database


class Clock:
    """The clock by which a test database decides what is due, when a retry comes, how old a task is.

    Only copies made for a test have one: ``_octop_now()``, the engine's only clock, is replaced there. Python's own clock
    goes on as it was, and so do time limits, which are measured while a task runs.

    Args:
        find: Returns the database.

    Examples:
        >>> moment = database.clock.freeze(datetime(2030, 1, 1, 9, tzinfo=UTC))
        >>> database.clock.travel(hours=1).isoformat()
        '2030-01-01T10:00:00+00:00'
    """

    def __init__(self, find: "Callable[[], Database]") -> None:
        """Replace nothing yet: most tests leave the clock alone."""
        self._find = find

    def now(self) -> datetime:
        """Read the clock, in UTC."""
        from octop.engine import throwaway  # noqa: PLC0415 - loads psycopg

        return datetime.fromisoformat(self._find().run(throwaway.read_clock()))

    def freeze(self, at: datetime | None = None) -> datetime:
        """Let the clock stand still until ``travel`` or ``reset``.

        Args:
            at: An aware datetime between 2001 and 2998; None = where the clock is.

        Returns:
            The moment at which it stands.

        Raises:
            InvalidTimeError: The moment is naive or absurd.
        """
        from octop.engine import throwaway  # noqa: PLC0415 - loads psycopg

        moment = None if at is None else checked_moment(at)
        database = self._replaced()
        database.run(throwaway.stop_clock(moment))
        return self.now()

    def travel(self, by: timedelta | None = None, **parts: float) -> datetime:
        """Move the clock; one that runs goes on running from there, one that stands goes on standing.

        Args:
            by: How far; negative = back.
            **parts: Or the arguments of a timedelta: ``weeks``, ``days``, ``hours``, ``minutes``, ``seconds``.

        Returns:
            The moment it shows now.

        Raises:
            InvalidOptionError: Neither or both are given, or there is no such part.
        """
        from octop.engine import throwaway  # noqa: PLC0415 - loads psycopg

        if (by is None) == (not parts):
            message = "travel takes a timedelta, or the arguments of one"
            raise InvalidOptionError(message, hint="Write clock.travel(hours=1).")
        try:
            distance = timedelta(**parts) if by is None else by
            seconds = distance.total_seconds()
        except (TypeError, AttributeError) as error:
            message = f"travel can not go that far: {error}"
            raise InvalidOptionError(message, hint="Write clock.travel(days=1, hours=2).") from error
        self._replaced().run(throwaway.move_clock(seconds))
        return self.now()

    def reset(self) -> None:
        """Let the clock run with the server's again."""
        from octop.engine import throwaway  # noqa: PLC0415 - loads psycopg

        self._replaced().run(throwaway.reset_clock())

    def _replaced(self) -> "Database":
        database = self._find()
        database.replace_clock()
        return database
