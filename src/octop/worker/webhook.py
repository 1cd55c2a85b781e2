"""A webhook for alerts: where it leads and its secret come from the worker's environment, never from a row."""

import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final
from urllib.parse import urlsplit

from octop.model.alert import Alert
from octop.model.errors import ConfigurationError
from octop.worker.alerts import TRY_SECONDS, beside

URL: Final = "OCTOP_ALERT_WEBHOOK"
SECRET: Final = "OCTOP_ALERT_SECRET"  # noqa: S105 - the name of a variable
SECRET_BYTES_MIN: Final = 16


class WebhookRefusedError(Exception):
    """The other side answered, but not with 2xx."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are sent by HTTP POST, as JSON.

    Attributes:
        url: ``https://…``, or ``http://…`` where the way is safe.
        secret: Signs each request.
    """

    url: str
    secret: bytes = field(repr=False)

    async def deliver(self, alert: Alert) -> None:
        """Send one alert.

        Raises:
            WebhookRefusedError: The answer was not 2xx; a redirect is not followed.
            OSError: No connection, no answer, or a certificate that is not to be trusted.
        """
        await beside(self.send, alert)

    def send(self, alert: Alert) -> None:
        """Send one alert, and wait for the answer; see ``deliver``."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection = (
            http.client.HTTPSConnection(
                host, parts.port, timeout=TRY_SECONDS, context=ssl.create_default_context()
            )  # verifies names and certificates
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=TRY_SECONDS)
        )
        body = body_of(alert)
        path = parts.path or "/"
        try:
            connection.request(
                "POST", f"{path}?{parts.query}" if parts.query else path, body, headers_of(alert, body, self.secret)
            )
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                message = f"{host} answered {answer.status} {answer.reason}"
                raise WebhookRefusedError(message)
        finally:
            connection.close()


def body_of(alert: Alert) -> bytes:
    """Return an alert as JSON."""
    return json.dumps(asdict(alert), default=lambda moment: moment.isoformat(), ensure_ascii=False).encode()


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what stands in ``Octop-Signature``: HMAC-SHA256 of timestamp, a full stop, and the body."""
    return f"v1={hmac.new(secret, timestamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def headers_of(alert: Alert, body: bytes, secret: bytes) -> dict[str, str]:
    """Return the headers of a request."""
    timestamp = str(int(alert.taken_at.timestamp()))
    return {
        "Content-Type": "application/json",
        "User-Agent": "octop",
        "Octop-Alert": str(alert.id),
        "Octop-Timestamp": timestamp,
        "Octop-Signature": signature(secret, timestamp, body),
    }


def webhook_of(environment: Mapping[str, str]) -> Webhook | None:
    """Return the webhook that this environment names; None = none.

    Raises:
        ConfigurationError: The URL is none, or the secret is missing or too short to be one.
    """
    url = environment.get(URL, "")
    if not url:
        return None
    if not _is_good(url):
        message = f"{URL} is no URL that a webhook can have"
        raise ConfigurationError(message, hint="Write https://alerts.example.com/octop, without a login in it.")
    secret = environment.get(SECRET, "").encode()
    if len(secret) < SECRET_BYTES_MIN:
        message = f"{SECRET} is {'missing' if not secret else 'too short'}: it signs what is sent to {URL}"
        raise ConfigurationError(message, hint=f"At least {SECRET_BYTES_MIN} bytes, as from: openssl rand -hex 32")
    return Webhook(url, secret)


def _is_good(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    has_login = parts.username is not None or parts.password is not None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and has_place and is_plain and not has_login
