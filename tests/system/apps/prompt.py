"""The everyday application in a worker that tells five times a second how it goes, and tries again soon."""

from __future__ import annotations

from octop.worker import heart, link
from tests.system.apps.everyday import octop

__all__ = ["octop"]

heart.TELL_SECONDS = 0.2  # type: ignore[misc]
link.PAUSE_SECONDS_MAX = 0.3  # type: ignore[misc]
