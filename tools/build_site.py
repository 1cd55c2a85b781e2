"""Build the site from the Markdown: `build/site/index.html`. A broken link or a page that nothing leads to is an error.

python tools/build_site.py [GOAL]
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parent.parent
GOAL: Final = HOUSE / "build" / "site"
LINK: Final = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

CONFIGURATION: Final = """\
project = "Octop"
copyright = "the Octop authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Octop"
html_copy_source = False
html_show_sphinx = False
highlight_language = "none"
nitpicky = True
"""


def layout() -> dict[Path, Path]:
    """Return where each file of the house stands in the site, both relative."""
    found = {each: each.relative_to("docs") for each in _files("docs/**/*") if each.suffix in (".md", ".svg", ".mmd")}
    found |= {each: each for each in _files("examples/**/*") if "__pycache__" not in each.parts}
    found |= {Path(name): Path(name.lower()) for name in ("CHANGELOG.md", "CONTRIBUTING.md")}
    return found


def _files(pattern: str) -> Iterator[Path]:
    return (each.relative_to(HOUSE) for each in sorted(HOUSE.glob(pattern)) if each.is_file())


def moved(page: Path, text: str, places: dict[Path, Path]) -> str:
    """Return the text of a page with links that lead to the same files from its new place."""

    def follow(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / found[2]))
        if target == Path("README.md"):
            target = Path("docs/index.md")
        # what has no place in the site stays as it is, and the build says so
        place = places.get(target, target)
        return f"{found[1]}{os.path.relpath(place, places[page].parent)}{found[3]}"

    parts = re.split(f"({BLOCK.pattern})", text, flags=BLOCK.flags)
    return "".join(part if part.startswith("```") else LINK.sub(follow, part) for part in parts)


def navigation(text: str) -> str:
    """Return what Sphinx needs to know of an index: its links to pages, section by section."""
    made = []
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    pages_of = [list(dict.fromkeys(re.findall(r"\]\(([^)#:\s]+)\.md\)", section))) for section in sections]
    later = {
        page for pages in pages_of[1:] for page in pages
    }  # what stands above the first section is a choice of them
    for section, found in zip(sections, pages_of, strict=True):
        title = section.partition("\n")[0].lstrip("# ")
        pages = [page for page in found if section is not sections[0] or page not in later]
        if pages:
            made.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""]))
    return "\n".join(made)


def lay_out(folder: Path) -> None:
    """Put everything where the site wants it."""
    places = layout()
    for page, place in places.items():
        goal = folder / place
        goal.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix != ".md":
            shutil.copyfile(HOUSE / page, goal)
            continue
        text = moved(page, (HOUSE / page).read_text(encoding="utf-8"), places)
        if place.name == "index.md":
            text += navigation(text)
        goal.write_text(text, encoding="utf-8")
    (folder / "conf.py").write_text(CONFIGURATION, encoding="utf-8")


def build(goal: Path) -> int:
    """Build into a folder; return 0, or 1 when Sphinx found fault with anything."""
    from sphinx.cmd.build import build_main  # noqa: PLC0415 - the tests look at the layout without it

    with tempfile.TemporaryDirectory(prefix="octop-site-") as source:
        lay_out(Path(source))
        options = ["-q", "-b", "html", "--fail-on-warning", "--keep-going", "--nitpicky"]
        return build_main([*options, "-d", f"{source}/.doctrees", source, str(goal)])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if sys.argv[1:] else GOAL))
