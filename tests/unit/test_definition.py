import dataclasses
import datetime as dt
import functools
import json
import typing
import uuid

import pytest

from octop import Context
from octop.model.definition import define
from octop.model.errors import (
    InvalidArgumentsError,
    InvalidNameError,
    InvalidOptionError,
    InvalidPayloadError,
    InvalidTaskError,
    InvalidTimeError,
    NotJsonError,
)
from octop.model.retry import RetryPolicy
from octop.model.task import NIL, Claimed

if typing.TYPE_CHECKING:
    from somewhere import Nothing  # type: ignore[import-not-found]


def context():
    return Context(
        Claimed(
            NIL, 1, NIL, "", "default", "", "f", "{}", 5, 0, 3, 300, "2030-01-01 00:00:00+00", "2030-01-01 00:00:00+00",
            False, None, None,
        )
    )  # fmt: skip


def test_C130_arguments_are_stored_by_name_and_defaults_are_not():
    def f(x: int, email: str, new: bool = False): ...

    definition = define(f)
    assert definition.bind((1, "a", True), {}) == '{"x":1,"email":"a","new":true}'
    assert definition.bind((1,), {"email": "a"}) == '{"x":1,"email":"a"}'


def test_C130_a_parameter_that_is_inserted_moves_nothing():
    def f(x: int, email: str, new: bool = False): ...

    payload = define(f).bind((1, "a", True), {})

    def f(x: int, email: str, site: str | None = None, new: bool = False):  # type: ignore[no-redef]
        return (x, email, site, new)

    later = define(f)
    assert later.call(later.unbind(payload)) == (1, "a", None, True)


def test_C130_a_parameter_that_is_gone_is_a_clear_error_before_the_body():
    def f(x: int, email: str): ...

    payload = define(f).bind((1, "a"), {})

    def f(x: int):  # type: ignore[no-redef]
        pytest.fail("the body was entered")

    with pytest.raises(InvalidArgumentsError, match="unexpected argument 'email'"):
        define(f).unbind(payload)

    def f(x: int, email: str, site: str):  # type: ignore[no-redef]
        pytest.fail("the body was entered")

    with pytest.raises(InvalidArgumentsError, match="missing argument 'site'"):
        define(f).unbind(payload)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "needs 'a'"),
        ((1, 2, 3), {}, "at most 2 positional"),
        ((1,), {"a": 1}, "two values for 'a'"),
        ((1,), {"z": 1}, "no parameter 'z'"),
        ((1,), {"ctx": None}, "no parameter 'ctx'"),
        ((), {"a": 1, "c": 2, "b": 3, "d": 4}, "no parameter 'd'"),
    ],
)
def test_wrong_arguments_are_refused_when_enqueued(args, kwargs, message):
    def f(ctx: Context, a: int, b: int = 2, *, c: int = 3): ...

    with pytest.raises(InvalidArgumentsError, match=message):
        define(f).bind(args, kwargs)


def test_a_value_of_another_type_is_refused_with_its_path():
    def f(user: dict[str, list[int]]): ...

    with pytest.raises(InvalidArgumentsError, match=r"^\$\.user\.ages\[1\]: an int was expected, not str 'old'"):
        define(f).bind(({"ages": [1, "old"]},), {})


def test_C036_a_naive_datetime_is_refused_with_its_path():
    def f(at: dt.datetime, rest=None): ...

    definition = define(f)
    with pytest.raises(InvalidTimeError, match=r"^\$\.at: "):
        definition.bind((dt.datetime(2030, 1, 1),), {})
    with pytest.raises(InvalidTimeError, match=r"^\$\.rest\.x: "):
        definition.bind((dt.datetime(2030, 1, 1, tzinfo=dt.UTC),), {"rest": {"x": dt.datetime(2030, 1, 1)}})


def test_types_come_back_by_annotation():
    @dataclasses.dataclass
    class Order:
        id: uuid.UUID
        day: dt.date

    def f(order: Order, days: set[dt.date]): ...

    definition = define(f)
    order = Order(uuid.uuid4(), dt.date(2030, 1, 1))
    back = definition.unbind(definition.bind((order,), {"days": {order.day}}))
    assert back == {"order": order, "days": {order.day}}


def test_strings_as_annotations_are_resolved_when_they_are_needed():
    def f(day: "dt.date") -> "dt.date":
        return day

    definition = define(f)
    assert definition.unbind('{"day": "2030-01-01"}') == {"day": dt.date(2030, 1, 1)}


def test_an_annotation_that_can_not_be_resolved_is_a_clear_error():
    def f(it: "Nothing"): ...

    with pytest.raises(InvalidTaskError, match="Nothing"):
        define(f).bind((1,), {})


def test_the_context_is_given_by_annotation_and_is_no_part_of_the_payload():
    def f(a: int, ctx: Context, b: int = 2):
        return (a, ctx, b)

    definition = define(f)
    payload = definition.bind((1, 3), {})
    assert json.loads(payload) == {"a": 1, "b": 3}
    given = context()
    assert definition.call(definition.unbind(payload), given) == (1, given, 3)


def test_positional_only_keyword_only_and_rest():
    def f(a, b=2, /, c=3, *, d, **rest: float):
        return (a, b, c, d, rest)

    definition = define(f)
    payload = definition.bind((1,), {"c": 5, "d": 4, "z": 1.5})
    assert definition.call(definition.unbind(payload)) == (1, 2, 5, 4, {"z": 1.5})
    with pytest.raises(InvalidArgumentsError):
        definition.bind((), {"a": 1, "d": 4})
    with pytest.raises(InvalidArgumentsError, match=r"\$\.z"):
        definition.bind((1,), {"d": 4, "z": "x"})


@pytest.mark.parametrize("payload", ["[]", "1", "null", '"x"'])
def test_a_payload_that_is_no_object_is_refused(payload):
    with pytest.raises(InvalidPayloadError):
        define(lambda: None, name="f").unbind(payload)


def test_a_payload_that_python_can_not_read_is_refused():
    def f(a): ...

    for payload in ('{"a": 1e400}', '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"):
        with pytest.raises(InvalidPayloadError):
            define(f).unbind(payload)


def test_results_are_written_and_read_by_the_return_annotation():
    def f() -> dict[dt.date, int]:
        return {}

    definition = define(f)
    assert definition.encode_result({dt.date(2030, 1, 1): 5}) == '{"2030-01-01":5}'
    assert definition.decode_result('{"2030-01-01":5}') == {dt.date(2030, 1, 1): 5}
    assert definition.encode_result(None) is None
    for bad in (float("nan"), object(), {"x": {1}}, "text"):
        with pytest.raises(NotJsonError):
            definition.encode_result(bad)


def test_a_result_that_is_not_json_is_refused_with_its_path():
    def f(): ...

    for bad in ({"a": float("nan")}, {"a": "\0"}, {"a": "\ud800"}, {"a": object()}):
        with pytest.raises(NotJsonError, match=r"^\$\.a"):
            define(f).encode_result(bad)


class Holder:
    def method(self, a: int): ...

    @classmethod
    def of_class(cls): ...

    @staticmethod
    def static(a: int) -> int:
        return a


def _generator():
    yield 1


async def _async_generator():
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Holder.method, "method"),
        (Holder().method, "bound method"),
        (Holder.of_class, "bound method"),
        (Holder.__dict__["static"], "staticmethod"),
        (_generator, "generator"),
        (_async_generator, "generator"),
        (lambda *args: None, r"\*args"),
        (lambda: None, "lambda has no name"),
        (functools.partial(print), "no function"),
        (print, "no function"),
        (Holder, "no function"),
    ],
)
def test_what_can_not_be_a_task_is_refused_with_the_reason(function, message):
    with pytest.raises(InvalidTaskError, match=message):
        define(function)


def test_a_static_method_below_its_decorator_is_a_function():
    assert define(Holder.static).name == "static"


def test_where_a_function_runs_follows_from_its_kind():
    async def a(): ...
    def b(): ...

    assert (define(a).run_in, define(b).run_in) == ("loop", "thread")
    assert (define(a, run_in="process").run_in, define(b, run_in="process").run_in) == ("process", "process")
    for function, place in ((a, "thread"), (b, "loop"), (a, "moon")):
        with pytest.raises(InvalidTaskError, match=r"can not run in"):
            define(function, run_in=place)  # type: ignore[arg-type]


def test_C015_zero_none_and_unset_differ_in_the_policy():
    def f(): ...

    assert define(f).policy.max_retries is None
    assert define(f, max_retries=0).policy.max_retries == 0
    assert define(f, priority=0).policy.priority == 0
    with pytest.raises(InvalidOptionError, match="timeout"):
        define(f, timeout=0)


def test_the_policy_is_what_the_decorator_said():
    def f():
        """Send a mail.

        And more.
        """

    policy = define(
        f, queue="mail", priority=1, max_retries=5, timeout=dt.timedelta(minutes=1), retry=RetryPolicy(base=2)
    ).policy
    assert (policy.queue, policy.priority, policy.max_retries, policy.timeout_seconds) == ("mail", 1, 5, 60)
    assert policy.retry_policy == {"base": 2}
    assert policy.description == "Send a mail."


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 10}, {"priority": -1}, {"priority": True}, {"priority": 1.5},
        {"max_retries": -1}, {"max_retries": 1001}, {"max_retries": "3"},
        {"timeout": -1}, {"timeout": float("nan")}, {"timeout": 32 * 86_400}, {"timeout": "30"},
        {"tags": "one"}, {"tags": ["x"] * 51}, {"retry": 3}, {"retry": {"base": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_options_out_of_bounds_are_refused(options):
    def f(): ...

    with pytest.raises(InvalidOptionError):
        define(f, **options)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\0", "\ud800", 5, "\x85"])
def test_names_that_are_no_names_are_refused(name):
    def f(): ...

    with pytest.raises(InvalidNameError):
        define(f, name=name)
    with pytest.raises(InvalidNameError):
        define(f, queue=name)


def test_an_option_that_does_not_exist_is_refused_by_the_signature():
    with pytest.raises(TypeError, match="colour"):
        define(lambda: None, name="f", colour=3)  # type: ignore[call-arg]


def test_unnamed_results_of_void_functions_pass():
    def f() -> None: ...

    assert define(f).encode_result({"a": 1}) == '{"a":1}'


def test_arguments_that_do_not_fit_are_told_with_what_the_function_takes():
    def send(context: Context, user_id: int, name: "str" = "Ann", **more: float): ...

    definition = define(send)
    with pytest.raises(InvalidArgumentsError, match="missing argument 'user_id'") as caught:
        definition.unbind("{}")
    assert caught.value.hint == (
        "The task was enqueued for another version of the function, or the call was wrong."
        " It takes: user_id: int, name: str = 'Ann', **more: float."
    )

    def plain(): ...

    with pytest.raises(InvalidArgumentsError, match="It takes: nothing"):
        define(plain).unbind('{"usr": 1}')


def test_a_signature_reads_as_in_the_source_also_where_annotations_are_text():
    module = """from __future__ import annotations
import datetime as dt
def send(user_id: int, at: dt.date | None = None, how: str = 'mail', /, **more: list[str]) -> str: ...
"""
    names: dict[str, typing.Any] = {"__name__": "shop"}
    exec(compile(module, "shop.py", "exec"), names)  # noqa: S102 - this module has its annotations as objects
    definition = define(names["send"])
    said = "send(user_id: int, at: dt.date | None = None, how: str = 'mail', /, **more: list[str]) -> str"
    assert definition.signature == said
    with pytest.raises(InvalidArgumentsError) as caught:
        definition.bind((), {})
    assert caught.value.message == f"{said} needs 'user_id'"
    with pytest.raises(InvalidArgumentsError) as caught:
        definition.unbind("{}")
    assert caught.value.message == f"missing argument 'user_id': {said} needs it"
    assert (
        "It takes: user_id: int, at: dt.date | None = None, how: str = 'mail', **more: list[str]." in caught.value.hint
    )


def test_a_value_that_does_not_fit_its_annotation_is_a_wrong_argument_and_one_without_a_form_is_no_json():
    def send(user_id: int, tags: list[str], extra: object = None): ...

    with pytest.raises(InvalidArgumentsError, match=r"^\$\.user_id: an int was expected, not str 'x'") as caught:
        define(send).bind(("x", []), {})
    assert caught.value.hint == "Pass an int. Nothing was enqueued."
    with pytest.raises(InvalidArgumentsError, match=r"^\$\.tags\[1\]: a str"):
        define(send).bind((1, ["a", 2]), {})
    for bad in (object(), float("nan"), {None: 1}):
        with pytest.raises(NotJsonError, match=r"^\$\.extra"):
            define(send).bind((1, [], bad), {})


@pytest.mark.parametrize("place", ["loop", "thread", "process"])
def test_a_task_is_transactional_wherever_it_runs(place):
    async def a(): ...
    def b(): ...

    function = b if place == "thread" else a
    assert define(function, run_in=place, transactional=True).transactional
    with pytest.raises(InvalidTaskError, match="can not be transactional='yes'"):
        define(function, run_in=place, transactional="yes")  # type: ignore[arg-type]
