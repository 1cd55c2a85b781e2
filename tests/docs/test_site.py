"""The site builds without network, strictly, and loads nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import HOUSE
from tools import build_site

# What a browser fetches by itself; a link that the reader may click is none of these.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)[^>]*\ssrc=["']([^"']+)|<link[^>]*\shref=["']([^"']+)|<object[^>]*\sdata=["']([^"']+)"""
)
IN_STYLES = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


@pytest.mark.slow
@pytest.mark.long
def test_the_site_builds_strictly_without_network_and_loads_nothing_from_other_hosts(tmp_path):
    # a network that refuses everything: who asks for a page of another host fails the build
    script = (
        "import socket, sys; from pathlib import Path; from tools import build_site\n"
        "def refuse(*_): raise OSError('the site must build without network')\n"
        "socket.socket.connect = refuse\n"
        "sys.exit(build_site.build(Path(sys.argv[1])))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    every_page_can_be_reached(tmp_path)
    nothing_is_loaded_from_elsewhere(tmp_path)


def every_page_can_be_reached(built: Path) -> None:
    pages = [place for place in build_site.layout().values() if place.suffix == ".md"]
    assert len(pages) > 40
    entrance = (built / "index.html").read_text()
    for page in pages:
        assert (built / page).with_suffix(".html").exists(), page
        if page.parts[0] not in ("decisions", "index.md"):
            assert str(page.with_suffix(".html")) in entrance, f"nothing on the entrance leads to {page}"


def nothing_is_loaded_from_elsewhere(built: Path) -> None:
    seen = 0
    for file in built.rglob("*"):
        if file.suffix == ".html":
            found = [next(filter(None, groups)) for groups in LOADED.findall(file.read_text())]
        elif file.suffix in (".css", ".svg"):
            found = [next(filter(None, groups)) for groups in IN_STYLES.findall(file.read_text())]
        else:
            continue
        seen += len(found)
        foreign = [each for each in found if re.match(r"(?:https?:)?//", each)]
        assert not foreign, f"{file.relative_to(built)} loads {foreign}"
    assert seen > 100


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path, monkeypatch, capfd):
    house = tmp_path / "house"
    (house / "docs").mkdir(parents=True)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        (house / name).write_text(f"# {name}\n")
    index = house / "docs" / "index.md"
    index.write_text("# All\n\n[a](a.md) [b](../CHANGELOG.md) [c](../CONTRIBUTING.md)\n")
    monkeypatch.setattr(build_site, "HOUSE", house)
    page = house / "docs" / "a.md"
    page.write_text("# A\n\n[back](index.md)\n")
    assert build_site.build(tmp_path / "good") == 0
    page.write_text("# A\n\n[nowhere](b.md)\n")
    assert build_site.build(tmp_path / "bad") != 0
    page.write_text("# A\n")
    (house / "docs" / "lost.md").write_text("# Nobody links to me\n")
    assert build_site.build(tmp_path / "lost") != 0
    assert "lost.md" in capfd.readouterr().err
