"""`octop init` and `octop dev`: from an empty folder to one's own tasks running, and how it all ends."""

import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from octop.model.settings import load_settings
from tests.system.apps.running import until
from tests.system.command import Command

RUFF = Path(sys.executable).parent / "ruff"


def lint(folder):
    """Return the codes that ruff finds in a folder, with the configuration that lies in it."""
    answer = subprocess.run(
        [RUFF, "check", "--no-cache", "--output-format", "json", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode in (0, 1), answer.stderr
    return [(each["code"], Path(each["filename"]).name) for each in json.loads(answer.stdout)]


@pytest.fixture
def project(monkeypatch, tmp_path, capsys):
    """Run the command in an empty folder; no database is needed to write files."""
    monkeypatch.chdir(tmp_path)
    return Command(capsys)


# --- init -------------------------------------------------------------------------------------------------------------


def test_init_writes_three_files_that_lint_clean_and_says_what_to_type(octop, tmp_path):
    assert octop("init") == "wrote tasks.py\nwrote octop.toml\nwrote .ruff.toml\n"
    assert re.findall(r"^  .*octop (\w+)", octop.err, re.MULTILINE) == ["dev", "enqueue", "top"]
    assert sorted(each.name for each in tmp_path.iterdir()) == [".ruff.toml", "octop.toml", "tasks.py"]
    assert lint(tmp_path) == []
    formatted = subprocess.run(
        [RUFF, "format", "--no-cache", "--check", "."], cwd=tmp_path, capture_output=True, check=False
    )
    assert formatted.returncode == 0, formatted.stdout
    told = octop.json("config", "show", "--origin")
    assert [(each["value"], each["origin"]) for each in told if each["setting"] == "app"] == [
        ("tasks:octop", f"{tmp_path}/octop.toml:5")
    ]


def test_the_tasks_that_init_writes_are_one_of_each_kind(project, tmp_path):
    project("init")
    application = runpy.run_path(str(tmp_path / "tasks.py"))["octop"]
    kinds = {name: definition.run_in for name, definition in application.registry.items()}
    assert kinds == {"send_welcome": "loop", "resize_image": "thread", "monthly_report": "process"}


BAD = {
    "DTZ005": "    return datetime.now()",
    "DTZ001": "    return datetime(2030, 1, 1)",
    "B006": "async def other(things: list[int] = []) -> None: ...",
    "B008": "async def other(at: datetime = datetime.now(UTC)) -> None: ...",
    "RUF012": "class Box:\n    things = []",
    "PLW0603": "    global counter\n    counter = 1",
    "BLE001": "    try:\n        work()\n    except Exception:\n        return",
    "E722": "    try:\n        work()\n    except:\n        return",
    "S110": "    try:\n        work()\n    except Exception:\n        pass",
    "B904": "    try:\n        work()\n    except ValueError:\n        raise KeyError",
    "B012": "    try:\n        work()\n    finally:\n        return",
    "S101": "    assert work()",
    "ASYNC251": "    time.sleep(1)",
    "RUF006": "    asyncio.create_task(work())",
    "ANN001": "async def other(day) -> None: ...",
    "S608": '    work(f"select * from users where id = {user}")',
    "S301": "    pickle.loads(work())",
    "S307": "    eval(work())",
    "S602": "    subprocess.run(work(), shell=True)",
}
"""What a task module may not hold, each under the rule that says so."""


def test_the_contract_catches_a_bad_task_module(project, tmp_path):
    project("init")
    imports = "import asyncio\nimport pickle\nimport subprocess\nimport time\nfrom datetime import UTC, datetime\n\n\n"
    for code, lines in BAD.items():
        inside = "async def task(user: int) -> None:\n" if lines.startswith("    ") else ""
        (tmp_path / f"bad_{code}.py").write_text(f"{imports}{inside}{lines}\n")
    found = set(lint(tmp_path))
    for code in BAD:
        assert (code, f"bad_{code}.py") in found


def test_every_rule_of_the_contract_has_its_reason_beside_it(project, tmp_path):
    project("init")
    text = (tmp_path / ".ruff.toml").read_text()
    rules = text[text.index("extend-select = [") : text.index("]\nignore")].splitlines()[1:]
    for line in rules:
        assert not line.strip() or "#" in line, line


def test_init_writes_what_is_missing_and_says_what_stays(project, tmp_path):
    (tmp_path / "tasks.py").write_text("from octop import Octop\n\nmine = Octop()\n")
    assert project("init") == "wrote octop.toml\nwrote .ruff.toml\n"
    assert "tasks.py was there and stays as it is" in project.err
    assert "enqueue TYPE name=value --wait" in project.err  # its tasks are not ours
    assert "mine" in (tmp_path / "tasks.py").read_text()
    assert load_settings(environment={}).app == "tasks"  # whatever its application is called
    (tmp_path / "octop.toml").write_text('app = "shop"\n')
    (tmp_path / "tasks.py").unlink()
    told = project.json("init")
    assert (told["written"], told["kept"]) == (["tasks.py"], ["octop.toml"])
    assert (tmp_path / "octop.toml").read_text() == 'app = "shop"\n'


@pytest.mark.parametrize(
    ("folder", "schema"),
    [("two", "two"), ("My-Shop 2", "my_shop_2"), ("public", "public"), ("pg_x", "public"), ("2nd", "public")],
)
def test_init_of_a_named_folder_parts_it_from_other_projects(project, tmp_path, monkeypatch, folder, schema):
    monkeypatch.delenv("OCTOP_SCHEMA", raising=False)
    project("init", folder)
    monkeypatch.chdir(tmp_path / folder)
    assert load_settings(environment={}).schema == schema


def test_init_leaves_the_schema_of_a_named_database_alone(project, tmp_path, monkeypatch):
    project("--dsn", "postgresql:///shop", "init", "two")
    monkeypatch.chdir(tmp_path / "two")
    assert load_settings(environment={}).schema == "public"


def test_init_never_writes_over_a_file(project, tmp_path):
    (tmp_path / "octop.toml").write_text("mine")
    (tmp_path / "tasks.py").write_text("mine too")
    project("init", ".", code=8)
    assert project.err.startswith("octop: tasks.py and octop.toml are there already\n  hint: Nothing was written.")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["octop.toml", "tasks.py"]
    assert project.json("init", "--force")["written"] == ["tasks.py", "octop.toml", ".ruff.toml"]
    assert "mine" not in (tmp_path / "octop.toml").read_text()
    # again: its own rules are no stranger's
    assert project.json("init", "--force") == {
        "directory": str(tmp_path),
        "written": ["tasks.py", "octop.toml"],
        "kept": [],
        "ruff": str(tmp_path / ".ruff.toml"),
        "add": None,
    }


@pytest.mark.parametrize(
    ("name", "content", "heading"),
    [
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n", "[tool.ruff.lint]"),
        ("pyproject.toml", "[tool.ruff.lint]\n", "[tool.ruff.lint]"),
        ("ruff.toml", "line-length = 100\n", "[lint]"),
        (".ruff.toml", "line-length = 100\n", "[lint]"),
    ],
)
@pytest.mark.parametrize("inside", ["", "service"])
def test_where_ruff_is_configured_init_prints_what_to_add(project, tmp_path, name, content, heading, inside):
    (tmp_path / name).write_text(content)
    told = project("init", tmp_path / inside)
    assert (tmp_path / name).read_text() == content
    assert f"{tmp_path / name} configures ruff already" in project.err
    assert told.splitlines()[2] == heading
    rules = told[told.index(heading) :]
    if content != "[tool.ruff.lint]\n":
        # what is printed is what can be added
        (tmp_path / name).write_text(content + rules)
        (tmp_path / "bad.py").write_text("def task(things: list = []) -> None: ...\n")
        assert ("B006", "bad.py") in lint(tmp_path)


def test_a_pyproject_without_ruff_or_beyond_the_repository_says_nothing(project, tmp_path):
    (tmp_path / "ruff.toml").write_text("")
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "pyproject.toml").write_text("[tool.black]\n")
    assert project.json("init", repository / "new" / "deep")["written"] == ["tasks.py", "octop.toml", ".ruff.toml"]
    assert f"  cd {repository}" not in project.err


def test_what_cannot_be_written_leaves_nothing_behind(project, tmp_path):
    (tmp_path / "file").write_text("")
    project("init", tmp_path / "file" / "below", code=2)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".ruff.toml").mkdir()  # a folder in the way: the third file fails
    project("init", tmp_path / "there", code=2)
    assert "cannot be written" in project.err
    assert [each.name for each in (tmp_path / "there").iterdir()] == [".ruff.toml"]


# --- dev --------------------------------------------------------------------------------------------------------------


class Dev:
    """A running `octop dev`."""

    def __init__(self, folder, *arguments, **environment):
        self.log = folder / "dev.log"
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OCTOP_DSN", "OCTOP_APP", "PG"))
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "octop", "dev", *arguments],
                cwd=folder,
                env=kept | environment,
                stdout=output,
                stderr=output,
            )

    def text(self):
        return self.log.read_text()

    def says(self, words):
        return until(lambda: words in self.text() or self.process.poll() is not None, words, self.log) and (
            words in self.text() or pytest.fail(self.text())
        )

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(25)


@pytest.fixture
def dev(tmp_path):
    with contextlib.ExitStack() as stack:

        def started(*arguments, **environment):
            running = Dev(tmp_path, *arguments, **environment)
            stack.callback(running.close)
            return running

        yield started


def test_dev_installs_the_schema_runs_the_tasks_reloads_and_stops_all_it_started(
    octop, dev, empty_database, tmp_path, monkeypatch
):
    monkeypatch.setenv("OCTOP_DSN", empty_database.url)
    monkeypatch.setenv("OCTOP_SCHEMA", "two")
    octop("init")
    running = dev(OCTOP_DSN=empty_database.url)
    running.says("installed the schema two")
    running.says("octop dev: running tasks.py (3 task types);")
    for words in (
        "Ctrl-C ends",
        "the database: postgresql://",
        ", schema two\n",
        "enqueue TYPE",
        "PGOPTIONS=-csearch_path=two psql ",
    ):
        assert words in running.text()
    # the other terminal is led to the same place
    assert re.search(r"^  export OCTOP_DSN='?postgresql://\S+ OCTOP_SCHEMA=two$", running.text(), re.MULTILINE)
    until(lambda: octop.json("workers"), "the worker has registered", running.log)
    ids = [
        octop("enqueue", *words).strip()
        for words in (
            ["send_welcome", "user_id=42"],
            ["resize_image", "path=cat.png"],
            ["monthly_report", "month=2030-01-31"],
        )
    ]
    octop("tasks", "wait", *ids, "--timeout", "25")
    results = [octop.json("tasks", "show", each)["result"] for each in ids]
    assert results[:2] == ["welcome, user 42", "cat.png@640"]
    assert results[2]["year"] == 2030
    # a change of the code is seen
    tasks = tmp_path / "tasks.py"
    (first,) = octop.json("workers")
    tasks.write_text(tasks.read_text().replace("welcome, user", "hello, user"))
    until(lambda: [w for w in octop.json("workers") if w["id"] != first["id"]], "it has started again", running.log)
    assert '"hello, user 7"' in octop("enqueue", "send_welcome", "user_id=7", "--wait", "--wait-timeout", "25")
    pids = [each["pid"] for each in octop.json("workers")]
    assert running.stop() == 0
    assert octop.json("workers") == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert octop.json("tasks", "show", ids[0])["status"] == "success"


def test_dev_finds_tasks_py_without_a_toml_and_takes_a_schema_that_is_there(octop, dev, database, tmp_path, hire):
    octop("init")
    (tmp_path / "octop.toml").unlink()
    hire(name="dev elsewhere", queues=["default", "mail"])
    hire(name="dev far", queues=["mail"])
    running = dev("-q", "default=3,defualt", OCTOP_DSN=database.url)
    running.says("running tasks.py (")
    until(lambda: len(octop.json("workers")) == 3, "the worker has registered", running.log)
    assert "installed" not in running.text()
    assert "another worker serves default here, maybe with other code: dev elsewhere (on " in running.text()
    assert "dev far" not in running.text()
    assert "no task type of the application is in the queue defualt; did you mean default?" in running.text()
    (ours,) = [each for each in octop.json("workers") if each["queues"] == ["default", "defualt"]]
    assert ours["name"] == f"dev {tmp_path.name}"
    assert running.stop(signal.SIGTERM) == 0


SAVED = """
import asyncio
from octop import Octop

octop = Octop()


@octop.task
async def sleep() -> None:
    await asyncio.sleep(300)


@octop.task
async def answer() -> int:
    return {}
"""


def test_dev_runs_what_is_saved_at_once_whatever_runs_and_bears_a_broken_file(octop, dev, database, tmp_path):
    tasks = tmp_path / "tasks.py"
    tasks.write_text(SAVED.format(1))
    running = dev(OCTOP_DSN=database.url)
    task_id = octop("enqueue", "sleep").strip()
    until(lambda: octop.json("tasks", "show", task_id)["status"] == "running", "it runs", running.log)
    tasks.write_text(SAVED.format(22))
    running.says("restarting")
    tasks.write_text(SAVED.format(333))
    assert "success 333" in octop("enqueue", "answer", "--wait", "--wait-timeout", "25")
    with database.connect() as connection:
        until(lambda: octop.json("tasks", "show", task_id)["status"] == "running", "it runs again", running.log)
        used = connection.execute("select retry_count from octop_tasks where id = %s", (task_id,)).fetchone()
    assert used == (0,)  # it went back, and that was no try
    octop("tasks", "cancel", task_id)
    assert "ERROR" not in running.text()
    tasks.write_text("def (")
    running.says("hint: Save the corrected file: the worker starts again.")
    assert running.process.poll() is None
    tasks.write_text(SAVED.format(4444))
    assert "success 4444" in octop("enqueue", "answer", "--wait", "--wait-timeout", "25")
    assert running.stop() == 0


def test_dev_ends_where_no_save_brings_the_application(dev, database, tmp_path):
    (tmp_path / "tasks.py").write_text(SAVED.format(1))
    running = dev("-A", "tasks:octopus", OCTOP_DSN=database.url)
    assert running.process.wait(25) == 1
    assert "the module tasks has no attribute octopus" in running.text()
    assert "running" not in running.text()


def test_dev_without_an_application_says_what_to_type_and_starts_nothing(octop, tmp_path, monkeypatch):
    monkeypatch.delenv("OCTOP_DSN")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    octop("dev", code=2)
    assert "octop init writes one" in octop.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_dev_without_a_dsn_has_a_private_database_that_stays_with_its_data(dev, tmp_path, monkeypatch, octop):
    # Short, because a socket lies in it, and passable for the server's user, which is another one if we are root.
    home = Path(tempfile.mkdtemp(prefix="octop-home-", dir="/tmp"))
    home.chmod(0o755)
    monkeypatch.delenv("OCTOP_DSN")
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    octop("init")
    try:
        running = dev(XDG_DATA_HOME=str(home))
        running.says("octop db psql") if shutil.which("octop") else running.says("db psql")
        assert f"using the private database in {home}" in running.text()
        until(lambda: octop.json("workers"), "the worker has registered", running.log)
        task_id = octop.json("enqueue", "send_welcome", "user_id=1", "--wait", "--wait-timeout", "25")["id"]
        assert octop.err == ""  # it runs already: nothing to say
        octop("-v", "tasks", "list")
        assert f"using the private database in {home}" in octop.err
        running.says(f"success of send_welcome {task_id} after ")
        assert running.stop() == 0
        assert "the database runs on with your data" in running.text()
        assert "(no DSN: the private one, which all your projects share)" in running.text()
        assert octop.json("db", "status")["running"] is True
        with psycopg.connect(octop.json("db", "url")["url"]) as connection:
            assert connection.execute("select status from octop_tasks").fetchall() == [("success",)]
            connection.execute("update octop_migrations set checksum = 'older' where name like '0001%'")
        for command in ("migrate", "dev"):
            octop(command, code=5)
            assert "An older development version made the private database; `octop db reset` deletes it" in octop.err
    finally:
        octop("db", "reset", "--yes")
        shutil.rmtree(home, ignore_errors=True)
