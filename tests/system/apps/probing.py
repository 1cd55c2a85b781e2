"""Ask a worker over HTTP how it is."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from typing import Any

from tests.system.apps.running import Worker, until


class Probe:
    """Asks a worker how it is."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        found = until(lambda: re.search(r"health: http://127\.0\.0\.1:(\d+)/", worker.text()), "the door", worker.log)
        self.port = int(found[1])

    def __call__(self, path: str = "/healthz", method: str = "GET") -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        with contextlib.ExitStack() as stack:
            try:
                answer = stack.enter_context(urllib.request.urlopen(request, timeout=10))
            except urllib.error.HTTPError as error:
                answer = stack.enter_context(error)
            text = answer.read()
            assert answer.headers["Content-Type"] == "application/json"
            return answer.status, json.loads(text) if text else None

    def code(self, path: str = "/healthz") -> int:
        return self(path)[0]

    def green(self) -> Probe:
        """Wait until it is green, and gives no reason not to be in the same answer: in the next one there may be one."""

        def is_green() -> bool:
            code, body = self()
            assert code != 200 or body["why"] == []
            return code == 200

        until(is_green, "it is green", self.worker.log)
        return self

    def red(self, words: str = "") -> Any:
        """Wait until it is red for a reason; another may be told first, as when beats and claims fail one after the other."""
        found: list[Any] = []

        def is_red() -> bool:
            code, body = self()
            found[:] = [body]
            return code == 503 and words in " ".join(body["why"])

        until(is_red, f"it is red, for {words!r}", self.worker.log)
        return found[0]
