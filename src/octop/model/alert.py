"""An alert as hooks get it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Alert:
    """What a person should know: a row of ``octop_alerts``.

    Attributes:
        id: Number of the alert. It may be handed over more than once: keep it, where that matters.
        kind: ``type_frozen``, ``type_unknown``, ``watermark_reached``, ``watermark_lifted`` or ``worker_lost``.
        subject: The task type, queue or worker that it is about.
        severity: ``info``, ``warning`` or ``error``.
        message: One or two sentences for people.
        detail: The same for programs.
        at: When it happened first.
        last_at: When it happened last.
        count: How often it has happened since somebody acknowledged the one before.
        tenant: Whose it is; empty = of all.
        taken_at: When a worker took it to hand it over, on the database's clock.
        tries: How often it has been tried, this one included.
    """

    id: int
    kind: str
    subject: str
    severity: Severity
    message: str
    detail: Mapping[str, Any]
    at: datetime
    last_at: datetime
    count: int
    tenant: str
    taken_at: datetime
    tries: int
