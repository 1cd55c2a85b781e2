"""Limits by command and by Python, on a real database: what is set, shown, refused and taken back."""

from __future__ import annotations

import asyncio

import pytest

from octop.app import Octop
from octop.model.errors import InvalidOptionError
from octop.model.rates import rate_per_second, spoken_rate
from tests.sql.crew import add


def test_limits_are_set_shown_with_who_set_them_and_what_is_used_and_taken_back(octop, rows, hire):
    worker = hire(queues=["mail"])
    said = octop(
        *("queues", "set", "mail", "--global-limit", 20, "--lane-limit", 2, "--rate", "100/m", "--burst", 10),
        *("--lane-rate", "1/h", "--ordered", "--weight", "acme=3", "--weight", "x=2", "--ageing", "1m"),
    )
    assert said == (
        "Queue mail: global limit is 20 now, lane limit is 2 now, rate is 100/m now, burst is 10 now, lane rate is 1/h now,"
        " ordered is yes now, ageing is 1m now, lane weights is acme=3, x=2 now.\n"
    )
    for lane in ("acme", "acme", "b"):
        add(rows, queue="mail", lane=lane)
    worker.claim(1)
    row = octop.json("queues", "show", "mail")
    assert (row["global_limit"], row["ordered"], row["lane_weights"]) == (20, True, {"acme": 3, "x": 2})
    assert row["origins"]["rate"]["origin"] == "operator"
    now = row["limits_now"]
    assert (now["running"], now["room"], now["tokens"], now["burst"]) == (1, 9, 9, 10)
    text = octop("queues", "show", "mail")
    for part in (
        "global limit  20  (operator ",
        "rate          100/m  (operator ",
        "1 of 20 at once; 1 of 2 in the lane acme; 9 of 10 starts left\n",
    ):
        assert part in text
    lanes = octop.json("lanes", "list", "mail")
    assert [(each["lane"], each["waiting"], each["running"], each["weight"]) for each in lanes] == [
        ("acme", 1, 1, 3),
        ("b", 1, 0, 1),
    ]
    assert lanes[0]["held_up_by"] is not None
    assert lanes == octop.json("lanes", "list")
    assert "acme" in octop("lanes", "list")
    octop("queues", "set", "mail", "--weight", "default", "--unordered", "--rate", "default")
    row = octop.json("queues", "show", "mail")
    assert (row["lane_weights"], row["ordered"], row["rate"], row["global_limit"]) == (None, False, None, 20)
    assert octop.json("queues", "reset", "mail")["changed"] is True
    row = octop.json("queues", "show", "mail")
    assert row["limits_now"] is None
    assert octop.json("queues", "reset", "mail")["changed"] is False


def test_the_list_shows_every_limit_with_what_is_used_of_it(octop, rows, hire):
    assert "No queue yet" in octop("queues", "list") + octop.err
    worker = hire(queues=["mail"])
    octop(
        "queues", "set", "mail", "--global-limit", 20, "--lane-limit", 2, "--rate", "100/h", "--burst", 10, "--limit", 5
    )
    octop("queues", "set", "mail", "--lane-rate", "1/h", "--ordered", "--ageing", "1m", "--watermark", 1000)
    octop("queues", "set", "slow", "--windows", '[{"from": "00:00", "until": "00:00", "global_limit": 3}]', "--yes")
    octop("queues", "set", "slow", "--critical", "no")
    enqueued = [add(rows, queue="mail", lane=lane) for lane in "abc"]
    worker.claim(2)
    cells = {line.split()[0]: line for line in octop("queues", "list").splitlines()}
    assert (
        "worker 5, global 2/20, lane 2, rate 100/h (8/10 left), lane rate 1/h, ordered, ageing 1m, watermark 1/1000"
        in cells["mail"]
    )
    assert "global 0/3, window open, not critical" in cells["slow"]
    mail, slow = octop.json("queues", "list")
    # the same numbers as the gates of the claim, and as show
    gate = rows.execute("select running, tokens, room from octop_queue_limits where name = 'mail'").fetchone()
    assert (
        (mail["limits_now"]["running"], mail["limits_now"]["tokens"], mail["limits_now"]["room"]) == gate == (2, 8, 8)
    )
    assert (slow["global_limit"], slow["limits_now"]["global_limit"]) == (None, 3)
    shown = octop.json("queues", "show", "mail")
    assert {key: shown[key] for key in mail if "seconds" not in key} == {
        key: mail[key] for key in mail if "seconds" not in key
    }
    role = rows.execute("select session_user::text").fetchone()[0]
    assert (mail["origins"]["global_limit"]["origin"], mail["origins"]["global_limit"]["role"]) == ("operator", role)
    assert mail["origins"]["global_limit"]["at"] is not None
    assert [each["running"] for each in shown["served_by"]] == [2]
    # what is used is given back by the end of the task
    rows.execute("select octop_delete(%s)", (enqueued[2],))
    assert octop.json("queues", "show", "mail")["busiest_lane"] == {"lane": "a", "tenant": "", "running": 1}
    assert ", runs 2 of 5)" in octop("queues", "show", "mail")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--global-limit", "-1"], "0<=x<=1000000"),
        (["--lane-limit", "0"], "1<=x<=1000000"),
        (["--rate", "fast"], "'fast' is no rate"),
        (["--rate", "0/s"], "is no rate"),
        (["--rate", "1/y"], "is no rate"),
        (["--weight", "acme"], "not LANE=N"),
        (["--weight", "acme=0"], "not LANE=N"),
        (["--weight", "default", "--weight", "a=1"], "stands alone"),
        (["--ageing", "400d"], "ageing_seconds must be"),
        (["--windows", "{}"], "not a JSON list"),
        (["--windows", '[{"from": "25:00", "until": "06:00", "global_limit": 1}]'], "from of a window"),
        (["--windows", '[{"from": "22:00", "until": "06:00"}]'], "must change a limit"),
        (["--windows", '[{"from": "22:00", "until": "06:00", "timezone": "Mars", "global_limit": 1}]'], "timezone"),
        (["--windows", '[{"from": "22:00", "until": "06:00", "days": [8], "global_limit": 1}]'], "days of a window"),
        (["--windows", '[{"from": "22:00", "until": "06:00", "speed": 1}]'], "but no speed"),
        (
            ["--windows", '[{"from": "22:00", "until": "06:00", "worker_limit": 1}]'],
            "the limit of each worker process does not change by the time of day; name global_limit",
        ),
    ],
)
def test_a_bad_limit_is_refused_with_what_and_why_and_nothing_is_set(octop, options, says):
    octop("queues", "set", "mail", "--max-retries", 3, *options, code=2)
    assert says in octop.err
    assert octop.json("queues", "list") == []


def test_an_application_sets_limits_in_both_forms(octop, database):
    app = Octop(database.url)
    values = app.queues.set_sync("mail", global_limit=20, rate="100/m", burst=10, lane_weights={"acme": 3})
    assert (values["global_limit"], values["burst"], values["lane_weights"]) == (20, 10, {"acme": 3})

    async def main():
        await app.queues.set(
            "mail", global_limit=None, windows=[{"from": "22:00", "until": "06:00", "global_limit": 5}]
        )
        shown = await app.queues.show("mail")
        await app.close_async()
        return shown

    shown = asyncio.run(main())
    assert shown is not None
    assert (shown["global_limit"], shown["rate"]) == (None, pytest.approx(100 / 60))
    again = app.queues.show_sync("mail")
    assert again is not None
    assert {**again, "limits_now": shown["limits_now"]} == shown
    assert again["origins"]["rate"]["origin"] == "operator"
    (listed,) = app.queues.list_sync()
    assert {key: again[key] for key in listed} == listed
    assert app.queues.show_sync("nosuch") is None
    with pytest.raises(TypeError, match="no value named speed"):
        app.queues.set_sync("mail", speed=1)
    with pytest.raises(InvalidOptionError, match="lane_limit must be a whole number, 1 to 1000000, not 0"):
        app.queues.set_sync("mail", lane_limit=0)
    app.close()
    assert "22:00 to 06:00 UTC: global limit 5" in octop("queues", "show", "mail")


def test_what_the_code_declares_is_written_down_by_its_workers(octop, database, start, rows):
    app = Octop(database.url)
    app.queue("q", global_limit=3, rate="90/m")
    assert app.queue_declarations == {"q": {"global_limit": 3, "rate": 1.5}}
    with pytest.raises(TypeError, match="no value named speed"):
        app.queue("q", speed=3)
    start(application="tests.system.apps.declaring:octop").ready()
    row = octop.json("queues", "show", "q")
    assert (row["global_limit"], row["rate"], row["origins"]["rate"]["origin"]) == (3, 1.5, "application")


def test_rates_are_read_and_told():
    assert [rate_per_second(each) for each in ("2", "2/s", "90/m", "1/h", "5/10s", "1/d", 3)] == [
        *(2, 2, 1.5, 1 / 3600, 0.5, 1 / 86400, 3)
    ]
    assert [spoken_rate(each) for each in (2, 0.5, 1 / 3600, 100_000 / 86_400)] == ["2/s", "30/m", "1/h", "100000/d"]
    for bad in ("", "-1", "0", "nan", "10001", "1/s/s", "1/0s", True):
        with pytest.raises(InvalidOptionError):
            rate_per_second(bad)
