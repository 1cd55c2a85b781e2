"""Structured logs: one JSON object a line, or text for people."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Write a record as one line of JSON; what was passed as ``extra`` become fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "at": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update((name, value) for name, value in vars(record).items() if name not in _ORDINARY)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


def configure_logging(log_format: str, level: str) -> None:
    """Send all logs of this process to stderr.

    Args:
        log_format: ``text`` or ``json``.
        level: Name of the lowest level that is written.
    """
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
