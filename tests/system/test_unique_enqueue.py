"""Unique tasks through every door: the decorator, using, many at once, each driver, the command; and beside joined enqueues."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from octop import Octop
from octop.model.errors import InvalidOptionError, TaskExistsError, TryAgainError
from tests.system.by_hand import enqueue
from tests.system.test_foreign_transactions import WAYS, done


@pytest.fixture
def shop(database):
    made = Octop(database.url)
    yield made
    made.close()


@pytest.fixture
def count(database):
    def count():
        with database.connect() as connection:
            return connection.execute("select count(*) from octop_tasks").fetchone()[0]

    return count


def test_the_articles_own_example_is_one_line_and_raise_errors_as_it_wants(shop, count):
    @shop.task(unique=("user_id",), on_conflict="raise")
    def sync(user_id: int, source: str = "web") -> None: ...

    first = sync.enqueue_sync(42)
    assert first.created
    assert not first.existed
    with pytest.raises(TaskExistsError, match="a task of type sync with the same user_id exists already") as error:
        sync.enqueue_sync(42, source="app")
    assert error.value.id == str(first.id)
    assert error.value.exit_code == 8
    assert sync.using(on_conflict="keep").enqueue_sync(42) == first
    assert sync.using(unique=False).enqueue_sync(42) != first
    assert sync.using(tenant="a").enqueue_sync(42).created
    assert count() == 3


def test_defaults_of_the_key_are_stored_so_that_saying_one_is_the_same_as_leaving_it_out(shop):
    @shop.task(unique=True)
    def report(region: str = "eu", day: int | None = None) -> None: ...

    first = report.enqueue_sync()
    assert report.enqueue_sync("eu") == first
    assert report.enqueue_sync(region="eu", day=None) == first
    assert report.enqueue_sync("us") != first
    assert json.loads(first.record_sync().payload) == {"region": "eu", "day": None}


def test_scopes_windows_and_rules_in_using(shop, database):
    @shop.task
    def f(n: int, text: str = "") -> None: ...

    window = f.using(unique=["n"], unique_scope=timedelta(minutes=1), on_conflict="replace")
    database.clock.advance(0)
    first = window.enqueue_sync(1)
    assert window.enqueue_sync(1, text="new").existed
    assert json.loads(first.record_sync().payload) == {"n": 1, "text": "new"}
    database.clock.advance(60)
    assert window.enqueue_sync(1).created
    key = f.using(unique_key="nightly", unique_scope="live")
    assert key.enqueue_sync(1) == key.enqueue_sync(2)
    assert key.using(unique=["n"]).enqueue_sync(5).created


@pytest.mark.parametrize(
    "options",
    [
        {"unique": ("missing",)},
        {"unique": "n"},
        {"unique": ()},
        {"unique": (1,)},
        {"unique": True, "unique_scope": "ever"},
        {"unique": True, "unique_scope": 0},
        {"unique": True, "unique_scope": timedelta(days=400)},
        {"unique": True, "on_conflict": "skip"},
        {"unique_scope": "live"},
        {"on_conflict": "raise"},
    ],
)
def test_a_decorator_that_means_nothing_is_refused(shop, options):
    with pytest.raises(InvalidOptionError):

        @shop.task(**options)
        def f(n: int) -> None: ...


def test_using_refuses_what_means_nothing(shop):
    @shop.task
    def f(n: int) -> None: ...

    for options in (
        {"unique": True, "unique_key": "a"},
        {"unique_key": ""},
        {"on_conflict": "raise"},
        {"unique_scope": "live"},
    ):
        with pytest.raises(InvalidOptionError):
            f.using(**options)


@pytest.mark.parametrize("way", WAYS)
def test_every_driver_is_answered_the_task_that_exists_and_its_transaction_goes_on(way, database, shop, count):
    @shop.task(unique=("n",))
    def f(n: int) -> None: ...

    async def story():
        async with WAYS[way](database) as (connection, execute, commit, _):
            first = await f.using(connection=connection).enqueue(1)
            assert (await f.using(connection=connection).enqueue(1)) == first
            with pytest.raises(TaskExistsError) as error:
                await f.using(connection=connection, on_conflict="raise").enqueue(1)
            assert error.value.id == str(first.id)
            await done(execute("select 1"))
            assert await shop.enqueue_many((f.call(n) for n in (1, 2, 3, 2)), connection=connection) == 2
            ids = await shop.enqueue_many((f.call(n) for n in (2, 1)), connection=connection, return_ids=True)
            assert ids[1] == first.id
            await done(commit())

    asyncio.run(story())
    assert count() == 3


def test_enqueue_many_never_raises_for_one_and_says_which_task_exists(shop, count):
    @shop.task(unique=("n",), on_conflict="raise")
    def f(n: int) -> None: ...

    first = f.enqueue_sync(1)
    assert shop.enqueue_many_sync(f.call(n) for n in (0, 1, 2)) == 2
    assert shop.enqueue_many_sync([f.call(1)], return_ids=True) == [first.id]
    assert asyncio.run(shop.enqueue_many(f.call(n) for n in range(1500))) == 1497
    assert count() == 1500


def test_unique_and_other_enqueues_that_are_awaited_together_each_have_their_own_answer(shop, count):
    @shop.task(unique=("n",))
    def f(n: int) -> None: ...

    @shop.task
    def plain(n: int) -> None: ...

    async def story():
        answers: list[Any] = await asyncio.gather(
            *(f.enqueue(n % 3) for n in range(60)),
            *(plain.enqueue(n) for n in range(60)),
            *(f.using(on_conflict="raise").enqueue(n) for n in range(3)),
            return_exceptions=True,
        )
        assert len({each.id for each in answers[:60]}) == 3
        assert all(isinstance(each, TaskExistsError) or each.created for each in answers[120:])
        assert sum(getattr(each, "created", False) for each in (*answers[:60], *answers[120:])) == 3
        assert all(each.created for each in answers[60:120])
        assert len({each.id for each in answers[60:120]}) == 60

    asyncio.run(story())
    assert count() == 63


def test_C120_enqueues_without_a_key_pass_those_that_wait_for_one(database):
    octop = Octop(
        f"{database.url}&options=-c%20lock_timeout%3D2s"
        if "?" in database.url
        else database.url + "?options=-c%20lock_timeout%3D2s"
    )

    @octop.task(unique=("n",))
    def f(n: int) -> None: ...

    @octop.task
    def plain() -> None: ...

    async def story():
        with database.connect() as holder, holder.transaction():
            f.using(connection=holder).enqueue_sync(1)
            stuck = [asyncio.ensure_future(f.enqueue(1)) for _ in range(50)]
            handles = await asyncio.gather(*(plain.enqueue() for _ in range(50)))
            assert all(each.created for each in handles)
            assert not any(each.done() for each in stuck), "they wait for the holder, nobody else does"
            told = await _first_error(stuck)
            assert isinstance(told, TryAgainError)
        answers = await asyncio.gather(*stuck, return_exceptions=True)
        assert {type(each).__name__ for each in answers} <= {"TryAgainError", "Handle"}

    try:
        asyncio.run(story())
    finally:
        octop.close()


async def _first_error(futures):
    finished, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    return next(iter(finished)).exception()


def test_a_retry_that_meets_a_twin_raises_with_its_id(shop, database):
    @shop.task(unique=("n",), unique_scope="live")
    def f(n: int) -> None: ...

    first = f.enqueue_sync(1)
    first.cancel_sync()
    twin = f.enqueue_sync(1)
    with pytest.raises(TaskExistsError) as error:
        first.retry_sync()
    assert error.value.id == str(twin.id)


# --- the command --------------------------------------------------------------------------------------------------------


def test_the_command_enqueues_once(octop):
    first = enqueue(octop, "send", "user_id=1", "--unique", "user_id")
    keep = ["enqueue", "send", "user_id=1", "--unique", "user_id"]
    assert octop(*keep, "--on-conflict", "keep").strip() == first
    assert f"There is a task {first} already: nothing was enqueued." in octop.err
    octop(*keep, "--on-conflict", "raise", code=8)
    assert first in octop.err
    assert octop.json(*keep, "--on-conflict", "move", "--delay", "1h") == {"id": first, "created": False}
    assert "it is moved, unless it runs" in octop.err
    assert octop(*keep, "--unique-scope", "live").strip() != first
    assert octop(*keep, "--unique-scope", "10m").strip() != first
    whole = enqueue(octop, "send", "a=1", "b=2", "--unique", "*")
    assert octop("enqueue", "send", "b=2", "a=1.0", "--unique", "*").strip() == whole
    key = enqueue(octop, "send", "--unique-key", "x")
    assert octop("enqueue", "send", "--unique-key", "x").strip() == key


@pytest.mark.parametrize(
    "words",
    [
        ("--unique", "user_id", "--unique-key", "x"),
        ("--unique-scope", "live"),
        ("--on-conflict", "raise"),
        ("--unique", "user_id", "--unique-scope", "ever"),
        ("--unique", "userid"),
    ],
)
def test_the_command_refuses_what_means_nothing(octop, words):
    octop("enqueue", "send", "user_id=1", *words, code=2)


def test_a_bulk_retry_says_what_it_left_alone(octop):
    first = enqueue(octop, "send", "--unique-key", "x")
    octop("tasks", "cancel", first)
    twin = enqueue(octop, "send", "--unique-key", "x")
    octop("tasks", "retry", first, code=8)
    assert twin in octop.err
