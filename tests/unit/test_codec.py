import dataclasses
import datetime as dt
import enum
import math
import re
import threading
import typing
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath

import pytest

from octop.model.codec import codec_for, decode, encode
from octop.model.errors import InvalidArgumentsError, InvalidPayloadError, InvalidTimeError, NotJsonError
from octop.model.json_text import from_text

MOMENT = dt.datetime(2030, 1, 31, 9, tzinfo=dt.timezone(dt.timedelta(hours=8)))
ID = uuid.UUID("0199f3a0-0000-7000-8000-000000000001")


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Permission(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Tree:
    name: str
    planted: dt.date
    children: "list[Tree]" = dataclasses.field(default_factory=list)
    height: float | None = None


@dataclasses.dataclass
class Taller(Tree):
    extra: int = 0


class Point(typing.NamedTuple):
    x: int
    y: int = 0


class Movie(typing.TypedDict, total=False):
    title: typing.Required[str]
    released: dt.date


class Model:
    """What pydantic's models look like from outside."""

    def __init__(self, day: dt.date) -> None:
        self.day = day

    def __eq__(self, other):
        return isinstance(other, Model) and other.day == self.day

    __hash__ = None  # type: ignore[assignment] # what a dataclass does

    @classmethod
    def model_validate(cls, value):
        if not isinstance(value, dict) or set(value) != {"day"}:
            raise ValueError("no day")
        return cls(dt.date.fromisoformat(value["day"]))

    def model_dump(self, *, mode, by_alias, round_trip):
        assert (mode, by_alias, round_trip) == ("json", True, True)
        return {"day": self.day.isoformat()}


UserId = typing.NewType("UserId", int)


class Celsius(float):
    pass


ROUND_TRIPS = [
    (1, int, "1"),
    (2**80, int, str(2**80)),
    (True, bool, "true"),
    (1.5, float, "1.5"),
    ("ü€😀", str, '"ü€😀"'),
    (None, None, "null"),
    (None, int | None, "null"),
    (7, typing.Optional[int], "7"),  # noqa: UP045 - the old form is what many write
    (dt.date(2030, 1, 31), dt.date, '"2030-01-31"'),
    (MOMENT, dt.datetime, '"2030-01-31T09:00:00+08:00"'),
    (dt.time(9, 30), dt.time, '"09:30:00"'),
    (dt.timedelta(hours=1, microseconds=5), dt.timedelta, "3600.000005"),
    (ID, uuid.UUID, f'"{ID}"'),
    (Decimal("1.10"), Decimal, '"1.10"'),
    (b"\x00\xff", bytes, '"AP8="'),
    (PurePosixPath("/tmp/a"), PurePosixPath, '"/tmp/a"'),
    (Path("a"), Path, '"a"'),
    (Colour.RED, Colour, '"red"'),
    (Colour.BLUE, Colour, "2"),
    (Level.HIGH, Level, "2"),
    (Permission.READ | Permission.WRITE, Permission, "3"),
    ([1, 2], list[int], "[1,2]"),
    ((1, "a"), tuple[int, str], '[1,"a"]'),
    ((1, 2, 3), tuple[int, ...], "[1,2,3]"),
    ((), tuple[()], "[]"),
    ({3, 1, 2}, set[int], "[1,2,3]"),
    (frozenset({dt.date(2030, 1, 1)}), frozenset[dt.date], '["2030-01-01"]'),
    ([1], Sequence[int], "[1]"),
    ({"a": dt.date(2030, 1, 1)}, dict[str, dt.date], '{"a":"2030-01-01"}'),
    ({"a": 1}, Mapping[str, int], '{"a":1}'),
    ({1: "a"}, dict[int, str], '{"1":"a"}'),
    ({ID: 1}, dict[uuid.UUID, int], f'{{"{ID}":1}}'),
    ({dt.date(2030, 1, 1): 1}, dict[dt.date, int], '{"2030-01-01":1}'),
    ({Colour.RED: 1, Colour.BLUE: 2}, dict[Colour, int], '{"red":1,"2":2}'),
    (Tree("a", dt.date(2030, 1, 1), [Tree("b", dt.date(2031, 1, 1))]), Tree, None),
    (Point(1, 2), Point, '{"x":1,"y":2}'),
    ({"title": "x", "released": dt.date(2030, 1, 1)}, Movie, '{"title":"x","released":"2030-01-01"}'),
    ("fast", typing.Literal["fast", "slow"], '"fast"'),
    (5, typing.Annotated[int, "a unit"], "5"),
    (5, typing.Annotated[int, []], "5"),
    (5, UserId, "5"),
    (dt.date(2030, 1, 1), dt.date | str, '"2030-01-01"'),
    ("no date", dt.date | str, '"no date"'),
    (5, int | str, "5"),
    ("5", int | str, '"5"'),
    (True, bool | int, "true"),
    (1, bool | int, "1"),
    (Model(dt.date(2030, 1, 1)), Model, '{"day":"2030-01-01"}'),
    ([Model(dt.date(2030, 1, 1))], list[Model], '[{"day":"2030-01-01"}]'),
    (Celsius(1.5), Celsius, "1.5"),
]


def named(value):
    """Name a case without the addresses in its repr: all processes of a run must name it alike."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:40]


@pytest.mark.parametrize(("value", "annotation", "text"), ROUND_TRIPS, ids=named)
def test_a_value_comes_back_as_the_type_of_its_annotation(value, annotation, text):
    written = encode(value, annotation)
    assert text is None or written == text
    back = decode(written, annotation)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("form", "annotation", "value"),
    [
        ("2030-01-31", dt.date, dt.date(2030, 1, 31)),
        (str(ID), uuid.UUID, ID),
        ("red", Colour, Colour.RED),
        ({"name": "a", "planted": "2030-01-01"}, Tree, Tree("a", dt.date(2030, 1, 1))),
        (3, Decimal, Decimal(3)),
    ],
)
def test_the_json_form_of_a_value_is_taken_as_well(form, annotation, value):
    assert decode(encode(form, annotation), annotation) == value


def test_without_an_annotation_rich_values_are_written_as_text_and_come_back_plain():
    assert decode(encode({"day": dt.date(2030, 1, 31), "ids": {ID}, 7: (1, 2)})) == {
        "day": "2030-01-31",
        "ids": [str(ID)],
        "7": [1, 2],
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_C043_not_a_number_is_refused_with_its_path(value):
    with pytest.raises(NotJsonError, match=r"^\$\.user\.scores\[1\]: -?(nan|inf) is not JSON"):
        encode({"user": {"scores": [1.0, value]}})
    with pytest.raises(NotJsonError):
        encode(value, float)
    with pytest.raises(NotJsonError):
        encode(Decimal(value), Decimal)


def test_C043_minus_zero_is_a_number():
    assert decode(encode(-0.0, float), float) == 0.0


def test_C043_a_number_that_jsonb_takes_and_python_reads_as_infinity_is_refused():
    for text in ("1e400", '{"a": [-1e400]}', "NaN", "Infinity"):
        with pytest.raises(InvalidPayloadError):
            from_text(text)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a\0", r"\$"),
        ({"a": ["b", "c\0"]}, r"\$\.a\[1\]"),
        ({"k\0": 1}, r"\$\['k\\x00'\]"),
        ({"a b": {"x": "\0"}}, r"\$\['a b'\]\.x"),
    ],
)
def test_C041_nul_is_refused_with_its_path(value, path):
    with pytest.raises(NotJsonError, match=f"^{path}: .*NUL"):
        encode(value)


def test_C041_the_six_characters_of_its_escape_are_text():
    assert decode(encode({"a": "\\u0000", "b": "\\\\u0000"})) == {"a": "\\u0000", "b": "\\\\u0000"}


def test_a_lone_surrogate_is_refused_with_its_path():
    with pytest.raises(NotJsonError, match=r"^\$\.names\[0\]: .*surrogate"):
        encode({"names": ["\ud800"]})
    with pytest.raises(NotJsonError, match="surrogate"):
        encode({"\udfff": 1})


def test_C036_a_naive_datetime_is_refused_on_both_ways():
    naive = dt.datetime(2030, 1, 1)
    for value, annotation, path in [
        (naive, dt.datetime, r"\$"),
        ({"at": [naive]}, typing.Any, r"\$\.at\[0\]"),
        (naive, dt.datetime | None, r"\$"),
    ]:
        with pytest.raises(InvalidTimeError, match=f"^{path}: .*naive"):
            encode(value, annotation)
    with pytest.raises(InvalidTimeError, match="no zone"):
        decode('"2030-01-01T00:00:00"', dt.datetime)
    assert decode('"2030-01-01T00:00:00Z"', dt.datetime) == dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def test_too_deep_and_circular_values_are_refused():
    deep: list = []
    for _ in range(250):
        deep = [deep]
    endless: list = []
    endless.append(endless)
    around: dict = {}
    around["self"] = around
    for value in (deep, endless, around):
        with pytest.raises(NotJsonError, match="level|contains itself"):
            encode(value)
    with pytest.raises(InvalidPayloadError, match="deep"):
        from_text("[" * 100_000)


def test_two_hundred_levels_and_many_brackets_pass():
    deep: list = []
    for _ in range(190):
        deep = [deep]
    assert decode(encode(deep)) == deep
    wide: list = [[] for _ in range(5_000)]
    assert decode(encode(wide)) == wide


def test_large_integers_pass_and_absurd_ones_are_refused():
    assert decode(encode(2**64)) == 2**64
    with pytest.raises(NotJsonError, match=r"^\$\.n: .*4,300 digits"):
        encode({"n": 10**5000})
    with pytest.raises(InvalidPayloadError):
        from_text("9" * 5_000)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("abc", int),
        (1.5, int),
        (True, float),
        (5, str),
        (b"x", str),
        ("2030-13-01", dt.date),
        (MOMENT, dt.date),
        ("x", uuid.UUID),
        ("green", Colour),
        ([1], tuple[int, int]),
        ({"a": 1}, dict[int, int]),
        ("abc", list[str]),
        ({"title": 1}, Movie),
        ({}, Movie),
        ({"title": "x", "unknown": 1}, Movie),
        ({"name": "a"}, Tree),
        ({"name": "a", "planted": "2030-01-01", "odd": 1}, Tree),
        (Taller("a", dt.date(2030, 1, 1)), Tree),
        ("medium", typing.Literal["fast", "slow"]),
        (object(), typing.Any),
        ({1: 1, "1": 2}, typing.Any),
        ({None: 1}, typing.Any),
        ({True: 1}, typing.Any),
        ({1.5: 1}, typing.Any),
        (1 + 2j, typing.Any),
        (lambda: 1, typing.Any),
        (object(), object),
        ("2030-01-01", dt.date | str),
        ({"day": 1, "more": 2}, Model),
    ],
    ids=named,
)
def test_what_is_not_of_the_annotated_type_is_refused_when_it_is_written(value, annotation):
    with pytest.raises(NotJsonError, match=r"^\$"):
        encode(value, annotation)


@pytest.mark.parametrize(
    ("text", "annotation", "message"),
    [
        ('"x"', int, "an int was expected, not str 'x'"),
        ("true", int, "an int"),
        ('{"name": "a"}', Tree, "Tree needs the field 'planted'"),
        ('{"name": "a", "planted": "2030-01-01", "children": [{"name": 1}]}', Tree, r"\$\.children\[0\]: Tree needs"),
        ('{"a": [1, "x"]}', dict[str, list[int]], r"\$\.a\[1\]: an int"),
        ("[[1]]", set[list], "hashable"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_read(text, annotation, message):
    with pytest.raises(InvalidArgumentsError, match=message):
        decode(text, annotation)


def test_a_number_for_text_is_refused_with_how_text_is_written_on_a_command_line():
    with pytest.raises(InvalidArgumentsError, match="a str was expected, not int 7") as caught:
        decode('{"zip": 7}', dict[str, str])
    assert caught.value.hint.endswith("""text keeps double quotes: zip='"42"'.""")
    for text, annotation in (('{"tags": [7]}', dict[str, list[str]]), ('{"zip": "7"}', dict[str, int])):
        with pytest.raises(InvalidArgumentsError) as caught:
            decode(text, annotation)
        assert "double quotes" not in caught.value.hint


def test_C123_a_fault_in_a_decoder_of_the_user_stays_what_it_is():
    @dataclasses.dataclass
    class Faulty:
        n: int

        def __post_init__(self):
            if self.n == 1:
                raise ImportError("the real cause")
            if self.n == 2:
                raise ValueError("two is refused")
            raise SystemExit(3)

    with pytest.raises(ImportError, match="the real cause"):
        decode('{"n": 1}', Faulty)
    with pytest.raises(InvalidArgumentsError, match="two is refused") as caught:
        decode('{"n": 2}', Faulty)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(SystemExit):
        decode('{"n": 3}', Faulty)


def test_a_value_whose_repr_raises_is_refused_like_any_other():
    class Shy:
        def __repr__(self):
            raise RuntimeError("no")

    with pytest.raises(NotJsonError, match="unprintable"):
        encode(Shy(), int)


def test_equal_sets_have_one_text():
    words = {"b", "a", "c"}
    assert encode(words) == '["a","b","c"]'


def test_an_unknown_class_is_refused_by_name_and_only_when_a_value_comes():
    class Client:
        pass

    assert encode(None, Client | None) == "null"
    with pytest.raises(NotJsonError, match="Client"):
        encode(Client(), Client | None)


def test_the_codec_of_an_annotation_is_built_once():
    assert codec_for(list[int]) is codec_for(list[int])


def test_a_class_that_two_threads_meet_first_is_complete_for_both():
    for number in range(20):
        made = dataclasses.make_dataclass(f"Made{number}", [("day", dt.date), ("tags", list[set[uuid.UUID]])])
        begin = threading.Barrier(4)
        faults: list[BaseException] = []

        def meet(made=made, begin=begin, faults=faults):
            begin.wait()
            try:
                assert decode('{"day": "2030-01-01", "tags": []}', made) == made(dt.date(2030, 1, 1), [])
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=meet) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults
