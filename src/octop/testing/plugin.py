"""The pytest plugin: fixtures for a database per test, and no way by accident from a test to a real database.

While pytest runs, applications reach the databases of tests and those that the setting ``octop_allow_databases`` names. Else
nothing happens in a run that asks for no fixture. The plugin is loaded at every start of pytest where Octop is installed, so it
imports nothing but pytest, and no fixture is autouse.

octop_database  a database of the test's own, ``octop.testing.Database``; the application of ``octop_app`` points at it
octop_app       the application: setting ``octop_app``, OCTOP_APP, octop.toml, else tasks.py; may be overridden in conftest.py
octop_clock     the clock of that database: ``octop_clock.travel(hours=1)``
octop_drain     runs what is due in it: ``octop_drain()``; in async tests ``await octop_database.drain_async()``

It asserts nothing, so pytest need not rewrite it: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octop.app import Octop
    from octop.testing.bent_clock import Clock
    from octop.testing.database import Database
    from octop.testing.ran import Drained
    from octop.testing.server import Server

_SERVER = pytest.StashKey["Server"]()
_KEPT = pytest.StashKey["list[tuple[str, str]]"]()
_ALLOWED = pytest.StashKey["list[str]"]()
NAME_IT = (
    "Set octop_app = module:attribute in the pytest settings, or override the fixture octop_app"
    " (to return None, if the tests enqueue nothing through an application)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare settings and flags."""
    parser.addini("octop_app", "module:attribute of the application that tests use.", default="")
    parser.addini("octop_dsn", "Server for test databases (default: OCTOP_TEST_DSN, else a private one).", default="")
    parser.addini(
        "octop_allow_databases",
        "Names of databases, or patterns such as test_*, that applications may use in tests without octop_database.",
        type="args",
        default=[],
    )
    parser.getgroup("octop").addoption(
        "--octop-keep",
        action="store_true",
        help="Keep the test databases of Octop, and print where they are.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin without a server, and keep applications away from real databases."""
    from octop.engine.admission import runs_of_tests  # noqa: PLC0415 - some milliseconds, for a run and not for an import

    config.stash[_KEPT] = []
    config.stash[_ALLOWED] = allowed = list(config.getini("octop_allow_databases"))
    runs_of_tests.append(allowed)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go of the server, and of applications."""
    from octop.engine.admission import runs_of_tests  # noqa: PLC0415 - likewise

    allowed = config.stash.get(_ALLOWED, None)
    runs_of_tests[:] = [each for each in runs_of_tests if each is not allowed]
    server = config.stash.get(_SERVER, None)
    if server is not None:
        server.close()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under xdist, tell the process that reports what was kept here."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["octop_kept"] = session.config.stash.get(_KEPT, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from a process of xdist what was kept there."""
    for test, dsn in getattr(node, "workeroutput", {}).get("octop_kept", ()):
        node.config.stash[_KEPT].append((test, dsn))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the kept databases are."""
    kept = config.stash.get(_KEPT, [])
    if kept:
        terminalreporter.section("octop: databases that were kept")
        for test, dsn in kept:
            terminalreporter.write_line(f"{test}: {dsn}")


@pytest.fixture(scope="session")
def octop_app(pytestconfig: pytest.Config) -> Octop | None:
    """Give the application that tests use: setting octop_app, else OCTOP_APP, the settings files, or tasks.py."""
    from octop.model.errors import ApplicationError  # noqa: PLC0415 - a run without Octop loads little of it
    from octop.model.settings import load_settings  # noqa: PLC0415 - likewise
    from octop.worker.load import Named, load_application, named_application  # noqa: PLC0415 - likewise

    spec = pytestconfig.getini("octop_app")
    root = pytestconfig.rootpath
    named = Named(spec, None) if spec else named_application(load_settings(folder=root), root)
    if named is None:
        pytest.fail(f"which application? None was named, and there is no tasks.py in {root}. {NAME_IT}", pytrace=False)
    try:
        found: Any = load_application(*named)
    except ApplicationError as error:
        pytest.fail(f"{error}\n{NAME_IT}", pytrace=False)
    return found  # type: ignore[no-any-return]  # an Octop, or what behaves like one


@pytest.fixture
def octop_database(request: pytest.FixtureRequest, octop_app: Octop | None) -> Iterator[Database]:
    """Give a database of the test's own with Octop in it; the application points at it while the test runs."""
    config = request.config
    keep = bool(config.getoption("octop_keep"))
    schema = "public" if octop_app is None else octop_app.settings.schema
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(_server(config).database(schema, keep=keep))
        if keep:
            from octop.model.settings import masked_dsn  # noqa: PLC0415 - likewise

            config.stash[_KEPT].append((request.node.nodeid, masked_dsn(database.dsn)))
        stack.enter_context(database.override(*([] if octop_app is None else [octop_app])))
        yield database


@pytest.fixture
def octop_clock(octop_database: Database) -> Clock:
    """Give the clock of the test's database."""
    return octop_database.clock


@pytest.fixture
def octop_drain(octop_database: Database) -> Callable[..., Drained]:
    """Give what runs all due tasks of the test's database; see ``Database.drain``."""
    return octop_database.drain


def _server(config: pytest.Config) -> Server:
    found = config.stash.get(_SERVER, None)
    if found is None:
        from octop.testing.server import Server  # noqa: PLC0415 - likewise

        found = config.stash[_SERVER] = Server(config.getini("octop_dsn") or None)
    return found
