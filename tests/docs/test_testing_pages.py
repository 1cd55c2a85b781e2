"""The pages about testing tasks and about `octop check`: their files are written, their tests and commands run."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

from octop.cli import entry
from octop.cli.check.kinds import KINDS
from octop.worker.load import load_application
from tests.docs.pages import HOW_TO, blocks, environment
from tools import doctor_page

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|0190…")
TIME = re.compile(r"0:59:59(?:\.\d+)?|1:00:00")
INSTALLED = any(each.name == "octop" for each in entry_points(group="pytest11"))


def files(page, *languages):
    """Return the files of a page in its order, as name and text; the first line of a block names its file."""
    found = [body for language in languages for body in blocks(page, language)]
    assert all(re.match(r"# [\w.]+\n", body) for body in found), "each block says to which file it belongs"
    return [(body.partition("\n")[0][2:], body) for body in found]


def test_test_your_tasks(postgres, tmp_path):
    page = HOW_TO / "test-your-tasks.md"
    for name, text in files(page, "toml", "python"):
        with (tmp_path / name).open("a") as file:
            file.write(text + "\n\n")
    (tmp_path / "test_message.py").write_text(
        "from shop import send_welcome, sign_up\n\n"
        "def test_message(octop_database):\n"
        "    sign_up(42)\n"
        "    octop_database.assert_enqueued(send_welcome, payload={'user_id': 43})\n"
    )
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *([] if INSTALLED else ["-p", "octop.testing.plugin"]),
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env={**environment("postgresql://nobody.invalid/production"), "OCTOP_TEST_DSN": postgres.url()},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    tests = len(re.findall("^def test_", (tmp_path / "test_shop.py").read_text(), re.MULTILINE))
    assert re.search(rf"1 failed, {tests} passed", answer.stdout), answer.stdout
    shown = [line.removeprefix("E").strip() for line in answer.stdout.splitlines() if line.startswith("E ")]
    (told,) = blocks(page, "text")
    assert [plain(line) for line in shown] == [plain(line.strip()) for line in told.splitlines()]


def plain(line):
    return TIME.sub("TIME", ID.sub("ID", line))


@pytest.fixture
def folder(database, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OCTOP_DSN", database.url)
    yield tmp_path
    for name in ("shop", "shop_v1"):
        sys.modules.pop(name, None)


def test_check_before_deploy(database, folder, capsys, monkeypatch):
    page = HOW_TO / "check-before-deploy.md"
    old, new, mended = files(page, "python")
    (folder / old[0]).write_text(old[1])
    before: Any = load_application("shop_v1:octop")
    for number in range(3):
        before.named("send").enqueue_sync(number, "a@example.com")
    for number in range(2):
        before.named("sync_user").enqueue_sync(number)
    alone, whole = [line.split()[1:] for block in blocks(page, "bash") for line in block.splitlines()]
    printed = []
    for (name, text), code in ((new, 1), (mended, 0)):
        sys.modules.pop("shop", None)
        (folder / name).write_text(text)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        capsys.readouterr()
        assert entry.run(whole) == code
        printed.append(capsys.readouterr().out)
        assert entry.run(alone) == 0
    (told,) = blocks(page, "text")
    assert plain(printed[0]) == plain(told)
    assert printed[1].startswith("Fits.")


def test_the_table_of_findings_is_that_of_the_command():
    rows = re.findall(r"^\| `\w+\.\w+` \|.*\n", (HOW_TO / "check-before-deploy.md").read_text(), re.MULTILINE)
    assert rows == [doctor_page.row(kind) for kind in KINDS]
