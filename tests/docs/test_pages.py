"""What holds for every page: links, commands and decisions are complete; generated pages are what their source says."""

from __future__ import annotations

import inspect
import re
from decimal import Decimal

import pytest
from click.testing import CliRunner

from octop.cli.root import root
from octop.engine.install import install
from tests.docs.pages import HOUSE, PAGES, commands
from tools import commands_page, settings_page, sql_page, state_picture

NAMES = [str(page.relative_to(HOUSE)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.relative_to(HOUSE)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_that_is_named_exists_with_its_options(page):
    for words in commands(page):
        # --help is looked at when all words have been read: an unknown command or option is refused before it
        answer = CliRunner().invoke(root, [*words, "--help"])
        if answer.exit_code and words[-1].startswith("-"):  # "-q" alone takes --help for its value
            answer = CliRunner().invoke(root, [*words, "x", "--help"])
        assert answer.exit_code == 0, f"octop {' '.join(words)}: {answer.output}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_file_of_the_house_that_is_named_exists(page):
    for name in re.findall(r"`((?:tests|src|tools|docs)/[\w./*-]+)`", page.read_text()):
        assert list(HOUSE.glob(name.rstrip("/"))), f"{page.relative_to(HOUSE)} names {name}"


def test_every_decision_says_what_was_chosen_refused_and_paid():
    for page in sorted((HOUSE / "docs" / "decisions").glob("0*.md")):
        text = page.read_text().lower()
        for word in ("question", "choice", "refused", "cost", "how we would notice"):
            assert word in text, f"{page.name} does not say: {word}"


def test_the_page_of_commands_is_what_the_commands_say():
    assert commands_page.PAGE.read_text() == commands_page.page(), "python tools/commands_page.py writes it again"


def test_help_that_the_terminal_does_not_wrap_is_a_block_of_the_page_of_commands():
    page = commands_page.page()
    assert "\b" not in page
    unwrapped = [
        paragraph.partition("\n")[2]
        for _, command in commands_page.commands(root, "octop")
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n")
        if paragraph.startswith("\b\n")
    ]
    assert len(unwrapped) >= 3
    for each in unwrapped:
        assert f"\n```text\n{each}\n```\n" in page


def test_the_page_of_settings_is_what_the_sql_file_says():
    assert settings_page.PAGE.read_text() == settings_page.page(), "python tools/settings_page.py writes it again"


def test_the_settings_that_are_read_from_the_file_are_those_of_the_database(database):
    rows = database.connect().execute("select * from octop_config_keys()").fetchall()
    ours = [
        (each.key, each.kind, each.default, each.minimum, each.maximum, each.alias_of, each.description)
        for each in settings_page.settings()
    ]
    assert ours == [tuple(float(value) if isinstance(value, Decimal) else value for value in row) for row in rows]


def test_the_page_of_sql_is_what_the_catalog_says(empty_database):
    with empty_database.connect() as connection:
        connection.execute("revoke create on schema public from public")
    install(empty_database.url)
    with empty_database.connect() as connection:
        assert sql_page.PAGE.read_text() == sql_page.page(connection), "python tools/sql_page.py writes it again"


def test_the_page_of_sql_leaves_no_function_out():
    told = set(re.findall(r"^### (octop_\w+)$", sql_page.PAGE.read_text(), re.MULTILINE))
    defined = {name for _, names in sql_page.groups().values() for name in names}
    assert len(defined) > 30
    assert defined <= told


def test_the_picture_of_the_states_is_what_its_source_says():
    assert state_picture.PICTURE.read_text() == state_picture.picture(), "python tools/state_picture.py draws it again"
    assert set(state_picture.ARROWS) == set(state_picture.transitions())


def test_the_words_beside_the_picture_say_the_same():
    page = (HOUSE / "docs" / "explanation" / "how-a-task-lives.md").read_text()
    told = {
        (one.replace("–", "[*]"), other)
        for ones, other in re.findall(r"^\| ([\w–, ]+) \| (\w+) \| [^|]+ \|$", page, re.MULTILINE)
        for one in ones.split(", ")
        if other in state_picture.STATES
    }
    assert told == {edge for edge in state_picture.transitions() if edge[1] != "[*]"}
