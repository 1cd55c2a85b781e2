"""`octop tasks`: one file per duty; importing this package puts the group together."""

from __future__ import annotations

from octop.cli.tasks import acts, export, show
from octop.cli.tasks.group import tasks
from octop.cli.tasks.list import COLUMNS
from octop.cli.tasks.wait import ending_of, report_ended, wait_until_ended

__all__ = ["COLUMNS", "acts", "ending_of", "export", "report_ended", "show", "tasks", "wait_until_ended"]
