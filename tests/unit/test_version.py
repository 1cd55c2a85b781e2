"""Which of two versions is older."""

from __future__ import annotations

import pytest

from octop.model.version import is_older

IN_ORDER = (
    "0.2.0.dev0",
    "0.2.0.dev3",
    "0.2.0a1.dev1",
    "0.2.0a1",
    "0.2.0b2",
    "0.2.0rc9",
    "0.2.0rc10",
    "0.2.0",
    "0.2.0.post1.dev1",
    "0.2.0.post1",
    "0.2.1",
    "0.10.0",
)


def test_versions_are_ordered_as_packages_are():
    found = [[is_older(one, other) for other in IN_ORDER] for one in IN_ORDER]
    assert found == [[at < to for to in range(len(IN_ORDER))] for at in range(len(IN_ORDER))]


@pytest.mark.parametrize("same", ["0.2.0+deb1", "0.2.0+ubuntu.22.1", "0.2.0"])
def test_what_a_packager_adds_makes_it_no_other(same):
    assert not is_older(same, "0.2.0")
    assert not is_older("0.2.0", same)


@pytest.mark.parametrize("none", [None, "", "unknown", "1"])
def test_what_is_no_version_of_ours_is_not_older(none):
    assert not is_older(none, "0.2.0")
    assert not is_older("0.2.0", none)
