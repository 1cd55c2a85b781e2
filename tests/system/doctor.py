"""`octop doctor`, run in process, and the cures that it names, run as a person would type them."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from octop.cli import entry
from octop.cli.doctor.kinds import BY_ID
from tests.sql.crew import value
from tests.system.provoked import saw

SHORT_OF_A_WHOLE_SERVER = (
    # what the servers of the tests are like, who else tests there, and from where the tests may be started
    "settings", "roles", "statements", "clocks", "package",
)  # fmt: skip


class Doctor:
    """Runs `octop doctor` on one database, and the cures that it names."""

    def __init__(self, database, capsys):
        self.database = database
        self.capsys = capsys

    def __call__(self, *arguments, code=None):
        self.capsys.readouterr()
        ended = entry.run(["doctor", *map(str, arguments)])
        printed = self.capsys.readouterr()
        self.err = printed.err
        if code is not None:
            assert ended == code, printed
        return printed.out

    def findings(self, *arguments, code=None):
        found = json.loads(self(*arguments, "--json", code=code))
        saw(each["id"] for each in found)
        return found

    def one(self, kind, *arguments):
        """Return the only finding of this kind, and see that its exit code is that of its severity."""
        bad = BY_ID[kind].severity > 1
        schema = kind in {"schema.missing", "schema.older", "schema.newer", "schema.migration_changed"}
        (finding,) = self.findings("--only", kind, *arguments, code=5 if schema else int(bad))
        assert finding["id"] == kind
        assert finding["severity"] == str(BY_ID[kind].severity)
        assert finding["what"]
        assert finding["why"]
        return finding

    def cure(self, finding):
        """Run what the finding names, as a person would type it."""
        for place in ("psql", "shell"):
            lines = [step["run"] for step in finding["cure"] if step["in"] == place]
            if place == "psql" and lines:
                self.database.psql("\n".join(lines))
            for line in lines if place == "shell" else []:
                words = shlex.split(line, comments=True)
                if words[0] == "octop":
                    assert entry.run(words[1:]) == 0, line
                else:
                    subprocess.run(["/bin/sh", "-c", line], check=True)

    def heals(self, kind, *arguments):
        """Find it, run its cure, and find it no more."""
        finding = self.one(kind, *arguments)
        assert finding["cure"], "a finding names its cure"
        self.cure(finding)
        assert self.findings("--only", kind, *arguments, code=0) == []
        return finding


def wait_for(connection, statement):
    """Wait until a statement answers true; the statistics of PostgreSQL come late."""
    for _ in range(500):
        if value(connection, statement):
            return
        connection.execute("select pg_sleep(0.02)")
    pytest.fail(f"never true: {statement}")
