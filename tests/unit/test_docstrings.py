"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import octop

ELSEWHERE = {"octop.engine.private_database", "octop.engine.private_binaries", "octop.testing"}
"""Their examples need a server or a test, and run in the tests of those modules."""


def modules():
    for found in pkgutil.walk_packages(octop.__path__, "octop."):
        if not found.name.endswith("__main__") and not any(found.name.startswith(each) for each in ELSEWHERE):
            yield found.name


def test_the_examples_in_docstrings_are_true():
    attempted = 0
    for name in modules():
        result = doctest.testmod(importlib.import_module(name))
        attempted += result.attempted
        if result.failed:
            pytest.fail(f"{result.failed} examples of {name} are not true")
    assert attempted > 40
