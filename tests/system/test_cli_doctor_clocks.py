"""`octop doctor` on clocks and time zones: the database's beside those of the host where it runs."""

from __future__ import annotations

import zoneinfo
from pathlib import Path

import pytest

from octop.cli.doctor import clocks
from tests.sql.crew import value
from tests.system.provoked import provokes


@pytest.mark.parametrize(
    ("ahead", "kind", "says"),
    [
        (30, "clocks.skew", "ahead of the database's"),
        (-3, "clocks.skew", "behind the database's"),
        (90, "clocks.far_apart", "ahead of"),
    ],
)
@provokes(by={"kind": {kind: [kind] for kind in ("clocks.skew", "clocks.far_apart")}})
def test_a_clock_that_goes_wrong_is_noticed(doctor, monkeypatch, ahead, kind, says):
    right = clocks.wall_seconds
    monkeypatch.setattr(clocks, "wall_seconds", lambda: right() + ahead)
    finding = doctor.one(kind)
    assert says in finding["what"]
    assert finding["cure"] == [{"in": "shell", "run": "timedatectl set-ntp true"}]
    monkeypatch.undo()
    assert doctor.findings("--only", "clocks.skew,clocks.far_apart", "--dsn", doctor.database.url, code=0) == []


@provokes("clocks.zones_differ")
def test_time_zones_that_differ_are_named(doctor, tmp_path):
    """Python reads the server's own files, then one of them is an old one, then it is updated."""
    theirs = Path(value_of_share(doctor)) / "timezone"
    if not theirs.exists():
        theirs = Path("/usr/share/zoneinfo")
    mine = tmp_path / "zones"
    for zone in clocks.ZONES:
        (mine / zone).parent.mkdir(parents=True, exist_ok=True)
        (mine / zone).write_bytes((theirs / zone).read_bytes())
    try:
        zoneinfo.reset_tzpath([str(mine)])
        zoneinfo.ZoneInfo.clear_cache()
        assert doctor.findings("--only", "clocks.zones_differ", code=0) == []
        good = (mine / "Europe/Berlin").read_bytes()
        (mine / "Europe/Berlin").write_bytes((theirs / "UTC").read_bytes())
        (mine / "Asia/Tokyo").write_bytes(b"nonsense")
        zoneinfo.ZoneInfo.clear_cache()
        finding = doctor.one("clocks.zones_differ")
        assert finding["what"] == "2 of 61 time zones are not the same in PostgreSQL and Python"
        assert finding["detail"][0].startswith("Europe/Berlin differs from 20")
        assert finding["detail"][1] == "Asia/Tokyo is unknown to Python"
        (mine / "Europe/Berlin").write_bytes(good)
        (mine / "Asia/Tokyo").write_bytes((theirs / "Asia/Tokyo").read_bytes())
        zoneinfo.ZoneInfo.clear_cache()
        assert doctor.findings("--only", "clocks.zones_differ", code=0) == []
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def value_of_share(doctor):
    """Return where the server keeps its own files."""
    with doctor.database.connect() as connection:
        return value(connection, "select setting from pg_config where name = 'SHAREDIR'")
