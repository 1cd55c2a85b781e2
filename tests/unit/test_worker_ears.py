"""Whether a worker hears itself."""

from __future__ import annotations

import asyncio
import time

import pytest

from octop.worker import ears
from octop.worker.ears import Ears
from octop.worker.options import WorkerOptions


class Speaker:
    async def patiently(self, _make): ...


@pytest.mark.parametrize("heard", [True, False])
def test_a_task_that_blocks_the_loop_is_no_reason_to_blame_a_pooler(monkeypatch, caplog, heard):
    monkeypatch.setattr(ears, "PROOF_SECONDS", 0.1)
    monkeypatch.setattr(ears, "LOOK_SECONDS", 0.02)

    async def scene():
        listener = Ears(WorkerOptions(dsn=""), "w", Speaker(), asyncio.Event(), lambda _word: None)  # type: ignore[arg-type]
        listener._listens.set()
        proof = asyncio.get_running_loop().create_task(listener.prove())
        await asyncio.sleep(0.01)
        time.sleep(0.3)  # noqa: ASYNC251 - what a task must not do
        if heard:
            asyncio.get_running_loop().call_later(0.01, listener._heard.set)
        await proof

    asyncio.run(scene())
    assert ("notifications do not arrive" in caplog.text) is not heard
