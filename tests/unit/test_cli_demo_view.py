"""The demo's view, drawn from pictures of the imagination."""

import io

import pytest
from rich.console import Console

from octop.cli.demo.lines import Lines
from octop.cli.demo.picture import KindState, Picture, WorkerState
from octop.cli.demo.view import drawn
from octop.cli.drawing import sparkline
from octop.cli.output import Output


def a_picture():
    picture = Picture("a private PostgreSQL 18", seconds=7.0, ends="of 12")
    picture.counts = {"pending": 12_345, "success": 7_655}
    picture.kinds = [KindState(f"kind {n}", "does something", "success", "f") for n in range(17)]
    picture.kinds[0].settled, picture.kinds[0].okay, picture.kinds[0].status = True, True, "success"
    picture.kinds[1].settled, picture.kinds[1].okay, picture.kinds[1].status = True, False, "frozen"
    picture.workers = [WorkerState("demo", 4711, [("send_welcome", 3, 0.4)]), WorkerState("demo", 4712, [])]
    picture.failures = [("charge_card", "failure: the card\n\x1b[31m has expired")]
    picture.delays = [0.002, 0.003, 0.004]
    for rate in (0, 100, 8_000):
        picture.remember_rate(rate)
    return picture


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_the_view_fits_into_the_terminal(width, height):
    printed = io.StringIO()
    Console(file=printed, width=width, height=height).print(drawn(a_picture(), width))
    lines = printed.getvalue().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = printed.getvalue()
    for expected in ("12,345", "8,000/s", "3.0 ms", "✓ kind 0", "✗ kind 1", "send_welcome ×3", "idle", "the card"):
        assert expected in text
    assert "\x1b" not in text


def test_an_empty_picture_can_be_drawn():
    printed = io.StringIO()
    Console(file=printed, width=80).print(drawn(Picture("x"), 80))
    assert "about to start" in printed.getvalue()


def test_the_sparkline_scales_to_its_highest_value():
    assert sparkline([0, 1, 2, 4], 4) == "▁▂▄█"
    assert sparkline([0, 0], 4) == "▁▁"
    assert sparkline([], 4) == ""
    assert sparkline(range(100), 3) == "███"


def test_without_a_terminal_each_kind_is_told_once(capsys):
    lines = Lines(a_picture(), Output(as_json=False, plain=False, quiet=False))
    lines.refresh()
    lines.refresh()
    printed = capsys.readouterr().err
    assert printed.count("ok  kind 0: success") == 1
    assert printed.count("BAD kind 1: frozen") == 1
    assert printed.count("pending 12,345") == 1


def test_the_sparkline_forgets():
    picture = Picture("x")
    for n in range(1_000):
        picture.remember_rate(n)
    assert len(picture.rates) == 120
