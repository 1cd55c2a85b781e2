"""What a cron expression should answer, by others: cronsim, and a slow walk over the pieces of a zone between its changes.

`cronsim_next` is cronsim as it is. `walked_next` takes from cronsim nothing but the calendar of wall times without a zone, and from
Python's zoneinfo what a zone's clocks show: it knows no bit masks and makes no jumps, and is the judge where cronsim has another rule.
`difference` names that rule; what has no name is a failure. The zones are the server's own files: another edition of the zone data
would have other answers.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

from cronsim import CronSim

ZONES = (
    *("UTC", "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Juba", "America/Anchorage", "America/Asuncion"),
    *("America/Chicago", "America/Ciudad_Juarez", "America/Halifax", "America/Havana", "America/Los_Angeles", "America/Mexico_City"),
    *("America/Miquelon", "America/New_York", "America/Nuuk", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund"),
    *("America/St_Johns", "America/Whitehorse", "Antarctica/Casey", "Antarctica/Troll", "Asia/Almaty", "Asia/Amman", "Asia/Beirut"),
    *("Asia/Famagusta", "Asia/Gaza", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Shanghai", "Asia/Tehran", "Atlantic/Azores"),
    *("Australia/Adelaide", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin", "Europe/Chisinau", "Europe/Dublin"),
    *("Europe/Helsinki", "Europe/London", "Europe/Volgograd", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham"),
    *("Pacific/Easter", "Pacific/Fiji", "Pacific/Kiritimati", "Pacific/Norfolk", "Pacific/Tongatapu"),
)  # fmt: skip

AROUND = (-3601, -61, -1, 0, 1799, 3600)
"""Seconds from a change of the clocks: three moments before it, three from it on."""

CHOSEN = (
    *("* * * * *", "*/15 * * * *", "*/7 * * * *", "*/45 * * * *", "5/20 * * * *", "0 * * * *", "30 * * * *", "59 * * * *", "0 */2 * * *"),
    *("30 */3 * * *", "15 */5 * * *", "*/30 2 * * *", "*/20 0 * * *", "* 1 * * *", "*/10 1-3 * * *", "* 0-2 * * 0", "7 */23 * * *"),
    *("0 0 * * *", "30 0 * * *", "1 0 * * *", "0 1 * * *", "30 1 * * *", "59 1 * * *", "0 2 * * *", "1 2 * * *", "15 2 * * *", "30 2 * * *"),
    *("45 2 * * *", "59 2 * * *", "0 3 * * *", "15 3 * * *", "30 3 * * *", "0 4 * * *", "59 23 * * *", "0 12 * * *", "0,30 1-3 * * *"),
    *("0,15,30,45 0-4 * * *", "0-59 2 * * *", "0-59 0 * * *", "0-59/5 0-3 * * *", "10 0,1,2,3 * * *", "0 8 * * 0", "0 12 * * 0", "30 2 * * 0"),
    *("0 9 * * 1-5", "0 9 * * MON-FRI", "30 17 * * FRI", "0 0 * * SUN", "0 0 * * 7", "0 0 * * 6,7", "0 0 * * 5-7", "15 10 * * 2/2"),
    *("0 0 1 * *", "0 0 15 * *", "0 0 31 * *", "0 0 29 2 *", "0 0 30 1-3 *", "30 2 L * *", "0 9 LW * *", "0 9 L 2 *", "0 0 1,15 * 3"),
    *("0 0 13 * FRI", "0 0 */2 * MON", "0 0 1-7 * */2", "30 1 */10 * *", "0 6 * * MON#1", "0 6 * * 2#2", "0 6 * * FRI#5", "30 2 * * 0L"),
    *("0 9 * * 5L", "0 9 15 * 5L", "0 0 1 1 *", "0 0 1 JAN *", "0 12 31 12 *", "30 2 25-31 3,10 *", "30 2 8-14 3 0", "0 0 * 4-9 *"),
    *("* * 1 1 *", "*/15 * 29 2 *", "0 */6 * MAR,NOV SUN", "0 0 28-31 2 *", "23 0-20/2 * * *", "0 22 * * 1-5", "5 4 * * sun", "0 0,12 1 */2 *"),
    *("* * * * * *", "*/10 * * * * *", "30 */15 * * * *", "0 0 */2 * * *", "15 30 * * * *", "*/20 * 2 * * *", "0 30 2 * * *", "15 30 2 * * *"),
    *("*/30 59 1 * * *", "0,59 0,59 0,23 * * *", "1 0 0 * * *", "30 30 1,2,3 L * *", "45 59 23 31 12 *", "* 30 2 * * 0", "10-20 0 3 * * *"),
)  # fmt: skip


@cache
def expressions() -> tuple[str, ...]:
    """Return at least 200 expressions that cronsim reads, too: those above, and drawn ones with a fixed seed."""
    draw = random.Random(26)
    found = list(dict.fromkeys(CHOSEN))
    while len(found) < 220:
        minute = draw.choice(
            [
                "*",
                f"*/{draw.choice((2, 3, 5, 7, 10, 20, 25, 30))}",
                *(str(draw.randrange(60)) for _ in range(6)),
                "0,30",
                "5-25/5",
            ]
        )
        hour = draw.choice(
            [
                "*",
                f"*/{draw.randrange(2, 12)}",
                *(str(draw.randrange(24)) for _ in range(3)),
                *("0", "1", "2", "3"),
                "0-4",
                "1,2",
                "22-23",
            ]
        )
        day = draw.choice(
            ["*", "*", "*", f"*/{draw.randrange(2, 15)}", str(draw.randrange(1, 29)), "1-7", "25-31", "L", "LW", "31"]
        )
        month = draw.choice(["*", "*", "*", "*/3", "3,10", "NOV", "1-6", "SEP,APR"])
        weekday = draw.choice(["*", "*", "*", "0", "SUN", "1-5", "SAT,SUN", "*/3", "7", "0#1", "SUN#2", "6L", "TUE"])
        second = draw.choice(["", "", "", "", "0 ", "*/15 ", "7 ", "30,45 "])
        found.append(f"{second}{minute} {hour} {day} {month} {weekday}")
        found = list(dict.fromkeys(found))
    return tuple(found)


@dataclass(frozen=True)
class Zone:
    """A zone as the server has it.

    Attributes:
        name: Its name.
        info: Its rules, read from the server's file.
        changes: Moments (seconds since 1970) at which its offset changes, in order, from 2009 to 2055.
    """

    name: str
    info: ZoneInfo
    changes: list[int]

    def local(self, at: int) -> datetime:
        """Return what the clocks show, without a zone."""
        return datetime.fromtimestamp(at, self.info).replace(tzinfo=None)

    def instants(self, wall: datetime) -> list[int]:
        """Return the moments at which the clocks show a wall time: none, one or two."""
        both = {round(wall.replace(tzinfo=self.info, fold=fold).timestamp()) for fold in (0, 1)}
        return sorted(each for each in both if self.local(each) == wall)


def zone_directory(share: str) -> Path:
    """Return where a server has its zones; those packaged for Debian use the system's."""
    own = Path(share) / "timezone"
    return own if own.exists() else Path("/usr/share/zoneinfo")


@cache
def zone(directory: Path, name: str) -> Zone:
    """Read a zone and find its changes: by days, then by halves."""
    with (directory / name).open("rb") as file:
        info = ZoneInfo.from_file(file, key=name)

    def offset(at: int) -> timedelta | None:
        return datetime.fromtimestamp(at, info).utcoffset()

    begin, end = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2009, 2056))
    changes: list[int] = []
    step = 24 * 3600
    before = offset(begin)
    for at in range(begin, end, step):
        now = offset(at)
        if now != before:
            low, high = at - step, at
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            changes.append(high)
            before = now
    return Zone(name, info, changes)


def is_interval_like(expression: str) -> bool:
    """Tell whether minute or hour are written with a star."""
    minute, hour = expression.split()[-5:-3]
    return minute.startswith("*") or hour.startswith("*")


@dataclass
class Calendar:
    """Wall times of one expression, by cronsim and without any zone. The last answer is kept: it serves all that lie before it."""

    expression: str
    known: tuple[datetime, datetime] = field(default=(datetime.max, datetime.min))

    def after(self, wall: datetime) -> datetime:
        """Return the first wall time of the expression that is later."""
        asked, answer = self.known
        if not asked <= wall < answer:
            answer = next(CronSim(self.expression, wall))
            self.known = (wall, answer)
        return answer


class NeverEndsError(Exception):
    """cronsim goes round in circles."""


class Bounded(CronSim):
    """cronsim, stopped where it steps for ever."""

    steps = 0

    def tick(self, seconds: int = 1) -> None:
        """Count the steps; those of an honest search are a few hundred."""
        self.steps += 1
        if self.steps > 50_000:
            raise NeverEndsError
        super().tick(seconds)


def cronsim_next(expression: str, at: float, where: Zone) -> int | None:
    """Return what cronsim answers; None = it does not come to an end."""
    try:
        return round(next(Bounded(expression, datetime.fromtimestamp(at, where.info))).timestamp())
    except NeverEndsError:
        return None


def walked_next(calendar: Calendar, at: int, where: Zone) -> int:
    """Return the right answer, found the slow way.

    Interval-like: the first moment at which the clocks show a time of the expression, piece by piece between changes.
    Wall times: each has one moment, the first at which the clocks show it, or the end of the gap; the first such moment that is later.
    """
    if is_interval_like(calendar.expression):
        begin, last = at, where.local(at)
        while True:
            index = bisect_right(where.changes, begin)
            end = where.changes[index] if index < len(where.changes) else 1 << 60
            wall = calendar.after(last)
            found = begin + round((wall - where.local(begin)).total_seconds())
            if found < end:
                return found
            begin, last = end, where.local(end) - timedelta(seconds=1)
    wall = where.local(at)
    while True:
        wall = calendar.after(wall)
        shown = wall
        while not (moments := where.instants(shown)):
            shown = shown.replace(second=0) + timedelta(minutes=1)
        if moments[0] > at:
            return moments[0]


def difference(calendar: Calendar, at: int, where: Zone, theirs: int | None, ours: int) -> str | None:
    """Name the rule by which cronsim answers otherwise, as docs/reference/cron.md lists them; None = there is none."""

    def is_named(moment: int) -> bool:
        shown = where.local(moment)
        return calendar.after(shown - timedelta(seconds=1)) == shown

    if theirs is None:
        return "never ends"
    if not is_interval_like(calendar.expression) and len(calendar.expression.split()) == 6:
        return "wall times with seconds"
    if theirs <= at < ours:
        return "answers in the past"
    if not is_interval_like(calendar.expression):
        return None
    if theirs < ours:
        return None if is_named(theirs) else "times that do not exist"
    return "leaves out times that exist" if at < ours and is_named(ours) else None


def questions(where: Zone, count: int, draw: random.Random) -> Iterator[int]:
    """Draw moments from 2010 to 2045."""
    begin, end = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2010, 2045))
    for _ in range(count):
        yield draw.randrange(begin, end)
