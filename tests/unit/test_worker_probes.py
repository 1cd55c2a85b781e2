"""The doors at which health is asked for: whom they answer, and what they leave alone."""

from __future__ import annotations

import asyncio
import json

import pytest

from octop.model.errors import ConfigurationError
from octop.worker.health import Health
from octop.worker.options import WorkerOptions
from octop.worker.probes import PROBERS_MAX, Probes


def green():
    return Health("ok", healthy=True, why=[], processes=[])


def probes(**options):
    return Probes(WorkerOptions(dsn="", application="x", **options), green)


async def _open(chosen):
    async with chosen:
        pass


@pytest.mark.parametrize("text", ["from octop import Octop\n", "{}", "[]", "7", '{"status": "ok"}', "\x00"])
def test_a_file_that_is_none_of_ours_is_refused_and_stays(tmp_path, text):
    file = tmp_path / "tasks.py"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="is no health file"):
        asyncio.run(_open(probes(health_file=str(file))))
    assert file.read_text() == text


@pytest.mark.parametrize("text", [None, "", json.dumps(green().as_json())])
def test_a_file_of_an_earlier_worker_makes_room(tmp_path, text):
    file = tmp_path / "health"
    if text is not None:
        file.write_text(text)
    asyncio.run(_open(probes(health_file=str(file))))
    assert not file.exists()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="can not be written"):
        asyncio.run(_open(probes(health_file=str(tmp_path))))


def test_a_host_that_can_be_none_is_refused():
    with pytest.raises(ConfigurationError, match="can not be had"):
        asyncio.run(_open(probes(health_port=0, health_host="a..b")))


def test_c112_the_port_is_opened_to_this_machine_alone_unless_a_host_is_named():
    async def door(**options):
        async with probes(health_port=0, **options) as doors:
            return [each.getsockname()[0] for each in doors._server.sockets]

    assert asyncio.run(door()) == ["127.0.0.1"]
    assert asyncio.run(door(health_host="0.0.0.0")) == ["0.0.0.0"]


def test_clients_that_are_silent_keep_nobody_from_asking():
    async def scene():
        async with probes(health_port=0) as doors:
            port = doors._server.sockets[0].getsockname()[1]
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(PROBERS_MAX)]
            while len(doors._probers) < PROBERS_MAX:  # noqa: ASYNC110 - they are being accepted
                await asyncio.sleep(0.001)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 200")
            assert await silent[0][0].read() == b"", "the oldest was dropped"
            for _, each in silent:
                each.close()

    asyncio.run(asyncio.wait_for(scene(), 10))
