"""When a worker looks from the front, and when behind what it has claimed."""

from octop.model.task import NIL, Claimed
from octop.worker.marks import LONGEST_SECONDS, SECONDS_MAX, SHARE, Marks


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


def test_a_look_from_the_front_that_takes_long_is_made_so_seldom_that_it_takes_a_twentieth_of_the_time():
    marks = Marks()
    marks.looked(began=0.0, now=0.2)
    marks.claimed("q", [claimed(1)])
    assert marks.current(0.2 + SHARE * 0.2 - 0.1)
    assert not marks.current(0.2 + SHARE * 0.2)


def test_a_look_that_seems_to_take_very_long_puts_off_the_next_one_by_some_seconds_at_most():
    """Perhaps the loop was blocked, or the network stood still."""
    marks = Marks()
    marks.looked(began=0.0, now=15.0)
    marks.claimed("q", [claimed(1)])
    assert not marks.current(15.0 + LONGEST_SECONDS)


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
