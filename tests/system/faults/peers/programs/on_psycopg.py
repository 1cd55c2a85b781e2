"""The caller's transaction on an asynchronous connection of psycopg, for the three contenders that take one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from tests.system.faults.peers.programs.program import CONNECT_SECONDS, Program, Task

TABLE: LiteralString = "create table caller (key text primary key)"


class OnPsycopg(Program):
    """A contender that enqueues on the caller's own connection."""

    WAITING: LiteralString
    RUNNING: LiteralString
    FAILED: LiteralString

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.connection: psycopg.AsyncConnection[Any] | None = None

    async def begin(self) -> None:
        if self.connection is None:
            self.connection = await psycopg.AsyncConnection.connect(
                self.broker, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="producer"
            )
        await self.connection.execute("begin")

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        assert self.connection is not None
        await self.connection.execute("insert into caller select unnest(%s::text[])", ([each.key for each in tasks],))
        await self.enqueue_on(self.connection, tasks)

    async def enqueue_on(self, connection: psycopg.AsyncConnection[Any], tasks: Sequence[Task]) -> None:
        raise NotImplementedError

    async def commit(self) -> None:
        assert self.connection is not None
        await self.connection.execute("commit")

    async def roll_back(self) -> None:
        assert self.connection is not None
        await self.connection.execute("rollback")

    async def drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def states(self) -> dict[str, list[str]]:
        async with await psycopg.AsyncConnection.connect(self.broker, autocommit=True) as connection:
            return {
                "committed": await _keys(connection, "select key from caller"),
                "waiting": await _keys(connection, self.WAITING),
                "running": await _keys(connection, self.RUNNING),
                "failed": await _keys(connection, self.FAILED),
            }


async def _keys(connection: psycopg.AsyncConnection[Any], statement: LiteralString) -> list[str]:
    return [row[0] for row in await (await connection.execute(statement)).fetchall()]
