"""Draw `docs/images/task-states.svg` from `docs/explanation/task-states.mmd`: a site without network runs no Mermaid. A test compares.

python tools/state_picture.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = HOUSE / "docs" / "explanation" / "task-states.mmd"
PICTURE: Final = HOUSE / "docs" / "images" / "task-states.svg"

# Where the states stand (the middle of each), and how the arrows go from one to the other: path, place of the words.
STATES: Final = {
    "pending": (240, 130),
    "running": (490, 130),
    "success": (800, 130),
    "blocked": (240, 290),
    "failed": (490, 290),
    "frozen": (800, 290),
    "cancelled": (490, 430),
}
FINAL: Final = ("success", "cancelled")
ARROWS: Final = {
    ("[*]", "pending"): ("M 42 130 H 174", (106, 118)),
    ("pending", "running"): ("M 304 130 H 424", (362, 120)),
    ("running", "pending"): ("M 460 107 C 430 40 300 40 268 105", (365, 50)),
    ("running", "success"): ("M 554 130 H 734", (644, 120)),
    ("running", "failed"): ("M 510 153 V 265", (577, 240)),
    ("failed", "running"): ("M 470 267 V 155", (446, 215)),
    ("running", "frozen"): ("M 550 148 L 740 268", (700, 200)),
    ("pending", "blocked"): ("M 220 153 V 265", (163, 215)),
    ("blocked", "pending"): ("M 260 267 V 155", (312, 215)),
    ("frozen", "pending"): ("M 770 313 C 720 355 600 358 490 346 C 360 330 420 210 308 148", (690, 372)),
    ("pending", "cancelled"): ("M 176 138 C 20 190 20 440 424 436", None),
    ("running", "cancelled"): ("M 554 142 C 690 220 650 380 556 416", None),
    ("failed", "cancelled"): ("M 490 313 V 405", None),
    ("blocked", "cancelled"): ("M 260 313 C 290 370 350 400 424 422", None),
    ("frozen", "cancelled"): ("M 800 313 C 790 390 690 420 558 428", (830, 362)),
    ("success", "[*]"): ("M 864 130 H 912", None),
    ("cancelled", "[*]"): ("M 552 440 H 912", None),
}
HEAD: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 470" role="img" aria-labelledby="title">
<title id="title">The states of a task</title>
<style>
  text { font: 14px system-ui, sans-serif; text-anchor: middle; fill: #24292f; }
  .state { font-weight: 600; font-size: 16px; dominant-baseline: central; }
  rect { fill: #eef4fb; stroke: #2f6db5; stroke-width: 1.5; }
  .final rect { fill: #eef8f0; stroke: #2e8b57; }
  path { fill: none; stroke: #57606a; stroke-width: 1.5; marker-end: url(#tip); }
  .cancel { stroke-dasharray: 5 4; opacity: 0.7; }
  .end { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    rect { fill: #16263a; }
    .final rect { fill: #14291c; }
    path { stroke: #9aa4af; }
    .end { fill: #9aa4af; }
  }
</style>
<defs>
  <marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
    <polygon class="end" points="0,0 10,5 0,10"/>
  </marker>
</defs>
"""


def transitions() -> dict[tuple[str, str], str]:
    """Return what stands in the Mermaid source: from, to, and the words at the arrow."""
    found = re.findall(r"^\s*(\S+) --> (\w+|\[\*\])(?:: (.*))?$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    return {(one, other): words for one, other, words in found}


def picture() -> str:
    """Return the whole picture."""
    parts = [HEAD]
    for edge, words in transitions().items():
        path, place = ARROWS[edge]
        kind = ' class="cancel"' if words == "cancel" else ""
        parts.append(f'<path{kind} d="{path}"/>\n')
        if words and place:
            parts.append(f'<text x="{place[0]}" y="{place[1]}">{words}</text>\n')
    for x, y in ((36, 130), (920, 130), (920, 440)):
        parts.append(f'<circle class="end" cx="{x}" cy="{y}" r="7"/>\n')
    for name, (x, y) in STATES.items():
        kind = ' class="final"' if name in FINAL else ""
        parts.append(
            f'<g{kind}><rect x="{x - 64}" y="{y - 22}" width="128" height="44" rx="9"/>'
            f'<text class="state" x="{x}" y="{y}">{name}</text></g>\n'
        )
    return "".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")
