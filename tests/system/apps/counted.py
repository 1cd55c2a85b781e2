"""Tasks that are counted where no database is needed: each writes its id to the end of a file."""

from __future__ import annotations

import os

import octop as _octop

octop = _octop.Octop()
_file = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@octop.task(queue="q")
async def counted(context: _octop.Context) -> None:
    os.write(_file, f"{context.task_id} {context.attempt}\n".encode())
