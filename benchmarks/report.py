"""Write what a run found: DATE.md to read, DATE.json to compute with; with machine, versions and commit."""

import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.answer import Answer
from benchmarks.peers.environments import HOUSE
from benchmarks.peers.peer import NODE, PEERS
from octop import __version__

RESULTS: Final = HOUSE / "benchmarks" / "results"


@dataclass(slots=True)
class Report:
    """A run and its answers, and those of earlier runs of the same day that it adds to.

    Args:
        full: The full form.
        server: Version and settings.
        measured: By script, when it was run and of which commit.
    """

    full: bool
    server: dict[str, str]
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)
    load: list[float] = field(default_factory=lambda: [os.getloadavg()[0]])

    def about(self) -> dict[str, Any]:
        """Return what a reader must know to judge the figures."""
        seconds = (datetime.now(UTC) - self.began).total_seconds()
        return {
            "date": self.began.isoformat(timespec="seconds"),
            "form": "full" if self.full else "short",
            "minutes": round(seconds / 60, 1),
            "octop": __version__,
            "commit": commit(),
            "machine": machine(),
            "load average": [round(each, 1) for each in (*self.load, os.getloadavg()[0])],
            "python": platform.python_version(),
            "postgresql": self.server,
            "peers": {peer.name: " ".join(peer.packages) for peer in PEERS} | {"node": NODE},
        }

    @property
    def name(self) -> str:
        """Return the name of both files, without an ending."""
        return f"{self.began:%Y-%m-%d}" + ("" if self.full else "-short")

    def add_to_earlier(self, folder: Path = RESULTS) -> None:
        """Take over what a run of this day and form has found before: whatever is measured now takes its place."""
        earlier = folder / f"{self.name}.json"
        if not earlier.is_file():
            return
        data = json.loads(earlier.read_text())
        self.answers = {key: [Answer.from_json(each) for each in found] for key, found in data["answers"].items()}
        self.measured = {key: data.get("measured", {}).get(key, data["about"]["commit"]) for key in self.answers}
        self.texts = data["texts"]

    def add(self, script: str, answers: list[Answer]) -> None:
        """Keep the answers of one script, the last in order."""
        for known in (self.answers, self.measured):
            known.pop(script, None)
        self.answers[script] = answers
        self.measured[script] = f"{commit()}, {datetime.now(UTC).isoformat(timespec='minutes')}"

    def write(self, folder: Path = RESULTS) -> Path:
        """Write both files; return the one to read."""
        folder.mkdir(exist_ok=True)
        name = self.name
        data = {
            "about": self.about(),
            "answers": {key: [answer.json() for answer in found] for key, found in self.answers.items()},
            "measured": self.measured,
            "texts": self.texts,
            "failed": self.failed,
        }
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        page = folder / f"{name}.md"
        page.write_text("\n".join(self.markdown()) + "\n")
        return page

    def markdown(self) -> list[str]:
        """Return the page."""
        about = self.about()
        found = [f"# Benchmarks of {self.began:%Y-%m-%d} ({about['form']} form)", ""]
        for key, value in about.items():
            shown = ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, dict) else value
            found.append(f"- {key}: {', '.join(map(str, shown)) if isinstance(shown, list) else shown}")
        found += [
            "",
            "How it is measured, and what is not equal between contenders: `benchmarks/peers/__init__.py`.",
            "",
        ]
        for script, answers in self.answers.items():
            for answer in answers:
                found += answer.markdown()
            found += [f"(`bench_{script}`; {self.measured[script]})", ""]
        for name, text in self.texts.items():
            found += [f"## {name}", "", "```text", text.rstrip(), "```", ""]
        if self.failed:
            found += ["## Not measured", "", *(f"- {name}: {reason}" for name, reason in self.failed.items()), ""]
        return found


def commit() -> str:
    """Return the commit, and whether the tree differs from it."""
    git = ["git", "-C", str(HOUSE)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode != 0:
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False).stdout
    return head.stdout.strip() + (" with changes" if changed.strip() else "")


def machine() -> str:
    """Return processor, cores, memory and system, in a line."""
    model, memory = platform.machine(), 0
    for text in _lines("/proc/cpuinfo"):
        if text.startswith("model name"):
            model = text.partition(":")[2].strip()
            break
    for text in _lines("/proc/meminfo"):
        if text.startswith("MemTotal"):
            memory = int(text.split()[1]) // 1024 // 1024
    return f"{model}; {os.cpu_count()} cores; {memory} GiB; {platform.system()} {platform.release()}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
