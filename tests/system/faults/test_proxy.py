"""The proxy of the harness does what its faults say."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from tests.system.apps.running import until
from tests.system.faults.proxy import Proxy, purpose_in


def test_the_proxy_reads_the_purpose_from_the_start_up_packet():
    packet = b"\0\0\0\x2a\0\x03\0\0user\0ann\0application_name\0octop worker heart\0\0"
    assert purpose_in(packet) == "octop worker heart"
    assert purpose_in(b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02") == ""


class Echo:
    """A server that answers what it hears, in capitals, and counts what came."""

    def __init__(self, path):
        self.heard = b""
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with contextlib.suppress(OSError):  # the proxy has cut it
            while data := connection.recv(1000):
                self.heard += data
                connection.sendall(data.upper())


HELLO = b"\0\0\0\0\0\0\0\0application_name\0worker\0\0"


def connected(proxy):
    client = socket.create_connection(("127.0.0.1", proxy.port))
    client.settimeout(5)
    client.sendall(HELLO)
    assert client.recv(1000) == HELLO.upper()
    return client


def test_the_proxy_passes_on_falls_silent_and_delivers_late(tmp_path):
    echo = Echo(tmp_path / "socket")
    with Proxy(tmp_path / "socket") as proxy:
        worker = connected(proxy)
        with proxy.hole("work", reset=False):
            worker.sendall(b"late")
            worker.settimeout(0.2)
            with pytest.raises(TimeoutError):
                worker.recv(1000)
            assert b"late" not in echo.heard
        worker.settimeout(5)
        assert worker.recv(1000) == b"LATE"
        with proxy.hole("other", reset=True):
            worker.sendall(b"not mine")
            assert worker.recv(1000) == b"NOT MINE"


def test_the_proxy_cuts_by_a_reset_and_loses_an_answer_to_what_has_arrived(tmp_path):
    echo = Echo(tmp_path / "socket")
    with Proxy(tmp_path / "socket") as proxy:
        first, second = connected(proxy), connected(proxy)
        proxy.reset("work")
        assert [ended(each) for each in (first, second)] == ["reset", "reset"]
        third = connected(proxy)
        with proxy.loss("work", b"commit\0"):
            third.sendall(b"begin\0")
            assert third.recv(1000) == b"BEGIN\0"
            third.sendall(b"commit\0")
            assert ended(third) == "reset"
        # The reset reaches the client while the server's thread may still have to read what came before it.
        until(lambda: echo.heard.endswith(b"commit\0"), "the server has read the commit")


def ended(client):
    try:
        return client.recv(1000)
    except ConnectionResetError:
        return "reset"


def test_what_is_half_open_leads_nowhere_until_it_is_cut_and_what_comes_later_works(tmp_path):
    echo = Echo(tmp_path / "socket")
    with Proxy(tmp_path / "socket") as proxy:
        before = connected(proxy)
        with proxy.half_open("work"):
            before.sendall(b"unheard")
            after = connected(proxy)
            after.sendall(b"heard")
            assert after.recv(1000) == b"HEARD"
        assert ended(before) == "reset"
        after.sendall(b"still")
        assert after.recv(1000) == b"STILL"
    assert b"unheard" not in echo.heard


def test_each_fault_counts_what_it_has_struck(tmp_path):
    Echo(tmp_path / "socket")
    with Proxy(tmp_path / "socket") as proxy:
        both = connected(proxy), connected(proxy)
        assert (proxy.reset("other"), proxy.reset("work")) == (0, 2)
        assert [ended(each) for each in both] == ["reset", "reset"]
        worker = connected(proxy)
        with proxy.delay(0.01) as delayed:
            worker.sendall(b"slow")
            assert worker.recv(1000) == b"SLOW"
        assert delayed.count == 2, "there and back"
        with proxy.hole("work", reset=False) as hole, proxy.half_open("other") as nobody:
            assert (hole.count, nobody.count) == (1, 0)
        with proxy.half_open("work") as half, proxy.loss("work", b"commit") as lost:
            other = connected(proxy)
            other.sendall(b"commit")
            assert ended(other) == "reset"
        assert (half.count, lost.count) == (1, 1)
