"""Enqueues that are awaited at the same time: one statement and one commit, and to each caller its own answer."""

import asyncio
from typing import Any

import pytest

from octop import Octop


@pytest.fixture
def octop(database):
    made = Octop(database.url)
    yield made
    made.close()


@pytest.fixture
def transactions(database):
    """Count tasks, and the transactions that made them."""

    def transactions():
        with database.connect() as connection:
            return connection.execute("select count(*), count(distinct xmin::text) from octop_tasks").fetchone()

    return transactions


def test_enqueues_that_are_awaited_together_share_statements_but_not_faults(octop, transactions):
    @octop.task
    def f(value: str): ...

    async def story():
        good = [f.enqueue(str(number)) for number in range(300)]
        bad = [f.enqueue("x" * 2_000_000), f.using(meta={"x": "y" * 70_000}).enqueue("x")]
        answers: list[Any] = await asyncio.gather(*good[:150], *bad, *good[150:], return_exceptions=True)
        assert [type(answer).__name__ for answer in answers[150:152]] == ["PayloadTooLargeError", "InvalidPayloadError"]
        handles = answers[:150] + answers[152:]
        assert [(await handle.record()).payload for handle in handles[::50]] == [
            f'{{"value": "{n}"}}' for n in range(0, 300, 50)
        ]
        assert all(handle.created for handle in handles)

    asyncio.run(story())
    tasks, commits = transactions()
    assert tasks == 300
    assert commits < 40


@pytest.mark.parametrize(("calls", "commits"), [(1, 1), (2, 1), (99, 1), (200, 2), (650, 3)])
def test_calls_that_are_awaited_at_the_same_moment_share_a_commit_and_many_are_sent_while_the_rest_is_bound(
    octop, transactions, calls, commits
):
    @octop.task
    def f(value: int): ...

    async def story():
        await f.enqueue(-1)
        await asyncio.gather(*(f.enqueue(number) for number in range(calls)))

    asyncio.run(story())
    assert transactions() == (calls + 1, commits + 1)


def test_a_cancelled_enqueue_does_not_take_the_others_with_it(octop, transactions):
    @octop.task
    def f(value: int): ...

    async def story():
        await f.enqueue(-1)
        for when in (0.0, 0.001, 0.005):
            tasks = [asyncio.create_task(f.enqueue(number)) for number in range(40)]
            await asyncio.sleep(when)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
            assert [type(answer).__name__ for answer in answers[1::2]] == ["Handle"] * 20
        await asyncio.wait_for(f.enqueue(-2), 30)

    asyncio.run(story())
    assert 62 <= transactions()[0] <= 122
