"""The page of failures names the tests that show each of them, all of them, and none that does not exist."""

from __future__ import annotations

import re

from tests.servers import HOUSE
from tools import cases_page
from tools.cases_page import CASES, LATER, named_tests, numbers_in

TODAY = [case.number for case in CASES]
NOT_YET = [number for numbers in LATER.values() for number in numbers]


def test_the_page_of_failures_is_what_its_table_and_the_tests_say():
    assert cases_page.PAGE.read_text(encoding="utf-8") == cases_page.page(), (
        "python tools/cases_page.py writes it again"
    )


def test_every_failure_that_concerns_what_exists_has_a_test_of_its_number():
    assert [number for number in TODAY if number not in named_tests()] == []


def test_every_number_in_the_name_of_a_test_is_that_of_a_failure_on_the_page():
    assert set(named_tests()) - set(TODAY) == set(), "of parts that are not there yet, or no failure at all"


def test_each_failure_stands_there_once():
    assert len(TODAY) + len(NOT_YET) == len({*TODAY, *NOT_YET}) == 78


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"^- `(tests/[\w/.]+)::(test_\w+)`$", cases_page.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) > 100
    for file, name in named:
        assert re.search(rf"^(?:async )?def {name}\(", (HOUSE / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_numbers_are_read_from_names():
    assert numbers_in("test_c001_c137_a_task") == ["001", "137"]
    assert numbers_in("test_C043_minus_zero_is_a_number") == ["043"]
    assert numbers_in("test_a_c0_of_three") == []
