"""When a worker looks from the front, and when behind what it has claimed."""

from datetime import datetime

from octop.model.task import NIL, Claimed
from octop.worker.marks import BACK_SECONDS_MAX, HEAVY_SECONDS, LONGEST_SECONDS, SECONDS_MAX, SHARE, Marks


def claimed(number, priority=5, queue="q"):
    return Claimed(
        f"id {number}", 1, NIL, "", queue, "", "t", "{}", priority, 0, 3, 30.0, f"2030-{number}", "", False, None, None
    )


def test_of_each_priority_the_last_task_is_the_mark():
    marks = Marks()
    marks.looked(began=0.0, now=0.0)
    marks.claimed("q", [claimed(1, 0), claimed(2, 0), claimed(3, 5)])
    marks.claimed("q", [claimed(4, 5)])
    assert marks.current(0.5) == {"q": {0: ("2030-2", "id 2"), 5: ("2030-4", "id 4")}}


def test_marks_are_forgotten_a_second_after_the_last_look_from_the_front():
    marks = Marks()
    marks.looked(began=9.99, now=10.0)
    marks.claimed("q", [claimed(1)])
    assert marks.current(10.0 + SECONDS_MAX - 0.01)
    marks.claimed("q", [claimed(2)])
    assert not marks.current(10.0 + SECONDS_MAX)


HEAVY = 2 * HEAVY_SECONDS


def heavy(now=100.0):
    """Return marks at 12:00:00, after a look from the front that has just been heavy."""
    marks = Marks()
    marks.looked(began=now - HEAVY, now=now)
    marks.claimed("q", [claimed("01-01 12:00:00.5+00")])
    return marks


def back(marks, now, **more):
    """Return how many seconds before the marks the next look begins; 0 = behind them, None = at the front."""
    found = marks.current(now, **more)
    if not found:
        return None
    ((at, id),) = found["q"].values()
    if id != NIL:
        return 0
    return (datetime.fromisoformat("2030-01-01 12:00:00.5+00") - datetime.fromisoformat(at)).total_seconds()


def test_a_look_from_the_front_that_takes_long_is_made_so_seldom_that_it_takes_a_fiftieth_of_the_time():
    marks = heavy()
    assert back(marks, 100.0 + SHARE * HEAVY - 0.1) is not None
    assert back(marks, 100.1 + SHARE * HEAVY) is None
    assert marks.by_queue, "the marks stay: what follows must not be heavy again"


def test_meanwhile_a_look_back_is_made_each_second_and_seldom_a_long_way():
    marks = heavy()
    assert [back(marks, 100.0 + 0.1 * tenth) for tenth in range(9)] == [0] * 9
    assert [back(marks, 101.0 + second) for second in range(7)] == [1, 2, 1, 4, 1, 2, 1]
    marks._backs = 2**10 - 1
    assert back(marks, 108.0) == BACK_SECONDS_MAX


def test_where_the_front_is_heavy_a_call_or_a_short_batch_is_followed_by_a_look_back():
    marks = heavy()
    assert back(marks, 100.1, anew=True) == 1
    assert marks.short("q"), "there may be something before the marks"
    assert not marks.short("q", is_behind=False), "that was the look back"
    assert back(marks, 100.2) == 0
    assert marks.short("q", [claimed("01-01 12:00:07+00")])
    assert marks.by_queue["q"][5][0] == "2030-01-01 12:00:07+00", "also of a short batch the last task is the mark"
    marks.short("q", [claimed("01-01 11:00:00+00")], is_behind=False)
    assert marks.by_queue["q"][5][0] == "2030-01-01 12:00:07+00", "but not of one from before it"


def test_when_the_dead_are_gone_all_is_as_before():
    marks = heavy()
    marks.looked(began=109.99, now=110.0)
    assert back(marks, 110.5) == 0
    assert back(marks, 110.6, anew=True) is None
    assert not marks.by_queue


def test_a_time_that_python_can_not_read_is_looked_at_from_its_front():
    marks = heavy()
    marks.claimed("q", [claimed("", priority=3)])
    assert list(marks.current(101.0)["q"]) == [5]


def test_a_look_that_seems_to_take_very_long_puts_off_the_next_one_by_a_minute_at_most():
    """Perhaps the loop was blocked, or the network stood still."""
    marks = Marks()
    marks.looked(began=0.0, now=15.0)
    marks.claimed("q", [claimed("01-01 12:00:00.5+00")])
    assert back(marks, 15.0 + LONGEST_SECONDS) is None


def test_times_that_are_no_iso_8601_make_no_marks():
    marks = Marks()
    marks.looked(began=0.0, now=0.0)
    marks.claimed("q", [claimed(1)._replace(scheduled_at="30/11/2026 12:00:00 CST")])
    assert not marks.current(0.1)


def test_a_short_batch_drops_the_marks_of_its_queue_alone():
    marks = Marks()
    marks.looked(began=0.0, now=0.0)
    marks.claimed("q", [claimed(1)])
    marks.claimed("r", [claimed(2, queue="r")])
    assert marks.short("q")
    assert not marks.short("q"), "it had none: nothing lies before them"
    assert list(marks.current(0.1)) == ["r"]
