"""The command, run in process, so that forty commands take seconds."""

from __future__ import annotations

import json

from octop.cli import entry


class Command:
    """Runs `octop` as a shell would, less the start of Python."""

    def __init__(self, capsys):
        self.capsys = capsys
        self.err = ""

    def __call__(self, *arguments, code=0):
        self.capsys.readouterr()
        ended = entry.run([str(each) for each in arguments])
        printed = self.capsys.readouterr()
        assert ended == code, printed.err
        self.err = printed.err
        return printed.out

    def json(self, *arguments, code=0):
        return json.loads(self(*arguments, "--json", code=code))
