"""Lanes by a field of the payload in tasks that run: what they enqueue, batches, retries, and what a test drains."""

from __future__ import annotations

from dataclasses import dataclass

from octop import BatchTask
from tests.system.testing.asking import ask


@dataclass
class Letter:
    account_id: int


def test_batches_and_what_a_running_task_enqueues_have_their_lanes_too(place, octop):
    seen: list[tuple[int, str]] = []

    @octop.task(lane_from="account_id", batch_size=10, batch_wait=0, max_retries=1, retry=[0])
    def send_all(tasks: list[BatchTask[Letter]]) -> None:
        seen.extend((each.args.account_id, each.context.lane) for each in tasks)

    @octop.task(lane_from="account_id")
    def order(account_id: int) -> None:
        send_all.enqueue_sync(account_id)

    for number in (1, 2, 1):
        order.enqueue_sync(number)
    place.drain()
    assert sorted(seen) == [(1, "1"), (1, "1"), (2, "2")]
    # done again, it stays in its lane
    ended = ask(place.dsn, "select id from octop_tasks where task_type = 'send_all' and lane = '2'")
    assert ask(place.dsn, f"select octop_retry('{ended}') is not null")
    place.drain()
    assert seen[-1] == (2, "2")
