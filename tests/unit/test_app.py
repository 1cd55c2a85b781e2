import asyncio
import datetime as dt
import inspect
import subprocess
import sys
import uuid

import pytest

from octop import Octop, RetryPolicy, Task
from octop.engine.calls.tasks import octop_enqueue_many
from octop.engine.foreign import as_text, kind_of, numbered
from octop.model.errors import (
    ConfigurationError,
    ForeignConnectionError,
    InvalidArgumentsError,
    InvalidNameError,
    InvalidOptionError,
    InvalidTaskError,
    InvalidTimeError,
    NotJsonError,
    UnknownTaskTypeError,
)


@pytest.fixture
def octop():
    return Octop("postgresql://nobody@localhost:1/nothing")


def test_a_decorated_function_stays_an_ordinary_function(octop):
    @octop.task
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    @octop.task(queue="q")
    async def later(number: int) -> int:
        return number

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Double it.")
    assert list(inspect.signature(double).parameters) == ["number"]
    assert inspect.unwrap(double) is double.__wrapped__
    assert asyncio.run(later(3)) == 3
    assert isinstance(double, Task)
    assert octop.registry["double"].function is double.__wrapped__


def test_the_names_of_other_libraries_are_answered_with_ours(octop):
    @octop.task
    def double(number: int) -> int:
        return 2 * number

    for name in ("delay", "apply_async", "send", "kiq", "perform_async"):
        with pytest.raises(AttributeError, match=rf"no {name}; say enqueue_sync\(…\), or await enqueue\(…\)"):
            getattr(double, name)
        with pytest.raises(AttributeError, match="enqueue_sync"):
            getattr(double.using(priority=1), name)
    with pytest.raises(AttributeError, match="no nonsense$"):
        double.nonsense  # noqa: B018
    assert not hasattr(double, "wrapped")


def test_aliases_lead_to_the_same_definition(octop):
    @octop.task(name="new", aliases=["old"])
    def f(): ...

    assert octop.registry["old"] is octop.registry["new"]


def test_a_name_that_belongs_to_another_function_is_refused(octop):
    @octop.task(name="send", aliases=["post"])
    def f(): ...

    def g(): ...

    for options in ({"name": "send"}, {"name": "post"}, {"name": "h", "aliases": ["send"]}):
        with pytest.raises(InvalidNameError, match=r"belongs to .*\.f already"):
            octop.task(**options)(g)
    assert set(octop.registry) == {"send", "post"}


def test_the_same_function_again_is_a_reload(octop):
    space: dict = {"octop": octop, "__name__": "shop"}
    source = compile("@octop.task\ndef f(a: int): ...\n", "shop.py", "exec")
    exec(source, space)  # noqa: S102 - what importlib.reload does
    exec(source, {**space, "__name__": "__main__"})  # noqa: S102 - what python -m does
    assert octop.registry["f"].function.__module__ == "__main__"


def test_what_is_below_the_decorator_must_be_a_function(octop):
    with pytest.raises(InvalidTaskError, match="no function"):
        octop.task("send")
    with pytest.raises(TypeError, match="colour"):
        octop.task(colour=3)


def test_hooks_are_kept_in_order_and_must_be_callable(octop):
    first, second = (lambda: 1), (lambda: 2)
    assert octop.on_worker_start(first) is first
    octop.on_worker_start(second)
    octop.middleware(first)
    for add in (octop.on_worker_stop, octop.on_success, octop.on_failure, octop.on_retry, octop.on_freeze):
        add(first)
    hooks = octop.hooks
    assert (hooks.worker_start, hooks.middleware, hooks.freeze) == ([first, second], [first], [first])
    with pytest.raises(ConfigurationError):
        octop.on_success("not a function")


@pytest.fixture
def send(octop):
    @octop.task(queue="mail", priority=1, max_retries=5, timeout=30, tags=["t"])
    def send(user_id: int, day: dt.date | None = None) -> str:
        return "sent"

    return send


def test_a_call_carries_what_the_code_declares_beside_what_was_asked_for(send):
    task = send.call(42).task
    assert (task.task_type, task.payload, task.queue, task.priority) == ("send", '{"user_id":42}', None, None)
    assert (task.declared_queue, task.declared_priority) == ("mail", 1)
    assert (task.max_retries, task.timeout_seconds, task.retry_policy, task.tags) == (None, None, None, ("t",))
    assert (task.delay_seconds, task.scheduled_at) == (None, None)


def test_C015_zero_is_not_unset_and_none_goes_back(send):
    task = send.using(max_retries=0, delay=0, priority=0).call(1).task
    assert (task.max_retries, task.delay_seconds, task.priority) == (0, 0, 0)
    back = send.using(max_retries=0, priority=0, tags=[]).using(max_retries=None, priority=None, tags=None).call(1).task
    assert (back.max_retries, back.priority, back.tags) == (None, None, ("t",))
    kept = send.using(max_retries=0, tags=[]).using(delay=5).call(1).task
    assert (kept.max_retries, kept.tags, kept.delay_seconds) == (0, (), 5)
    with pytest.raises(InvalidOptionError, match="timeout"):
        send.using(timeout=0)


def test_every_option_reaches_the_task(send):
    id = uuid.uuid4()
    task = (
        send.using(
            queue="q", lane="l", tenant="t", priority=9, at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC), max_retries=2,
            timeout=dt.timedelta(seconds=5), retry=RetryPolicy(base=1), tags=["a", "b"], meta={"day": dt.date(2030, 1, 1)}, id=id,
        ).call(1).task
    )  # fmt: skip
    assert (task.queue, task.lane, task.tenant, task.priority) == ("q", "l", "t", 9)
    assert (task.scheduled_at, task.max_retries, task.timeout_seconds) == ("2030-01-01T00:00:00+00:00", 2, 5)
    assert (task.retry_policy, task.tags, task.meta, task.id) == (
        '{"base":1}',
        ("a", "b"),
        '{"day":"2030-01-01"}',
        str(id),
    )


def test_delay_and_moment_exclude_each_other_and_the_later_word_counts(send):
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(InvalidOptionError, match="exclude"):
        send.using(delay=1, at=at)
    task = send.using(delay=1).using(at=at).call(1).task
    assert (task.delay_seconds, task.scheduled_at) == (None, at.isoformat())
    task = send.using(at=at).using(delay=1).call(1).task
    assert (task.delay_seconds, task.scheduled_at) == (1, None)
    task = send.using(at=at).using(at=None).call(1).task
    assert task.scheduled_at is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": -1}, InvalidOptionError),
        ({"delay": "5"}, InvalidOptionError),
        ({"delay": float("nan")}, InvalidOptionError),
        ({"priority": 42}, InvalidOptionError),
        ({"priority": True}, InvalidOptionError),
        ({"max_retries": -1}, InvalidOptionError),
        ({"timeout": -1}, InvalidOptionError),
        ({"timeout": 10**9}, InvalidOptionError),
        ({"queue": ""}, InvalidNameError),
        ({"queue": "a\0b"}, InvalidNameError),
        ({"lane": "x" * 201}, InvalidNameError),
        ({"tenant": 5}, InvalidNameError),
        ({"tags": "abc"}, InvalidOptionError),
        ({"tags": [""]}, InvalidNameError),
        ({"meta": "abc"}, InvalidOptionError),
        ({"meta": {"a": float("nan")}}, NotJsonError),
        ({"id": "abc"}, InvalidOptionError),
        ({"retry": 5}, InvalidOptionError),
        ({"at": "2030-01-01"}, InvalidTimeError),
        ({"at": dt.datetime(2030, 1, 1)}, InvalidTimeError),
        ({"at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}, InvalidTimeError),
        ({"at": dt.datetime.max.replace(tzinfo=dt.UTC)}, InvalidTimeError),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_is_sent(send, options, error):
    with pytest.raises(error):
        send.using(**options)


def test_C036_the_message_about_a_naive_moment_says_what_to_do(send):
    with pytest.raises(InvalidTimeError, match=r"hint: Give it a zone"):
        send.using(at=dt.datetime(2030, 1, 1))


def test_an_unknown_option_is_refused_with_the_one_that_may_be_meant(octop, send):
    with pytest.raises(TypeError, match=r"^using\(\) has no option 'dealy'; did you mean delay\?$"):
        send.using(dealy=11)
    with pytest.raises(TypeError, match="has no option 'retries'; did you mean max_retries"):
        send.using(retries=3)
    with pytest.raises(TypeError, match="has no option 'colour': it takes queue, lane, .* connection$"):
        octop.named("elsewhere").using(colour=1)
    with pytest.raises(TypeError, match=r"'user_id' is an argument of send: pass it to enqueue_sync\("):
        send.using(user_id=1)


def test_arguments_beside_a_name_are_told_to_go_into_a_dict(octop, send):
    rule = r'Arguments of the task go into a dict: {}\("{}", {{"{}": …}}\)$'
    with pytest.raises(TypeError, match="has no option 'seconds'. " + rule.format("enqueue_sync", "nap", "seconds")):
        octop.enqueue_sync("nap", seconds=1)
    with pytest.raises(TypeError, match="has no option 'user_id'. " + rule.format("enqueue", "send", "user_id")):
        asyncio.run(octop.enqueue("send", user_id=1))
    with pytest.raises(
        TypeError, match="'dealy'; did you mean delay\\? " + rule.format("enqueue_sync", "nap", "dealy")
    ):
        octop.enqueue_sync("nap", {"seconds": 1}, dealy=1)
    with pytest.raises(InvalidTaskError, match="a dict of arguments by name, not 1"):
        octop.enqueue_sync("nap", 1)


def test_wrong_arguments_are_refused_before_anything_is_sent(send):
    for call in (send.call, send.enqueue_sync, lambda *a, **k: asyncio.run(send.enqueue(*a, **k))):
        with pytest.raises(InvalidArgumentsError):
            call()
        with pytest.raises(InvalidArgumentsError, match="an int"):
            call("abc")


def test_a_registered_name_is_checked_like_the_function_and_an_unknown_one_takes_any_json(octop, send):
    with pytest.raises(InvalidArgumentsError):
        octop.named("send").call(nobody=1)
    assert octop.named("elsewhere").call({"a": dt.date(2030, 1, 1)}).task.payload == '{"a":"2030-01-01"}'
    assert octop.named("elsewhere").call(a=1).task.payload == '{"a":1}'
    with pytest.raises(InvalidTaskError):
        octop.named("elsewhere").call([1])
    with pytest.raises(InvalidTaskError):
        octop.enqueue_sync("elsewhere", {1: 2})
    with pytest.raises(InvalidNameError):
        octop.named("")


def test_a_handle_needs_an_id_and_a_known_type(octop, send):
    with pytest.raises(InvalidOptionError, match="UUID"):
        octop.handle("abc")
    with pytest.raises(UnknownTaskTypeError):
        octop.handle(uuid.uuid4(), "nothing")
    assert octop.handle(id := uuid.uuid4(), "send").id == id


def test_the_representation_never_shows_a_password():
    assert "secret" not in repr(Octop("postgresql://ann:secret@db/shop"))


def test_a_pool_of_no_connections_is_refused():
    with pytest.raises(ConfigurationError):
        Octop(pool_size=0)


def test_what_has_no_transaction_is_refused_as_a_connection(octop, send):
    for thing in ("host=db", object(), 5, octop):
        with pytest.raises(ForeignConnectionError, match="no transaction that a task can join"):
            send.using(connection=thing).enqueue_sync(1)
        with pytest.raises(TypeError):
            kind_of(thing)


def test_numbered_parameters_are_all_text_and_cast_by_the_server():
    text, names = numbered(octop_enqueue_many([]).text, 'odd "schema')
    assert 'from "odd ""schema".octop_enqueue_many($1::text::text[], $2::text::text[], $3::text::uuid[]' in text
    assert numbered("select f(%(a)s::double precision[])", "s")[0] == "select f($1::text[]::double precision[])"
    assert "%" not in text
    assert names[:3] == ("task_types", "payloads", "ids")
    assert as_text([1, None, 2.5, True, "x", [3]]) == ["1", None, "2.5", "true", "x", ["3"]]


def test_importing_the_package_loads_no_driver():
    script = (
        "import sys, octop; octop.Octop().task(lambda: 1) if 0 else octop.Octop();"
        "print([name for name in ('psycopg', 'click', 'rich', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
