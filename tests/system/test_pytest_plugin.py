"""The pytest plugin, as a user's project sees it: pytest itself runs on a project of some files."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import psycopg
import pytest

pytest_plugins = "pytester"

INSTALLED = any(each.name == "octop" for each in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "octop.testing.plugin")

# A run inside this process forgets what it has imported. Of Octop there must be one, so all that it needs is here before.
for _needed in (
    "octop.bulk",
    "octop.engine.foreign",
    "octop.engine.pools",
    "octop.engine.throwaway",
    "octop.testing.database",
    "octop.testing.plugin",
    "octop.testing.server",
    "octop.worker.load",
):
    importlib.import_module(_needed)

TASKS = """
from octop import Octop

octop = Octop("postgresql://nobody.invalid/production")


@octop.task(queue="mail", max_retries=1)
async def send(user_id: int) -> str:
    return f"sent to {user_id}"


@octop.task
def settle(order: int) -> None:
    raise LookupError(f"there is no order {order}")


def sign_up(user_id: int) -> None:
    send.using(delay=60).enqueue_sync(user_id)
"""


@pytest.fixture
def project(pytester, postgres, monkeypatch):
    """A project with a task module; `pytest` in it takes databases from the server of this run."""
    monkeypatch.setenv("OCTOP_TEST_DSN", postgres.url())
    for name in ("OCTOP_APP", "OCTOP_DSN", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(shop=TASKS)
    pytester.makeini("[pytest]\noctop_app = shop:octop\npythonpath = .\n")
    return pytester


def outcomes(project, *arguments, **expected):
    # with xdist it starts processes; without, a run inside this one is ten times faster
    run = project.runpytest_subprocess if "-n" in arguments else project.runpytest_inprocess
    # hypothesis would be imported anew for each summary, and garbage collected five times in all that this process has
    # loaded: four seconds a run
    without = ["cacheprovider", "hypothesispytest", *([] if "-W" in arguments else ["unraisableexception"])]
    answer = run(*PLUGIN, *(word for name in without for word in ("-p", f"no:{name}")), *arguments)
    answer.assert_outcomes(**expected)
    return answer.stdout.str()


def test_the_fixtures_of_a_project(project):
    project.makepyfile(
        """
        import pytest
        from datetime import UTC, datetime, timedelta
        from octop.testing import assert_enqueued, clock, drain, enqueued
        from shop import octop, send, settle, sign_up

        def test_a_database_per_test(octop_database, octop_app):
            assert octop_app is octop
            assert octop.settings.dsn == octop_database.dsn
            sign_up(1)
            octop_database.assert_enqueued(send, args=(1,), queue="mail", within=timedelta(minutes=1))

        def test_it_is_empty_again(octop_database):
            assert octop_database.enqueued() == []

        def test_the_clock_and_the_drain(octop_clock, octop_drain):
            octop_clock.freeze(datetime(2031, 1, 6, 9, tzinfo=UTC))
            sign_up(2)
            assert octop_drain() == []
            octop_clock.travel(minutes=1)
            assert [ran.result for ran in octop_drain()] == ["sent to 2"]

        @pytest.mark.usefixtures("octop_database")
        def test_functions_that_need_no_fixture_at_hand():
            sign_up(3)
            assert_enqueued("send", payload={"user_id": 3})
            clock.travel(hours=1)
            assert len(drain()) == 1 and enqueued() == []

        def test_without_a_fixture_nothing_is_changed():
            assert octop.settings.dsn.endswith("/production")
        """
    )
    outcomes(project, passed=5)


def test_a_failed_drain_shows_the_tasks_own_traceback_and_nothing_of_octop(project):
    project.makepyfile(
        """
        from shop import settle

        def test_orders_are_settled(octop_drain):
            settle.enqueue_sync(7)
            octop_drain()
        """
    )
    shown = outcomes(project, failed=1)
    report = shown[shown.index("test_orders_are_settled _") :]
    assert ">       octop_drain()" in report
    assert '>       raise LookupError(f"there is no order {order}")' in report
    assert "E       LookupError: there is no order 7" in report
    assert re.search(r"E       the task settle [0-9a-f-]{36}, attempt 1, is failed now", report)
    places = re.findall(r"^(\S+\.py):\d+:", report, re.MULTILINE)
    assert [Path(each).name for each in places] == [
        "test_a_failed_drain_shows_the_tasks_own_traceback_and_nothing_of_octop.py",
        "shop.py",
    ]


def test_a_refused_call_shows_the_users_line_and_nothing_of_octop(project):
    project.makepyfile(
        """
        import asyncio
        from shop import octop, send, sign_up

        def test_wrong_argument(octop_database): send.enqueue_sync(user=1)
        def test_wrong_value(octop_database): send.enqueue_sync("x")
        def test_awaited(octop_database):
            async def story(): await send.enqueue()
            asyncio.run(story())

        def test_prepared(octop_database): send.call(1, 2)
        def test_wrong_option(octop_database): send.using(dealy=1)
        def test_option_out_of_bounds(octop_database): send.using(priority=10)
        def test_arguments_beside_the_name(octop_database): octop.enqueue_sync("send", user_id=1)
        def test_no_result(octop_database): send.enqueue_sync(1).result_sync(timeout=0)
        def test_no_end(octop_database): send.enqueue_sync(1).wait_sync(timeout=0)
        def test_no_fixture(): sign_up(1)
        def test_no_fixture_for_many(): octop.enqueue_many_sync([send.call(1)])
        """
    )
    shown = outcomes(project, failed=11)
    places = re.findall(r"^(\S+\.py):\d+:", shown, re.MULTILINE)
    own = {"test_a_refused_call_shows_the_users_line_and_nothing_of_octop.py", "shop.py"}
    assert {each for each in places if Path(each).name not in own and Path(each).parent.name != "asyncio"} == set()
    assert "InvalidArgumentsError: send(user_id: int) -> str has no parameter 'user'" in shown
    assert shown.count("hint: In a test nothing runs until octop_database.drain(): call it first") == 2
    assert "is pending after waiting for 0 s" in shown
    assert "hint: Let the test ask for the fixture octop_database." in shown


def test_an_application_that_a_conftest_gives(project):
    project.makeini("[pytest]\npythonpath = .\n")
    project.makeconftest(
        """
        import pytest
        import shop

        @pytest.fixture(scope="session")
        def octop_app():
            return shop.octop
        """
    )
    project.makepyfile(
        """
        import shop

        def test_sent(octop_database):
            shop.send.enqueue_sync(1)
            assert len(octop_database.drain()) == 1
        """
    )
    outcomes(project, passed=1)


def test_where_no_application_is_named_a_test_that_needs_one_fails_and_says_what_to_set(project):
    project.makeini("[pytest]\npythonpath = .\n")
    project.makepyfile(
        """
        from shop import send

        def test_needs_it(octop_database):
            send.enqueue_sync(1)
        """
    )
    shown = outcomes(project, errors=1)
    assert "there is no tasks.py in" in shown
    assert "Set octop_app = module:attribute in the pytest settings, or override the fixture octop_app" in shown


@pytest.mark.parametrize("toml", [False, True])
def test_tasks_py_is_taken_and_a_module_is_found_where_the_settings_file_is(project, toml, monkeypatch):
    project.makeini("[pytest]\n")
    if toml:
        project.makefile(".toml", octop='app = "my_shop:octop"\n')
    name = "my_shop" if toml else "tasks"
    monkeypatch.delitem(sys.modules, name, raising=False)
    project.makepyfile(**{name: TASKS})
    project.makepyfile(
        f"""
        def test_sent(octop_database):
            from {name} import send
            send.enqueue_sync(1)
            assert len(octop_database.drain()) == 1
        """
    )
    outcomes(project, passed=1)


def test_an_application_that_was_not_pointed_at_the_test_database_is_refused(project):
    project.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def octop_app():
            return None
        """
    )
    project.makepyfile(
        """
        import asyncio
        import pytest
        from octop import Octop
        from octop.model.errors import ConfigurationError
        from psycopg.conninfo import make_conninfo
        from shop import octop, send

        private = Octop()

        @pytest.mark.parametrize("app", [octop, private])
        def test_refused(octop_database, app):
            for act in (
                lambda: app.enqueue_sync("send", {"user_id": 1}),
                lambda: asyncio.run(app.enqueue("send", {"user_id": 1})),
                lambda: app.enqueue_many_sync([app.named("send").call(user_id=1)]),
                lambda: asyncio.run(app.worker(drain=True)),
            ):
                with pytest.raises(ConfigurationError, match="still leads to") as caught:
                    act()
                assert "octop_app" in caught.value.hint
            with octop_database.override(app):
                app.enqueue_sync("send", {"user_id": 1})
            assert len(octop_database.enqueued()) == 1

        def test_one_that_names_the_test_database_itself(octop_database):
            Octop(octop_database.dsn).enqueue_sync("send", {"user_id": 1})
            with_words = make_conninfo(octop_database.dsn, application_name="another")
            Octop(with_words).enqueue_sync("send", {"user_id": 2})
            assert len(octop_database.enqueued()) == 2

        """
    )
    outcomes(project, passed=3)


def test_without_the_fixture_no_application_reaches_a_real_database(project):
    project.makepyfile(
        """
        import asyncio
        import pytest
        from octop import Octop
        from octop.model.errors import ConfigurationError
        from octop.testing import Server
        from shop import octop

        @pytest.mark.parametrize(
            ("app", "place"), [(octop, "nobody.invalid/production"), (Octop(), "the private development database")]
        )
        def test_refused(app, place):
            for act in (
                lambda: app.enqueue_sync("send", {"user_id": 1}),
                lambda: asyncio.run(app.enqueue("send", {"user_id": 1})),
                lambda: app.enqueue_many_sync([app.named("send").call(user_id=1)]),
                lambda: app.handle("0190a000-0000-7000-8000-000000000001").status_sync(),
                lambda: asyncio.run(app.worker(drain=True)),
            ):
                with pytest.raises(ConfigurationError, match=place) as caught:
                    act()
                assert "ask for the fixture octop_database" in caught.value.hint
                assert "octop_allow_databases = NAME" in caught.value.hint

        def test_one_that_leads_to_a_test_database_of_its_own():
            with Server() as server, server.database() as database:
                app = Octop(database.dsn)
                app.enqueue_sync("send", {"user_id": 1})
                app.close()
                assert len(database.enqueued()) == 1
        """
    )
    outcomes(project, passed=3)


def test_a_database_that_the_settings_name_may_be_used(project, database, monkeypatch):
    project.makeini("[pytest]\noctop_allow_databases = shop_test test_*\npythonpath = .\n")
    monkeypatch.setenv("OCTOP_DSN", database.url)
    project.makepyfile(
        """
        import pytest
        from octop import Octop
        from octop.model.errors import ConfigurationError
        from shop import octop

        def test_allowed():
            app = Octop()
            app.enqueue_sync("send", {"user_id": 1})
            app.close()

        def test_another_one_is_not():
            with pytest.raises(ConfigurationError, match="nobody.invalid/production"):
                octop.enqueue_sync("send", {"user_id": 1})
        """
    )
    outcomes(project, passed=2)
    with database.connect() as connection:
        assert connection.execute("select task_type, status from octop_tasks").fetchall() == [("send", "pending")]


def test_an_application_that_does_not_import_is_an_error_of_the_tests_that_need_it(project):
    project.makepyfile(shop="import no_such_module")
    project.makepyfile(
        """
        def test_needs_it(octop_database): ...
        def test_does_not(): ...
        """
    )
    shown = outcomes(project, passed=1, errors=1)
    assert "there is no module" in shown or "does not import" in shown
    assert "no_such_module" in shown


ASYNC = """
import pytest
from shop import octop, send

{mark}
async def test_async(octop_database):
    handle = await send.enqueue(1)
    ran = await octop_database.drain_async()
    assert [each.result for each in ran] == ["sent to 1"]
    assert await handle.result(timeout=1) == "sent to 1"

{mark}
async def test_each_has_its_own(octop_database):
    assert octop_database.enqueued() == []
    async with octop_database.override(octop):
        await send.enqueue(2)
    assert len(octop_database.enqueued()) == 1
"""


@pytest.mark.parametrize(
    ("module", "mark", "more"),
    [
        ("anyio", "@pytest.mark.anyio", '@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n'),
        ("pytest_asyncio", "@pytest.mark.asyncio", ""),
    ],
)
def test_async_tests(project, module, mark, more):
    pytest.importorskip(module)
    project.makepyfile(ASYNC.format(mark=mark) + more)
    outcomes(project, "-W", "error::ResourceWarning", "-W", "error::pytest.PytestUnraisableExceptionWarning", passed=2)


def test_keep_leaves_the_database_and_says_where_it_is(project, postgres):
    project.makepyfile(
        """
        from shop import send

        def test_sent(octop_database):
            send.enqueue_sync(1)
        """
    )
    shown = outcomes(project, "--octop-keep", passed=1)
    assert "octop: databases that were kept" in shown
    (dsn,) = re.findall(r"::test_sent: (postgresql://\S+)", shown)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute("select task_type from octop_tasks").fetchall() == [("send",)]
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"drop database {dsn.partition('?')[0].rpartition('/')[2]}")


@pytest.mark.slow
def test_processes_of_xdist_share_the_template_and_tell_what_was_kept(project, postgres):
    project.makepyfile(
        """
        import pytest
        from shop import send

        @pytest.mark.parametrize("number", range(4))
        def test_sent(octop_database, number):
            send.enqueue_sync(number)
            assert [ran.arguments for ran in octop_database.drain()] == [{"user_id": number}]
        """
    )
    shown = outcomes(project, "-n", "2", "--octop-keep", passed=4)
    kept = [dsn.partition("?")[0].rpartition("/")[2] for dsn in re.findall(r"::test_sent\S+ (postgresql://\S+)", shown)]
    assert len(set(kept)) == 4, shown
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        for name in kept:
            connection.execute(f"drop database {name}")


def test_the_plugin_imports_nothing_heavy_and_has_no_fixture_that_comes_unasked():
    script = (
        "import pytest, sys\n"
        "before = set(sys.modules)\n"
        "import octop.testing.plugin as plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if 'octop' in name or 'psycopg' in name))\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["octop", "octop.testing", "octop.testing.plugin"]


def test_a_suite_that_does_not_use_octop_is_left_alone(pytester, monkeypatch):
    monkeypatch.setenv("OCTOP_TEST_DSN", "postgresql://nobody.invalid/nowhere")
    pytester.makepyfile("def test_plain(request): assert not [n for n in request.fixturenames if 'octop' in n]")
    outcomes(pytester, passed=1)
