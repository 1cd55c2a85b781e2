"""The page of the doctor is what its table says."""

from __future__ import annotations

from tools import doctor_page


def test_the_page_of_the_doctor_is_what_its_table_says():
    assert doctor_page.PAGE.read_text(encoding="utf-8") == doctor_page.page(), (
        "python tools/doctor_page.py writes it again"
    )
