"""Health probes: a port that answers over HTTP, and a file that is there while the worker can work.

Both live on the supervisor's event loop: when that stands still, no probe is answered and the file grows old. A probe asks nobody else, and
costs the work nothing.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from octop.model.errors import ConfigurationError
from octop.worker.health import Health
from octop.worker.options import WorkerOptions

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
REQUEST_SECONDS_MAX: Final = 1.0
REQUEST_BYTES_MAX: Final = 8_192
PROBERS_MAX: Final = 50
LOCAL: Final = "127.0.0.1"
HEALTH_PATHS: Final = ("/", "/healthz")
READY_PATH: Final = "/readyz"
_FILE_BYTES_MAX: Final = 1 << 20
_KEYS: Final = ("status", "healthy", "ready", "why", "processes")
"""What a file of ours has; one of 256 processes is far below that size."""


class Probes:
    """The doors at which health is asked for; none, unless the options want one."""

    def __init__(self, options: WorkerOptions, look: Callable[[], Health]) -> None:
        """Be ready to open them.

        Args:
            options: Which doors.
            look: Returns the present health.
        """
        self._host = options.health_host or LOCAL
        self._port = options.health_port
        self._file = None if options.health_file is None else Path(options.health_file)
        self._look = look
        self._server: asyncio.Server | None = None
        self._probers: dict[asyncio.Task[None], None] = {}
        self._was_healthy: bool | None = None
        self._complained = False

    async def __aenter__(self) -> "Probes":
        """Open the doors.

        Raises:
            ConfigurationError: The port can not be had, or the file can not be written.
        """
        if self._file is not None:
            if not _is_ours(self._file):
                message = f"the health file {self._file} is there, and is no health file"
                raise ConfigurationError(message, hint="It would be replaced each second. Name a file of its own.")
            try:
                _refresh(self._file, "")
                self._file.unlink()  # what an earlier worker has left says nothing about this one
            except OSError as error:
                _refuse(f"the health file {self._file} can not be written", error, "Name a file in a folder of its own")
        if self._port is not None:
            try:
                self._server = await asyncio.start_server(self._answer, self._host, self._port, limit=REQUEST_BYTES_MAX)
            except (OSError, UnicodeError) as error:  # what can be no host name is no OSError
                _refuse(
                    f"the health port {self._host}:{self._port} can not be had", error, "Choose another port or host"
                )
            for host, port, *_ in (socket.getsockname() for socket in self._server.sockets):
                log.info("health: http://%s:%d/healthz", f"[{host}]" if ":" in host else host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """Close them."""
        if self._server is not None:
            self._server.close()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)

    # --- file ---------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Keep the file as it should be, and log each change, until cancelled."""
        if self._port is None and self._file is None:
            return
        while True:
            health = self._look()
            self._log(health)
            if self._file is not None:
                try:
                    # in a thread: a disk that hangs must not keep the supervisor from beating
                    if health.healthy:
                        await asyncio.to_thread(_refresh, self._file, _text(health))
                    else:
                        await asyncio.to_thread(self._file.unlink, missing_ok=True)
                except OSError as error:
                    if not self._complained:
                        log.error("the health file %s can not be written: %s", self._file, error)
                    self._complained = True
                else:
                    self._complained = False
            await asyncio.sleep(LOOK_SECONDS)

    def _log(self, health: Health) -> None:
        before, self._was_healthy = self._was_healthy, health.healthy
        if before and not health.healthy:
            log.error("health: red: %s", "; ".join(health.why))
        elif not before and health.healthy:
            log.info("health: green")

    # --- port ---------------------------------------------------------------------------------------------------------

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prober = asyncio.current_task()
        if prober is None:
            return
        if len(self._probers) >= PROBERS_MAX:
            next(iter(self._probers)).cancel()  # the oldest: whoever is silent must not keep others from asking
        self._probers[prober] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(self._reply(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except asyncio.CancelledError:
            log.debug("a health probe was silent for too long")
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a health probe went away, or spoke no HTTP")
        finally:
            self._probers.pop(prober, None)
            writer.close()

    def _reply(self, request: bytes) -> bytes:
        method, _, rest = request.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _http(HTTPStatus.METHOD_NOT_ALLOWED, json.dumps({"why": ["only GET and HEAD are answered"]}))
        if path not in (*HEALTH_PATHS, READY_PATH):
            return _http(HTTPStatus.NOT_FOUND, json.dumps({"why": [f"ask /healthz or {READY_PATH}"]}))
        health = self._look()
        good = health.ready if path == READY_PATH else health.healthy
        answer = _http(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, _text(health))
        return answer if method == "GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def _text(health: Health) -> str:
    return json.dumps(health.as_json(), indent=1)


def _http(status: HTTPStatus, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _is_ours(file: Path) -> bool:
    """Tell whether nothing is there, or what a worker has written: nothing else may be lost to a misspelt option."""
    try:
        with file.open("rb") as found:
            text = found.read(_FILE_BYTES_MAX)
    except FileNotFoundError:
        return True
    except OSError:
        return not file.is_file()  # a folder, or no right: the first write says so
    try:
        return not text or set(_KEYS) <= set(json.loads(text))
    except (ValueError, TypeError):
        return False


def _refresh(file: Path, text: str) -> None:
    """Put a new file in place of the old one: who reads sees one or the other."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        with fresh.open("x") as out:  # never through a link that somebody has laid there
            out.write(f"{text}\n")
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _refuse(what: str, error: OSError | UnicodeError, hint: str) -> NoReturn:
    message = f"{what}: {getattr(error, 'strerror', None) or error}"
    raise ConfigurationError(message, hint=f"{hint}.") from error
