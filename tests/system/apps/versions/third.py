"""Version 3: an argument is gone, and with it a name that nobody kept as an alias."""

from __future__ import annotations

from octop import Octop

octop = Octop()


@octop.task(queue="q", max_retries=0)
async def invite(x: int, new: bool = False) -> list[object]:
    return ["third", x, new]


@octop.task(queue="q", max_retries=0)
async def send_mail(to: str) -> str:
    return f"a mail to {to}"
