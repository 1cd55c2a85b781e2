"""Version 1: what the queue was filled with."""

from __future__ import annotations

from octop import Octop

octop = Octop()


@octop.task(queue="q", max_retries=0)
async def invite(x: int, email: str, new: bool) -> list[object]:
    return ["first", x, email, new]


@octop.task(queue="q", max_retries=0)
async def send_letter(to: str) -> str:
    return f"a letter to {to}"


@octop.task(queue="q", max_retries=0)
async def resize(name: str) -> str:
    return f"first {name}"
