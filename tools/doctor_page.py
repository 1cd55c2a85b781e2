"""Write `docs/reference/doctor.md` from the table of everything that the doctor can find. A test compares.

python tools/doctor_page.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

from octop.cli.doctor.kinds import KINDS, RUN_BY
from octop.cli.findings import Kind

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "doctor.md"

HEAD: Final = """# What `octop doctor` finds

This page is generated from the doctor's own table by `tools/doctor_page.py`.

```
octop doctor                             # all checks, on the database of OCTOP_DSN
octop doctor --only grants --only schema # only these subjects, or single ids: --only grants.too_wide
octop doctor --skip statements --json    # a list of findings, for a monitor
octop doctor --strict                    # what is only worth knowing counts too
```

It asks in read-only transactions, each bounded in time (`--check-timeout`, 5 seconds), and changes nothing. Nothing of your application is imported. The role `octop_viewer` is enough; with `pg_read_all_stats` it also sees who holds back vacuum.
What a login may not see is said, not skipped in silence. A check that fails or takes too long becomes a finding and stops no other.

Each finding says what was found, why it matters, and what to type: lines with `=>` in psql, lines with `$` in the shell. A hint says in words what else may be needed, where it depends on what the doctor can not see. The ids below are stable.

With `--json`, `octop doctor` prints a list of findings. They have the same keys as those of `octop check`:

| key | holds |
|---|---|
| `id`, `severity` | which kind, and how bad it is: `info`, `warning` or `error` |
| `what`, `why` | what was found here, and why it matters |
| `cure` | what to run: a list of `{"in": "psql" or "shell", "run": …}` |
| `hint` | what else to do, in words |
| `detail` | lines that show it |
| `task_type` | the task type that it is about, or `null` |
| `count`, `ids` | how many tasks or workers, and the ids or names of the first ten; one id of many tasks is that of the oldest |
| `sampled` | `true` where only a sample was counted |

| exit code | meaning |
|---|---|
| 0 | nothing worse than `info` |
| 1 | a warning or an error; with `--strict` also an `info` |
| 4 | no database answers |
| 5 | the schema is missing, or of another version |

No command takes a right from the login that runs the doctor, nor from the last superuser that can log in: a hint says what to do instead. Most cures can be run by a member of the owner's role; where it takes another login, the hint says which.
While objects belong to another role than the owner's, as after a restore with `--no-owner`, that is the one finding about rights: the others are looked at when the owner is right.
On the private development database it does not ask about settings of the server, superusers, `pg_stat_statements` and time zone data: these are Octop's own doing there.

A finding that is intended can be left out for good: `octop doctor --skip settings.jit`.
"""

TITLES: Final = {
    "schema": "The schema",
    "grants": "Rights on objects",
    "roles": "Roles and logins",
    "workers": "Workers",
    "queues": "Queues",
    "types": "Task types",
    "tasks": "Tasks",
    "schedules": "Schedules",
    "days": "Days of history, and the sweep",
    "vacuum": "Dead rows",
    "settings": "Settings of PostgreSQL",
    "connections": "Connections",
    "statements": "Statements",
    "clocks": "Clocks and time zones",
    "package": "The package on this machine",
    "environment": "The environment of this process",
    "doctor": "The doctor itself",
}


def row(kind: Kind) -> str:
    """Return the row of one kind of finding."""
    by = f"; as {RUN_BY[kind.id]}" if kind.id in RUN_BY else ""
    return f"| `{kind.id}` | {kind.severity} | {kind.title} | {kind.why} | {kind.cure}{by} |\n"


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for subject, kinds in groupby(KINDS, key=lambda kind: kind.subject):
        parts.append(
            f"\n## {TITLES[subject]}\n\n| id | severity | what is found | why it matters | cure |\n|---|---|---|---|---|\n"
        )
        parts += map(row, kinds)
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
