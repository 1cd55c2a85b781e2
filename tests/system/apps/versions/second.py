"""Version 2: a parameter was inserted before an old one, one task was renamed, one must not meet older code."""

from __future__ import annotations

from octop import Octop

octop = Octop()


@octop.task(queue="q", max_retries=0)
async def invite(x: int, email: str, site: str | None = None, new: bool = False) -> list[object]:
    return ["second", x, email, site, new]


@octop.task(queue="q", max_retries=0, aliases=["send_letter"])
async def send_mail(to: str) -> str:
    return f"a mail to {to}"


@octop.task(queue="q", max_retries=0, version=2)
async def resize(name: str, width: int = 100) -> str:
    return f"second {name} {width}"
