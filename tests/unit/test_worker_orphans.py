"""Process 1 of a container takes leave of the dead that nobody else asks for, and of no others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from octop.worker.orphans import Orphans
from tests.unit.house import until

STATE = "/proc/{}/stat"


def is_zombie(pid):
    with open(STATE.format(pid)) as file:  # noqa: PTH123 - one word of it
        return ") Z " in file.read()


async def _dead_child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    await until(lambda: is_zombie(pid))
    return pid


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_what_is_dead_at_two_looks_is_taken_leave_of_and_nothing_that_lives():
    first = asyncio.run(_dead_child())
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        orphans = Orphans()
        assert orphans.reap([]) == 0, "whoever started it may be about to ask"
        assert is_zombie(first)
        second = asyncio.run(_dead_child())
        assert orphans.reap([]) == 1
        assert is_zombie(second)
        with pytest.raises(ChildProcessError):
            os.waitpid(first, os.WNOHANG)
        assert orphans.reap([]) == 1
        assert orphans.reap([]) == 0
        assert living.poll() is None
    finally:
        living.communicate(b"\n")
    assert living.returncode == 0, "its own parent still learns how it ended"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_worker_process_is_left_to_whoever_started_it_however_late_he_asks():
    own = asyncio.run(_dead_child())
    orphans = Orphans()
    assert [orphans.reap([own]) for _ in range(3)] == [0, 0, 0]
    assert os.waitpid(own, os.WNOHANG)[0] == own


def test_only_process_1_does_it():
    assert not Orphans.are_ours()
