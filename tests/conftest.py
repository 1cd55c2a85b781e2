"""Fixtures for all tests. Which PostgreSQL versions: the variable OCTOP_TEST_POSTGRES, "18,14" by default.

Tests in tests/sql, and those marked `all_versions`, run once per version; the others on the newest alone.

postgres        the shared server of the version (tests.servers.Server)
empty_database  a database of the test's own, empty                     (tests.servers.Database)
database        the same with Octop installed; `database.clock` bends its time
own_server      a function that starts a server which the test may stop and kill: `own_server(fsync="on")`
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

# What a shell or a CI machine sets for pytest, rich, libpq and Octop itself must decide nothing here. CI makes pytest's summary longer.
_STEERING = {
    *("BUILD_NUMBER", "CI", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"),
    *(
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "FORCE_COLOR",
        "LINES",
        "NO_COLOR",
        "PY_COLORS",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
    ),
    "DATABASE_URL",
}
_OUR_OWN = {
    "OCTOP_TEST_CRON",
    "OCTOP_TEST_LARGE",
    "OCTOP_TEST_POSTGRES",
    "OCTOP_TEST_RACE",
    "OCTOP_TEST_RUN",
    "OCTOP_TEST_LONG_RUN",
}
for _name in os.environ.keys() - _OUR_OWN:
    if _name in _STEERING or _name.startswith(("OCTOP_", "PG")):
        del os.environ[_name]

# python -O drops the assertions of modules that pytest does not rewrite, and of itself it rewrites those with tests alone
pytest.register_assert_rewrite("tests.servers", "tests.docs", "tests.sql", "tests.system", "tests.unit")

from tests import servers  # noqa: E402 - what is imported earlier is not rewritten
from tests.servers import Database, Server  # noqa: E402 - as above

_RUN = pytest.StashKey[servers.Run]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers of xdist find the run in the environment
        config.stash[_RUN] = servers.Run()


def pytest_unconfigure(config: pytest.Config) -> None:
    servers.let_go()
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.end()


def pytest_report_header() -> str:
    return f"PostgreSQL: {', '.join(map(str, servers.versions()))}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres" in metafunc.fixturenames:
        chosen = servers.versions()
        kind = Path(metafunc.definition.path).relative_to(servers.HOUSE / "tests").parts[0]
        if kind != "sql" and metafunc.definition.get_closest_marker("all_versions") is None:
            chosen = chosen[:1]
        metafunc.parametrize("postgres", chosen, indirect=True, scope="session", ids=[f"pg{each}" for each in chosen])


def _on_newest(item: pytest.Item) -> bool:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return parameters.get("postgres") in (None, servers.versions()[0])


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    for item in items:
        if (servers.HOUSE / "tests" / "unit") in item.path.parents:
            item.add_marker("smoke")
        if item.get_closest_marker("slow") is not None and not _on_newest(item):
            item.add_marker("long")
    answer = yield  # now those of one version stand together
    # At the end of a run no worker shall wait for another that has just begun a long test.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    return answer


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Server:
    return servers.server(request.param)


@pytest.fixture
def empty_database(postgres: Server) -> Iterator[Database]:
    with postgres.database(installed=False) as made:
        yield made


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    with postgres.database(installed=True) as made:
        yield made


@pytest.fixture
def own_server(postgres: Server) -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(servers.own_server(postgres.version, settings))
