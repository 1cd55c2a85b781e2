"""Clocks and zones: the database's against those of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from octop.cli.doctor.kinds import found
from octop.cli.findings import Finding, shell
from octop.cli.moments import spoken
from octop.engine.diagnosis import clocks

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

YEARS: Final = 3
SKEW_SECONDS: Final = 1.0
FAR_SECONDS: Final = 60.0

# Where many people live, and where rules have changed of late or change by decree.
ZONES: Final = (
    "Africa/Cairo", "Africa/Casablanca", "Africa/Johannesburg", "Africa/Lagos", "Africa/Nairobi",
    "America/Argentina/Buenos_Aires", "America/Asuncion", "America/Bogota", "America/Chicago", "America/Denver",
    "America/Halifax", "America/Havana", "America/Lima", "America/Los_Angeles", "America/Mexico_City",
    "America/New_York", "America/Nuuk", "America/Phoenix", "America/Santiago", "America/Sao_Paulo",
    "America/St_Johns", "America/Toronto", "America/Vancouver", "Asia/Almaty", "Asia/Amman", "Asia/Bangkok",
    "Asia/Beirut", "Asia/Dhaka", "Asia/Dubai", "Asia/Gaza", "Asia/Ho_Chi_Minh", "Asia/Hong_Kong", "Asia/Jakarta",
    "Asia/Jerusalem", "Asia/Karachi", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Manila", "Asia/Riyadh", "Asia/Seoul",
    "Asia/Shanghai", "Asia/Singapore", "Asia/Taipei", "Asia/Tehran", "Asia/Tokyo", "Australia/Adelaide",
    "Australia/Brisbane", "Australia/Lord_Howe", "Australia/Perth", "Australia/Sydney", "Europe/Berlin",
    "Europe/Dublin", "Europe/Istanbul", "Europe/Kyiv", "Europe/Lisbon", "Europe/London", "Europe/Moscow",
    "Europe/Paris", "Pacific/Auckland", "Pacific/Honolulu", "UTC",
)  # fmt: skip


def zones(examination: Examination) -> Iterator[Finding]:
    """Compare the offsets of many zones over the next years."""
    answer = examination.ask(clocks.zone_offsets(ZONES, YEARS))
    moments, offsets = answer["moments"], answer["offsets"]
    missing = sorted(zone for zone in offsets if _zone(zone) is None)
    differ = {zone: at for zone in offsets if (at := _first_difference(zone, moments, offsets[zone])) is not None}
    unknown = sorted(set(ZONES) - set(offsets))
    said = [f"{zone} differs from {at:%Y-%m-%d} on" for zone, at in sorted(differ.items())]
    said += [f"{zone} is unknown to Python" for zone in missing]
    said += [f"{zone} is unknown to PostgreSQL" for zone in unknown]
    if said:
        yield found(
            "clocks.zones_differ",
            f"{len(said)} of {len(ZONES)} time zones are not the same in PostgreSQL and Python",
            shell("apt-get install --only-upgrade tzdata", "pip install --upgrade tzdata"),
            tuple(said[:10]),
        )


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _first_difference(name: str, moments: list[int], offsets: list[int]) -> datetime | None:
    zone = _zone(name)
    if zone is None:
        return None
    for moment, offset in zip(moments, offsets, strict=True):
        here = datetime.fromtimestamp(moment, tz=zone)
        shift = here.utcoffset()
        if shift is None or shift.total_seconds() != offset:
            return here
    return None


def wall_seconds() -> float:
    """Read the clock of this machine."""
    return time.time()  # noqa: TID251 - the one place that compares it with the database's; nothing is decided by it


def skew(examination: Examination) -> Iterator[Finding]:
    """Compare the clock of this machine with the database's."""
    before = wall_seconds()
    there = examination.ask(clocks.server_seconds())
    after = wall_seconds()
    # The answer was made at some moment between the two: only what lies outside is a difference for certain.
    ahead = before - there if before > there else min(0.0, after - there)
    if abs(ahead) <= SKEW_SECONDS:
        return
    kind = "clocks.far_apart" if abs(ahead) > FAR_SECONDS else "clocks.skew"
    which = "ahead of" if ahead > 0 else "behind"
    yield found(
        kind,
        f"the clock of this machine is {spoken(abs(ahead))} {which} the database's",
        shell("timedatectl set-ntp true"),
    )
