"""The everyday application in a worker that waits 2 seconds for an answer where others wait 15, and whose listening must prove itself each second."""

from __future__ import annotations

from octop.engine import listener
from octop.worker import shutdown
from octop.worker.exchange import Exchange
from octop.worker.link import Link
from tests.system.apps.everyday import octop

__all__ = ["octop"]

for each in (Link.call, Link.patiently, Exchange.run):
    assert each.__kwdefaults__ is not None
    each.__kwdefaults__["seconds"] = 2.0
listener.PROOF_SECONDS = 1.0  # type: ignore[misc]
listener.ANSWER_SECONDS_MAX = 1.0  # type: ignore[misc]
shutdown.DELIVERY_SECONDS = 3.0  # type: ignore[misc]
