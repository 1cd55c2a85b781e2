"""Lanes by a field of the payload, through every door: one by one, many at once, async, in batches; and what is refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from octop import Octop
from octop.model.errors import InvalidArgumentsError, InvalidOptionError


@pytest.fixture
def shop(database):
    made = Octop(database.url)
    yield made
    made.close()


def lanes(rows):
    return [lane for (lane,) in rows.execute("select lane from octop_tasks order by seq").fetchall()]


class Plan(Enum):
    FREE = "free"


@dataclass
class Account:
    id: int
    plan: Plan = Plan.FREE


def test_the_field_names_the_lane_one_by_one_many_at_once_and_async(shop, rows):
    @shop.task(lane_from="account_id")
    def bill(account_id: int, sum_: float = 0) -> None: ...

    bill.enqueue_sync(7)
    bill.enqueue_sync(account_id=8, sum_=2.5)
    assert shop.enqueue_many_sync(bill.call(number) for number in (9, 10)) == 2
    shop.enqueue_sync("bill", {"account_id": 11})
    # said by hand it goes before the field, also where it says none; None is what the type says
    bill.using(lane="vip").enqueue_sync(7)
    bill.using(lane="").enqueue_sync(7)
    bill.using(lane="vip").using(lane=None).enqueue_sync(12)

    async def main():
        async with asyncio.TaskGroup() as group:
            for number in (13, 13):
                group.create_task(bill.enqueue(number))
        await shop.close_async()

    asyncio.run(main())
    assert lanes(rows) == ["7", "8", "9", "10", "11", "vip", "", "12", "13", "13"]


def test_text_enums_ids_and_fields_inside_others_name_lanes_and_a_default_is_stored(shop, rows):
    @shop.task(lane_from="account.id")
    def inside(account: Account) -> None: ...

    @shop.task(lane_from="plan")
    def by_default(plan: Plan = Plan.FREE, other: int = 1) -> None: ...

    @shop.task(lane_from="key")
    def by_id(key: UUID) -> None: ...

    @shop.task(lane_from="user")
    def loose(**fields: Any) -> None: ...

    inside.enqueue_sync(Account(42))
    handle = by_default.enqueue_sync()
    by_id.enqueue_sync(UUID(int=1))
    loose.enqueue_sync(user="ünï", more=2)
    assert lanes(rows) == ["42", "free", str(UUID(int=1)), "ünï"]
    # a lane that no field of the payload names could not be understood later
    assert json.loads(handle.record_sync().payload) == {"plan": "free"}


def test_a_value_that_names_no_lane_is_refused_with_its_field_and_nothing_is_enqueued(shop, rows):
    @shop.task(lane_from="account_id")
    def bill(account_id: Any, sum_: float = 0) -> None: ...

    @shop.task(lane_from="account_id")
    def loose(**fields: Any) -> None: ...

    for wrong, says in (
        (None, "'account_id', which is null"),
        (True, "'account_id', which is bool"),
        (1.5, "'account_id', which is float"),
        ({"id": 1}, "'account_id', which is dict"),
        ("", "'account_id' names, has 1 to 200 characters, not 0"),
        ("x" * 201, "'account_id' names, has 1 to 200 characters, not 201"),
        ("a\nb", "'account_id' names, .* holds control characters"),
    ):
        with pytest.raises(InvalidArgumentsError, match=says):
            bill.enqueue_sync(wrong)
        with pytest.raises(InvalidArgumentsError, match=says):
            shop.enqueue_many_sync([bill.call("good"), bill.call(wrong)])
    with pytest.raises(InvalidArgumentsError, match="'account_id', which is not there") as error:
        loose.enqueue_sync(user=1)
    assert 'using(lane="")' in (error.value.hint or "")
    assert lanes(rows) == []
    loose.using(lane="").enqueue_sync(user=1)
    assert lanes(rows) == [""]


def test_a_declaration_that_cannot_hold_is_refused_where_it_is_written(shop):
    with pytest.raises(InvalidOptionError, match="lane_from names 'acount_id', and .*bill has no such parameter"):

        @shop.task(lane_from="acount_id")
        def bill(account_id: int) -> None: ...

    for wrong in ("", 7, ("account_id",)):
        with pytest.raises(InvalidOptionError, match="lane_from is the name of a payload field"):
            shop.task(name="bill", lane_from=wrong)(lambda account_id: None)
    with pytest.raises(InvalidOptionError, match="a payload of another lane than its own"):

        @shop.task(lane_from="account_id", unique=("letter",), on_conflict="replace")
        def send(letter: int, account_id: int) -> None: ...

    @shop.task(lane_from="account_id", unique=("letter",))
    def keep(letter: int, account_id: int) -> None: ...

    with pytest.raises(InvalidOptionError, match="Name 'account_id', its lane_from, among the fields of unique"):
        keep.using(on_conflict="replace")
    keep.using(on_conflict="replace", unique=("letter", "account_id"))


def test_fifty_thousand_lanes_of_a_field_take_turns(shop, rows, hire):
    @shop.task(queue="mail", lane_from="account_id")
    def bill(account_id: int) -> None: ...

    def calls():
        yield from (bill.call(0) for _ in range(2_000))
        yield from (bill.call(number) for number in range(1, 50_000))

    assert shop.enqueue_many_sync(calls()) == 51_999
    assert rows.execute("select count(distinct lane) from octop_tasks").fetchone() == (50_000,)
    shop.queues.set_sync("mail", lane_limit=1)
    worker = hire(queues=["mail"], types=["bill"])
    claimed = [task for _ in range(5) for task in worker.claim(100)]
    taken = rows.execute("select count(*), count(distinct lane) from octop_tasks where status = 'running'").fetchone()
    assert taken == (len(claimed), len(claimed))
    assert len(claimed) == 500
