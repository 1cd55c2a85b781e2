"""Octop's own exchanges, called by a loop inside the database: no Python, no network, no task. The yardstick of `octop bench`."""

import json
import os
import sys
from typing import Any

import contest

os.environ["OCTOP_DSN"] = json.loads(sys.argv[1]).get("dsn", "")

from octop.cli.bench import measure
from octop.engine.connect import open_connection
from octop.engine.install import install


class OctopInside(contest.Contender):
    async def setup(self) -> None:
        install(self.dsn)

    async def phase_enqueue(self) -> dict[str, Any]:
        rate = await contest.asyncio.to_thread(measure.enqueue_many, self.tasks, lambda _: None)
        return {"enqueue_seconds": rate.seconds}

    async def phase_drain(self) -> dict[str, Any]:
        connection = open_connection(self.dsn, application_name="octop bench", schema="public")
        measure.look_into(connection, "public")
        return {"drain_seconds": measure.inside(connection).seconds}


if __name__ == "__main__":
    contest.run(OctopInside)
