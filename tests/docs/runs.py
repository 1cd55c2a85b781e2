"""Which blocks of which pages the tests run, read from the tests themselves: a page must be named by its path there."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ALL = "*"
PATHS = (ast.Name, ast.Constant, ast.BinOp, ast.Div, ast.JoinedStr, ast.FormattedValue, ast.Load)
"""What the path of a page is written with: HOW_TO / f"{name}.md"; anything else is not looked at."""


def runs_of(module: ModuleType) -> Iterator[tuple[Path, str]]:
    """Yield the pages of whose blocks the tests of a module do something, with the language; `*` = of every language.

    What does something: `Story(PAGE)`, `blocks(PAGE, LANGUAGE)` and `files(PAGE, LANGUAGE, …)`.
    """
    for name, function in vars(module).items():
        if name.startswith("test_") and isinstance(function, FunctionType):
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            for parameters in _parameters(function):
                yield from _calls(tree, {**vars(module), **parameters})


def _parameters(function: FunctionType) -> Iterator[dict[str, Any]]:
    marks: list[tuple[Any, ...]] = [
        each.args for each in getattr(function, "pytestmark", []) if each.name == "parametrize"
    ]
    for values in itertools.product(*(list(each[1]) for each in marks)):
        yield {each[0]: value for each, value in zip(marks, values, strict=True) if isinstance(each[0], str)}


def _calls(tree: ast.AST, scope: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            scope[node.targets[0].id] = _path(node.value, scope)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            page = _path(node.args[0], scope)
            if page is None:
                continue
            rest = [str(each.value) if isinstance(each, ast.Constant) else ALL for each in node.args[1:]]
            languages: dict[str, list[str]] = {"Story": [ALL], "blocks": rest, "files": rest}
            yield from ((page, language) for language in languages.get(node.func.id, []))


def _path(node: ast.expr, scope: Mapping[str, Any]) -> Path | None:
    if not all(isinstance(each, PATHS) for each in ast.walk(node)):
        return None
    try:
        # S307: nothing but names, text and slashes, of our own tests
        found = eval(compile(ast.Expression(node), "a test", "eval"), dict(scope))  # noqa: S307
    except (NameError, TypeError):
        return None
    return found if isinstance(found, Path) else None
