"""The arithmetic of the benchmarks, and their command lines. No server is started, and no contender."""

import difflib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import octop
from benchmarks import __main__ as everything
from benchmarks import bench_notify, bench_processes, report, script
from benchmarks.answer import Answer, Line, number
from benchmarks.contender import Arena, ContenderError, percentile, rounds
from benchmarks.peers.peer import CONTENDERS, INSIDE, OCTOP, PEERS, named
from benchmarks.peers.programs import contest
from benchmarks.script import Extent
from benchmarks.server import Server

BY_NAME = {peer.name: peer for peer in CONTENDERS}
FAST, SLOW = BY_NAME["graphile-worker"], BY_NAME["saq"]


# What is printed


def lines(better, *values):
    found = [Line(name, value) for name, value in zip(("ours", "theirs", "others"), values, strict=True)]
    return Answer("Question", "tasks/s", base="ours", better=better, lines=found)


@pytest.mark.parametrize(
    ("better", "ratios"), [("more", [1.0, 4.0, 0.5]), ("less", [1.0, 0.25, 2.0])], ids=["more", "less"]
)
def test_a_ratio_above_one_says_that_the_base_is_better_whichever_way_is_good(better, ratios):
    answer = lines(better, 100.0, 25.0, 200.0)
    assert [answer.ratio(line) for line in answer.lines] == ratios
    assert [line["ratio"] for line in answer.json()["lines"]] == ratios


@pytest.mark.parametrize("values", [(0.0, 5.0, 5.0), (5.0, 0.0, 0.0)], ids=["no base", "no value"])
def test_nothing_is_compared_with_nothing(values):
    answer = lines("more", *values)
    assert answer.ratio(answer.lines[1]) is None
    answer.base = "nobody"
    assert answer.ratio(answer.lines[0]) is None
    assert " x" not in "\n".join(answer.text()[1:])


def test_text_has_a_line_for_each_with_ratio_spread_and_who_is_absent():
    answer = lines("more", 1000.0, 250.0, 1.5)
    answer.lines[1].samples = [260.0, 240.0, 250.0]
    answer.lines[1].more = {"p99": 3.25}
    answer.lines[2].note = "no bulk call"
    answer.absent = {"saq": "no network"}
    head, ours, theirs, others, saq = answer.text()
    assert head.startswith("Question  [tasks/s; ")
    assert ours.split() == ["ours", "1,000", "1.00", "x"]
    assert theirs.split() == ["theirs", "250", "4.00", "x", "[240", "to", "260]", "p99", "3.25"]
    assert others.endswith("no bulk call")
    assert saq.split(maxsplit=1) == ["saq", "not measured: no network"]


def test_a_page_of_markdown_has_as_many_cells_in_every_row():
    answer = lines("less", 10.0, 20.0, 5.0)
    answer.rule = "By this rule."
    answer.lines[0].more = {"p99": 1.0}
    answer.lines[2].more = {"max": 2.0}
    answer.absent = {"saq": "no network"}
    page = answer.markdown()
    table = [line for line in page if line.startswith("|")]
    assert page[:3] == ["## Question", "", "By this rule."]
    assert len(table) == 2 + 3
    assert {line.count("|") for line in table} == {8}
    assert table[0] == "|  | tasks/s | lowest to highest | ours is better by | p99 | max |  |"
    assert table[3] == "| theirs | 20.0 |  | 2.00 × |  |  |  |"
    assert "Not measured: saq (no network)." in page


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (99.94, "99.9"), (123456.7, "123,457")]
)
def test_a_number_has_no_more_digits_than_it_is_worth(value, text):
    assert number(value) == text
    assert number(-value) == ("-" + text if value else text)


def test_a_report_says_where_and_of_what_and_its_json_can_be_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "commit", lambda: "abc with changes")
    found = report.Report(full=False, server={"version": "18.0", "fsync": "off"})
    found.add("drain", [lines("more", 100.0, 25.0, 200.0)])
    found.failed["growth"] = "RuntimeError: no"
    page = found.write(tmp_path)
    text, data = page.read_text(), json.loads(page.with_suffix(".json").read_text())
    assert page.name.endswith("-short.md")
    assert "(short form)" in text.splitlines()[0]
    assert "- postgresql: version 18.0, fsync off" in text
    assert "- commit: abc with changes" in text
    assert "## Question" in text
    assert "- growth: RuntimeError: no" in text
    assert data["about"]["octop"] == octop.__version__
    assert data["about"]["peers"].keys() == {peer.name for peer in PEERS} | {"node"}
    assert data["answers"]["drain"][0]["lines"][1]["ratio"] == 4.0


def test_a_run_may_add_to_what_another_has_found_on_this_day(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "commit", lambda: "first")
    first = report.Report(full=True, server={})
    first.add("drain", [lines("more", 100.0, 25.0, 200.0)])
    first.add("growth", [lines("less", 1.0, 2.0, 3.0)])
    first.texts["Start"] = "text"
    first.write(tmp_path)
    monkeypatch.setattr(report, "commit", lambda: "second")
    second = report.Report(full=True, server={})
    second.add_to_earlier(tmp_path)
    second.add("drain", [lines("more", 300.0, 25.0, 200.0)])
    data = json.loads(second.write(tmp_path).with_suffix(".json").read_text())
    assert list(data["answers"]) == ["growth", "drain"]
    assert data["answers"]["growth"] == [answer.json() for answer in first.answers["growth"]]
    assert data["answers"]["drain"][0]["lines"][0]["value"] == 300.0
    assert [said.partition(",")[0] for said in data["measured"].values()] == ["first", "second"]
    assert data["texts"] == {"Start": "text"}


# Who takes part, and with how much


def test_those_asked_for_take_part_if_they_fit_the_question():
    assert Extent().peers([OCTOP, FAST]) == [OCTOP, FAST]
    assert Extent(only="saq,octop").peers([OCTOP, FAST, SLOW]) == [SLOW, OCTOP]
    assert Extent(only="saq,octop").peers([OCTOP, FAST]) == [OCTOP]


def test_a_name_that_nobody_has_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"no contender is called sax; there are octop, .*saq"):
        named("octop,sax")
    assert named("") == named(None) == list(CONTENDERS)


def test_a_slow_contender_gets_fewer_tasks_but_never_too_few_to_be_measured():
    assert Extent().tasks(FAST, 2.0) == 2 * FAST.rate
    assert Extent().tasks(SLOW, 2.0) == 700
    assert Extent().tasks(SLOW, 0.1) == 200
    assert Extent(count=7).tasks(FAST, 2.0) == 7


def test_the_short_form_has_fewer_rounds_unless_they_are_given():
    assert (Extent().turns(1, 5), Extent(full=True).turns(1, 5), Extent(rounds=2, full=True).turns(1, 5)) == (1, 5, 2)


def test_each_contender_has_one_version_a_page_of_advice_and_a_program_of_its_own():
    house = Path(script.__file__).parent / "peers" / "programs"
    for peer in PEERS:
        assert peer.advice.startswith("https://")
        assert all(("==" in each) or ("@" in each) for each in peer.packages)
    assert all((house / peer.program).is_file() for peer in CONTENDERS)
    assert len({peer.program for peer in CONTENDERS}) == len(CONTENDERS)


# Rounds


def arena():
    return Arena(Server("postgresql://nowhere", "18", 0, {}))


def test_another_contender_begins_each_round_and_the_slow_run_once():
    order = []

    def one(peer):
        order.append(peer.name)
        return {"turn": len(order)}

    found = rounds(arena(), [OCTOP, SLOW, FAST], 3, one, "x", slow_once=True)
    assert order == ["octop", "saq", "graphile-worker", "graphile-worker", "octop", "graphile-worker", "octop"]
    assert {name: len(runs) for name, runs in found.items()} == {"octop": 3, "saq": 1, "graphile-worker": 3}


def test_who_fails_is_left_out_from_then_on_and_the_reason_is_kept():
    place = arena()
    place.absent["saq"] = "no network"
    runs = []

    def one(peer):
        runs.append(peer)
        if peer is FAST and len(runs) > 2:
            message = "graphile-worker: drain failed:\nfirst line\nlast line"
            raise ContenderError(message)
        return {}

    found = rounds(place, [OCTOP, FAST], 3, one, "drain")
    assert runs.count(FAST) == 2
    assert len(found["octop"]) == 3
    assert place.missing() == {"saq": "no network", "graphile-worker": "drain: last line"}
    rounds(place, [OCTOP], 1, lambda _: {}, "another question")
    assert place.missing() == {"saq": "no network"}


def test_who_needs_redis_is_absent_without_it_and_nothing_is_installed_for_it():
    place = arena()
    assert place.present([OCTOP, INSIDE, BY_NAME["celery"]]) == [OCTOP, INSIDE]
    assert place.absent == {"celery": "there is no redis-server"}


def test_a_percentile_is_one_of_the_values():
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 0.0), percentile(values, 0.99), percentile(values, 1.0)) == (1.0, 100.0, 100.0)
    assert percentile([5.0], 0.99) == 5.0


def test_processes_are_timed_from_the_first_call_in_any_to_the_first_that_finds_nothing_left():
    runs: list[dict[str, Any]] = [
        {"first_at": 10.0, "done_at": 14.0, "count": 60},
        {"first_at": 9.0, "done_at": 13.0, "count": 40},
        {"first_at": None, "done_at": 13.5, "count": 0},
    ]
    assert bench_processes.together(runs, 100) == 25.0
    with pytest.raises(ContenderError, match="100 of 101 tasks were run by 3 processes"):
        bench_processes.together(runs, 101)


def test_calls_are_counted_over_all_worker_processes(tmp_path):
    assert contest.stamped(tmp_path) == (None, 0)
    one = contest.Stamp(tmp_path, last=True)
    for _ in range(3):
        one.ran()
    next(tmp_path.glob("stamp-*")).rename(tmp_path / "stamp-1")  # as of another process
    begun = contest.stamped(tmp_path)[0]
    assert begun is not None
    assert begun < contest.last_stamped(tmp_path)
    two = contest.Stamp(tmp_path, last=True)
    two.ran()
    assert contest.stamped(tmp_path) == (begun, 4)
    before = contest.last_stamped(tmp_path)
    one.ran()
    assert contest.last_stamped(tmp_path) > before
    assert contest.stamped(tmp_path) == (begun, 5)


# The enqueue without its look for sleepers


def test_the_look_for_sleepers_is_cut_out_of_the_enqueue_as_it_is_today():
    text = (Path(octop.__file__).parent / "sql" / "functions" / "40_enqueue.sql").read_text()
    start = text.index("create or replace function octop_enqueue_many(")
    whole = text[start : text.index("\nend $$;", start)]
    cut = bench_notify.without_look(whole)
    assert cut.startswith("create or replace function octop_enqueue_unwoken(")
    kept = cut.replace("octop_enqueue_unwoken", "octop_enqueue_many")
    changed = [line for line in difflib.ndiff(whole.splitlines(), kept.splitlines()) if line[0] in "+-"]
    assert sum("_octop_sleepers" in line for line in changed) == 2, "the looks"
    assert sum("_octop_wake" in line for line in changed) == 1
    assert len(changed) <= 8, "and nothing else"
    with pytest.raises(RuntimeError, match="0 looks"):
        bench_notify.without_look(cut)


def test_both_answers_about_notify_have_a_base_of_their_own():
    found = {
        name: [(rate, 0.0), (rate, 2.0)]
        for name, rate in [
            (bench_notify.NOBODY, 100.0), (bench_notify.FULL, 80.0), (bench_notify.INSERT, 300.0), (bench_notify.INSERT_AND_NOTIFY, 150.0),
        ]
    }  # fmt: skip
    own, bare = bench_notify.answers(found)
    assert [(line.name, own.ratio(line)) for line in own.lines] == [
        (bench_notify.NOBODY, 1.0),
        (bench_notify.FULL, 1.25),
    ]
    assert [(line.name, bare.ratio(line)) for line in bare.lines] == [
        (bench_notify.INSERT, 1.0),
        (bench_notify.INSERT_AND_NOTIFY, 2.0),
    ]
    assert own.lines[0].more == {"NOTIFY per 1,000": 1.0}


# Command lines


@pytest.fixture
def refused(monkeypatch, capsys):
    def call(main, *arguments):
        monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
        monkeypatch.setattr(script, "arena", pytest.fail)
        monkeypatch.setattr(everything, "arena", pytest.fail)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "argument --rounds: 0 is less than 1"),
        (["--rounds", "some"], "argument --rounds: invalid above_zero value: 'some'"),
        (["--only", "octop,sax"], "argument --only: no contender is called sax; there are octop"),
    ],
    ids=str,
)
def test_what_can_not_be_measured_is_refused_before_a_server_is_started(refused, arguments, message):
    assert message in refused(everything.main, *arguments)
    assert message in refused(lambda: script.main(lambda *_: [], "A question?"), *arguments)


def test_a_script_that_there_is_not_is_refused_with_those_there_are(refused):
    said = refused(everything.main, "--scripts", "drain,drane")
    assert "no script is called drane; there are drain, enqueue" in said
    assert "notify" in said
    assert "argument --tasks: -1 is less than 1" in refused(lambda: script.main(lambda *_: [], "?"), "--tasks=-1")


def test_every_script_is_part_of_the_whole_or_prints_beside_it():
    folder = Path(script.__file__).parent
    files = {path.stem.removeprefix("bench_") for path in folder.glob("bench_*.py")}
    assert files == everything.SCRIPTS.keys() | {"codec", "cron", "startup"}
