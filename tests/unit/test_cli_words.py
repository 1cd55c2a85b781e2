"""What people type and read: durations, moments, payloads, queue limits, tables."""

import json
import sys
from datetime import UTC, datetime

import click
import pytest

from octop.cli.columns import Column, fitted, short_ids, width_of
from octop.cli.moments import DURATION, MOMENT, between, brief, shortened, spoken
from octop.cli.output import Output, clean, shown
from octop.cli.payload import payload_from
from octop.cli.program import typed_name
from octop.cli.queues import COLUMNS as QUEUE_COLUMNS
from octop.cli.root import root
from octop.cli.task_ids import TASK_ID, TASK_REFERENCE
from octop.cli.tasks.list import COLUMNS as TASK_COLUMNS
from octop.cli.worker import QueueLimits, merged_queues
from octop.cli.workers import COLUMNS as WORKER_COLUMNS
from octop.model.errors import ConfigurationError, InvalidPayloadError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("0.5", 0.5), ("500ms", 0.5), ("5m", 300), ("1h30m", 5400), ("2d", 172_800)]
)
def test_a_duration_is_read_as_people_write_it(text, seconds):
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["-1", "soon", "", "1 fortnight", "nan", "inf", "5m junk"])
def test_a_duration_that_is_none_is_refused(text):
    with pytest.raises(click.BadParameter, match="not a length of time"):
        DURATION.convert(text, None, None)


def test_a_moment_needs_a_zone():
    assert MOMENT.convert("2030-01-31 09:00+08:00", None, None) == "2030-01-31T09:00:00+08:00"
    assert MOMENT.convert("2030-01-31T01:00:00Z", None, None) == "2030-01-31T01:00:00+00:00"
    with pytest.raises(click.BadParameter, match="names no zone"):
        MOMENT.convert("2030-01-31T09:00:00", None, None)
    with pytest.raises(click.BadParameter, match="is not a moment"):
        MOMENT.convert("tomorrow", None, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0021, "2.1 ms"),
        (0.25, "250 ms"),
        (12.34, "12.3 s"),
        (60, "1m"),
        (90, "1m 30s"),
        (3599, "59m 59s"),
        (3700, "1h 1m"),
        (86_399, "23h 59m"),
        (200_000, "2d 7h"),
        (30, "30 s"),
        (-5, "-5 s"),
    ],
)
def test_a_duration_is_spoken_in_at_most_two_units(seconds, text):
    assert spoken(seconds) == text


def test_moments_of_the_database_are_compared_and_shortened():
    earlier, later = "2030-01-31T09:00:00.25+00:00", "2030-01-31T10:00:01.5+01:00"
    assert between(earlier, later) == 1.25
    assert between(None, later) is None
    assert shortened(earlier) == "2030-01-31 09:00:00+00:00"
    assert shortened(None) == "-"


@pytest.mark.parametrize(
    ("words", "payload"),
    [
        ([], {}),
        (['{"a": [1, null]}'], {"a": [1, None]}),
        (["n=3", "name=Ann", "ok=true", "x=[1,2]", 'text="42"', "empty="], None),
        (["equation=a=b"], {"equation": "a=b"}),
    ],
)
def test_a_payload_is_json_or_words(words, payload):
    if payload is None:
        payload = {"n": 3, "name": "Ann", "ok": True, "x": [1, 2], "text": "42", "empty": ""}
    assert json.loads(payload_from(words)) == payload


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["[1, 2]"], "must be a JSON object, not list"),
        (['{"a": NaN}'], "NaN has no JSON form"),
        (["a=Infinity"], "Infinity has no JSON form"),
        (['{"a": '], "not JSON"),
        (["hello"], "neither JSON nor key=value"),
        (["a=1", "a=2"], "comes twice"),
        (['{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"], "nested too deeply"),
    ],
)
def test_a_payload_that_is_none_is_refused(words, says):
    with pytest.raises(InvalidPayloadError, match=says):
        payload_from(words)


def test_queues_with_limits_are_put_together():
    read = QueueLimits().convert
    assert merged_queues((read("mail=5,reports=2", None, None), read("slow", None, None))) == {
        "mail": 5,
        "reports": 2,
        "slow": None,
    }
    assert merged_queues(()) is None
    assert merged_queues((read("a=b=3", None, None),)) == {"a=b": 3}
    with pytest.raises(ConfigurationError, match="named twice"):
        merged_queues((read("mail=5", None, None), read("mail=6", None, None)))
    for wrong in ("mail=five", "=5", "", "mail=-1", "mail=0", "mail=10001"):
        with pytest.raises(click.BadParameter):
            read(wrong, None, None)


def test_without_a_terminal_a_table_is_plain_aligned_text(capsys):
    Output(as_json=False, plain=False, quiet=False).table(
        [Column("name"), Column("n", right=True)], [["a\x1b[31m\n", 12_345], [None, 7]]
    )
    assert capsys.readouterr().out.splitlines() == [
        "name                n",
        "a\\x1b[31m\\x0a  12,345",
        "-                   7",
    ]


def test_json_is_one_line_without_a_terminal(capsys):
    Output(as_json=True, plain=False, quiet=False).json({"a": ["é"]})
    assert capsys.readouterr().out == '{"a": ["é"]}\n'


def test_passwords_are_masked_in_messages(capsys):
    output = Output(as_json=False, plain=False, quiet=False)
    output.say("postgresql://ann:secret@db/octop")
    output.warn("host=db password=secret")
    assert "secret" not in capsys.readouterr().err


def test_quiet_silences_messages_but_not_warnings(capsys):
    output = Output(as_json=False, plain=False, quiet=True)
    output.say("nothing")
    output.warn("something")
    assert capsys.readouterr().err == "octop: something\n"


def test_values_are_shown_as_people_read_them():
    assert [shown(each) for each in (None, True, 1_234, 0.5, ["a", "b"], {"a": 1}, "")] == [
        "-",
        "yes",
        "1,234",
        "0.5",
        "a, b",
        '{"a": 1}',
        "-",
    ]
    assert clean("tab\tbell\x07") == "tab\\x09bell\\x07"


# --- tables in a terminal ---------------------------------------------------------------------------------------------

TASK_ROW = [
    "0199a3f0-1111-7000-8000-0123456789ab",
    "send_the_welcome_mail",
    "default",
    "pending",
    "5",
    "2030-01-31 09:00:00+00:00",
    "0",
    "ConnectionError: the server has hung up",
]


def drawn(columns, rows, width):
    return ["".join(f"{cell} " for cell in line).rstrip() for line in fitted(columns, rows, width).lines()]


def test_a_table_that_fits_stays_as_it_is():
    found = fitted(TASK_COLUMNS, [TASK_ROW], 200)
    assert (found.headings, found.gap) == ([each.name for each in TASK_COLUMNS], 2)
    assert [line.strip() for line in found.lines()[1]] == TASK_ROW


@pytest.mark.parametrize("width", [80, 90, 100, 120])
def test_in_a_narrow_terminal_the_type_stays_whole_and_the_error_and_at_last_the_id_are_cut(width):
    lines = drawn(TASK_COLUMNS, [TASK_ROW], width)
    assert max(map(width_of, lines)) <= width
    assert lines[1].startswith(f"{TASK_ROW[0] if width > 100 else TASK_ROW[0][:13]} {TASK_ROW[1][:18]}")
    assert "pending" in lines[1]
    assert lines[1].endswith("…")
    assert "UTC" in lines[0].split()
    assert "2030-01-31 0" not in lines[1]


def test_short_ids_are_long_enough_to_tell_them_apart():
    one, other = "0199a3f0-1111-7000-8000-0123456789ab", "0199a3f0-1111-7000-9000-0123456789ab"
    assert short_ids([one, one]) == ["0199a3f0-1111"] * 2
    assert short_ids([one, other]) == ["0199a3f0-1111-7000-8", "0199a3f0-1111-7000-9"]


def test_since_a_day_is_answered_with_the_word_of_a_filter():
    option = click.Option(["--since"], type=DURATION)
    with pytest.raises(click.BadParameter, match=r"5m, 1h30m or 2d; from a day on: created:yesterday"):
        DURATION.convert("yesterday", option, None)
    with pytest.raises(click.BadParameter, match="2d$"):
        DURATION.convert("yesterday", None, None)


def test_a_brief_moment_says_its_day_unless_it_is_today():
    now = datetime.now(UTC)
    assert brief(shortened(now.isoformat())) in {f"{now:%H:%M:%S}", f"{now:%m-%d %H:%M}"}  # at midnight
    other = now.replace(month=1 if now.month > 6 else 12, day=3)
    assert brief(shortened(other.isoformat())) == f"{other:%m-%d %H:%M}"
    assert brief("-") == "-"


def test_columns_that_say_nothing_leave_first():
    row = [*TASK_ROW[:-1], "-"]
    row[1] = "send_welcome"
    head, line = drawn(TASK_COLUMNS, [row], 80)
    assert "error" not in head
    assert "2030-01-31" in line
    assert drawn(TASK_COLUMNS, [], 80) == drawn(TASK_COLUMNS, [], 200)


@pytest.mark.parametrize("width", [80, 60])
def test_queues_and_workers_fit(width):
    queue = ["a_queue_of_some_length", "1,234,567", "1,234,567", "100", "0", "12h 30m", "100", "12", "the night shift"]
    worker = ["one", "0199a3f0-1111", "a-host-with-a-long-name", "123456", "default, mail, reports", "12"]
    worker += ["999 ms", "1h 1m", "alive"]
    for columns, row in ((QUEUE_COLUMNS, queue), (WORKER_COLUMNS, worker)):
        lines = drawn(columns, [row], width)
        assert max(map(width_of, lines)) <= width
        assert lines[1].split()[0] == row[0]


def test_wide_characters_take_two_places():
    columns = [Column("name", width_min=5), Column("id")]
    head, line = drawn(columns, [["邮件邮件邮件", "12345678"]], 15)
    assert width_of(line) <= 15
    assert line.startswith("邮件")
    assert line.endswith("…  12345678")
    assert width_of(head[: head.index("id")]) == width_of(line[: line.index("1")])


def test_an_id_may_be_given_by_its_beginning():
    assert TASK_REFERENCE.convert("0199A3F0-11", None, None) == "0199a3f011"
    assert TASK_REFERENCE.convert(TASK_ROW[0].upper(), None, None) == TASK_ROW[0]
    for wrong in ("0199a3f", "nonsense!", "", "0199a3f0-1111-7000-8000-0123456789abcd"):
        with pytest.raises(click.BadParameter):
            TASK_REFERENCE.convert(wrong, None, None)
    with pytest.raises(click.BadParameter):
        TASK_ID.convert("0199a3f0", None, None)


@pytest.mark.parametrize(
    ("found", "started", "typed"),
    [
        ("/usr/bin/octop", "/usr/bin/octop", "octop"),
        ("/usr/bin/octop", "octop", "octop"),
        ("/usr/bin/octop", ".venv/bin/octop", ".venv/bin/octop"),  # another installation comes first on the PATH
        ("/usr/bin/octop", "/x/octop/__main__.py", "octop"),
        (None, "/venv/bin/octop", "/venv/bin/octop"),
        (None, "/x/octop/__main__.py", f"{sys.executable} -m octop"),
        (None, "pytest", "octop"),
        ("/usr/bin/octop-scheduler", "/usr/bin/octop-scheduler", "octop-scheduler"),
        (None, "/venv/bin/octop-scheduler", "/venv/bin/octop-scheduler"),
    ],
)
def test_what_to_type_next_can_be_typed(found, started, typed, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: found)
    monkeypatch.setattr(sys, "argv", [started])
    assert typed_name() == typed


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (("worker", "dev"), {"queues", "concurrency"}),
        (("tasks list", "tasks export", "failures"), {"words", "status", "queue", "task_type", "tenant"}),
    ],
)
def test_commands_that_take_the_same_take_it_in_the_same_words(names, shared):
    taken = []
    for name in names:
        command: click.Command | None = root
        for word in name.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None
        found = {each.name: each.to_info_dict() for each in command.params}
        taken.append({each: found[each] for each in shared})
    assert all(each == taken[0] for each in taken)
