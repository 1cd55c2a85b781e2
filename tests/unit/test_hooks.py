"""What an application is called with where a task is made."""

from __future__ import annotations

import json
import logging

import pytest

from octop import Octop
from octop.model.errors import ConfigurationError


def meta_of(prepared) -> dict | None:
    return None if prepared.task.meta is None else json.loads(prepared.task.meta)


@pytest.fixture
def app() -> Octop:
    made = Octop()

    @made.task
    async def send(user_id: int) -> None: ...

    return made


def test_what_an_enqueue_hook_returns_rides_along(app):
    app.on_enqueue(lambda task_type: {"trace": "4bf9", "type": task_type})
    app.on_enqueue(lambda task_type: None)
    assert meta_of(app.named("send").call(1)) == {"trace": "4bf9", "type": "send"}
    assert meta_of(app.named("of another code base").call(n=1)) == {"trace": "4bf9", "type": "of another code base"}


def test_what_the_caller_said_goes_before(app):
    app.on_enqueue(lambda task_type: {"trace": "of the hook", "more": 1})
    prepared = app.named("send").using(meta={"trace": "of the caller"}).call(1)
    assert meta_of(prepared) == {"trace": "of the caller", "more": 1}


def test_a_later_hook_goes_before_an_earlier_one(app):
    for number in (1, 2):
        app.on_enqueue(lambda task_type, number=number: {"number": number})
    assert meta_of(app.named("send").call(1)) == {"number": 2}


def test_without_hooks_nothing_rides(app):
    assert meta_of(app.named("send").call(1)) is None
    assert meta_of(app.named("send").using(meta={"a": 1}).call(1)) == {"a": 1}


@pytest.mark.parametrize(
    "answer", [lambda _: 1 / 0, lambda _: {"set": object()}, lambda _: 5], ids=["raises", "no JSON", "no dict"]
)
def test_a_hook_that_fails_is_logged_and_keeps_no_task_from_being_made(app, answer, caplog):
    app.on_enqueue(answer)
    app.on_enqueue(lambda task_type: {"trace": "4bf9"})
    with caplog.at_level(logging.ERROR):
        assert meta_of(app.named("send").call(1)) == {"trace": "4bf9"}
    assert "the hook" in caplog.text


@pytest.mark.parametrize("beside", [{"said": "x" * 40_000}, None], ids=["with what was said", "alone"])
def test_riders_that_do_not_fit_are_logged_and_the_task_is_made_without_them(app, beside, caplog):
    app.on_enqueue(lambda task_type: {"trace": "4bf9"})
    # 60,000 bytes as we write them, more than 64 kB as PostgreSQL does: it puts a space after each comma
    app.on_enqueue(lambda task_type: {"much": [1] * 30_000} if beside is None else {"much": "x" * 30_000})
    app.on_enqueue(lambda task_type: {"more": 1})
    with caplog.at_level(logging.ERROR):
        prepared = app.named("send").using(meta=beside).call(1)
    assert meta_of(prepared) == {"trace": "4bf9", "more": 1, **(beside or {})}
    assert "added nothing" in caplog.text
    assert "more than 65,536" in caplog.text


def test_the_room_for_riders_is_that_of_the_engine(database):
    sizes = iter((21_843, 21_844))  # PostgreSQL prints {"n": [1, 1, …]} with 7 bytes and 3 for each number
    app = Octop(dsn=database.url)
    app.on_enqueue(lambda task_type: {"n": [1] * next(sizes)})
    for _ in range(2):
        app.named("send").enqueue_sync()
    app.close()
    with database.connect() as connection:
        rows = connection.execute("select octet_length(meta::text) from octop_tasks order by seq").fetchall()
    assert rows == [(65_536,), (None,)]


def test_a_hook_is_a_function(app):
    with pytest.raises(ConfigurationError, match="a hook is a function"):
        app.on_enqueue({"trace": 1})
