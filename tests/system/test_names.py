"""Odd names of queues and task types, all the way: enqueue, run twice, look, pause, filter."""

from __future__ import annotations

import asyncio
import json

import pytest

from octop import Octop
from octop.cli.entry import run
from octop.model.errors import InvalidNameError

ODD = [
    *(
        "my-queue",
        "My.Queue",
        "user",
        "1x",
        "sche\u0301ma",
        'a"b',
        "o'brien",
        "a$$b",
        "a\\b",
        "'x; drop",
        "%s",
        "%(x)s",
    ),
    *("{}", "a,b", " lead", "*", "tag:vip", "-x", "x" * 200, "任务" * 100, "🦑"),
]


def test_C108_any_name_of_queue_and_task_type_runs_twice(database):
    octop = Octop(database.url)

    def echo() -> str:
        return "ran"

    for name in ODD:
        octop.task(name=name, queue=name)(echo)
    for _ in range(2):
        handles = [octop.named(name).enqueue_sync() for name in ODD]
        asyncio.run(octop.worker(queues=dict.fromkeys(ODD, 1), drain=True))
        assert [handle.result_sync() for handle in handles] == ["ran"] * len(ODD)
    octop.close()


@pytest.mark.parametrize("name", ODD)
def test_C108_an_odd_queue_can_be_paused_and_resumed_from_the_command(database, capsys, name):
    for word, held in (("pause", [(name,)]), ("resume", [])):
        assert run(["queues", word, "--dsn", database.url, "--json", "--", name]) == 0
        assert json.loads(capsys.readouterr().out)["queue"] == name
        with database.connect() as connection:
            assert connection.execute("select target from octop_holds").fetchall() == held


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x00b", "\ud800"])
def test_C108_what_is_no_name_is_refused_before_any_sql(name):
    octop = Octop("postgresql://nobody@127.0.0.1:1/nowhere")  # an attempt to reach it would be another error
    with pytest.raises(InvalidNameError):
        octop.named(name)
    with pytest.raises(InvalidNameError):
        octop.task(name="job", queue=name)(lambda: None)
    with pytest.raises(InvalidNameError):
        octop.named("job").using(queue=name)
