"""What the database knows of a worker, from its first registration to its last word."""

import dataclasses
import logging
import os
import socket
import time
from collections.abc import Collection, Mapping
from typing import Final

from octop.engine import calls
from octop.model.declared_schedules import DeclaredSchedules
from octop.model.definition import TaskDefinition
from octop.model.errors import OctopError, TryAgainError
from octop.model.work import TaskTypePolicy
from octop.worker.lease import Lease
from octop.worker.link import QUIET_SECONDS, Link, pause_before_try

log = logging.getLogger(__name__)

LOCKED_SECONDS_MAX: Final = 1.0
LEAVING_SECONDS_MAX: Final = 2.0
LEAVING_SECONDS_MIN: Final = 0.3


class Registration:
    """The row of one worker.

    Attributes:
        is_known: It has been written.
    """

    def __init__(
        self,
        registry: dict[str, TaskDefinition],
        *,
        worker_id: str,
        name: str,
        lease: Lease,
        supervisor_id: str | None,
        version: str,
        queue_declarations: Mapping[str, Mapping[str, object]],
        declared_schedules: DeclaredSchedules,
    ) -> None:
        """Know what to say; nothing is said yet.

        Args:
            registry: Task types by name and alias.
            worker_id: New at each start.
            name: What people call it.
            lease: Begins with the first registration.
            supervisor_id: Of the process that started it; None = nobody's.
            version: Of this package, as people see it.
            queue_declarations: Values of queues that the application declares, by queue.
            declared_schedules: Schedules that the application declares.
        """
        self.is_known = False
        self._registry = registry
        self._worker_id = worker_id
        self._name = name
        self._lease = lease
        self._supervisor_id = supervisor_id
        self._version = version
        self._declared_schedules = declared_schedules
        self._queue_declarations = queue_declarations
        self._queue_count = 0
        self._tries = 0
        self._said_at = float("-inf")

    def lacks(self, queues: Collection[str]) -> bool:
        """Tell whether the worker serves more queues by now than were registered."""
        return len(queues) > self._queue_count

    async def register(self, link: Link, queues: Collection[str]) -> None:
        """Say who we are, what we serve and which task types we know.

        Raises:
            OctopError: What the engine said.
        """
        if self._queue_declarations:
            await link.call(calls.octop_declare_queues(self._queue_declarations))
        await self._declare_schedules(link)
        at, served = time.monotonic(), list(queues)
        await link.call(
            calls.octop_register(
                self._worker_id,
                name=self._name,
                host=socket.gethostname(),
                pid=os.getpid(),
                supervisor_id=self._supervisor_id,
                version=self._version,
                queues=served,
                task_types=self._policies(),
            )
        )
        self._queue_count = len(served)
        if not self.is_known:
            # later ones are no beats: the row may have been stale, and only a beat tells whether it was
            self.is_known = True
            self._lease.beaten(at, unbroken=True)

    async def _declare_schedules(self, link: Link) -> None:
        """Declare schedules, once: by a later registration an older worker would undo what a newer one has declared."""
        if not len(self._declared_schedules) or self.is_known:
            return
        for row in await link.call(calls.octop_declare_schedules(self._declared_schedules.as_json())):
            if row["what"] == "kept":
                log.info(
                    "schedule %s stays as somebody has changed it, not as the code says: octop schedules diff",
                    row["name"],
                    extra={"worker_id": self._worker_id},
                )

    async def try_to_register(self, link: Link, queues: Collection[str]) -> float:
        """Register, unless somebody's open transaction holds what must be written.

        Returns:
            The seconds to wait before the next try; 0 = it is done.

        Raises:
            OctopError: What the engine said, other than that.
        """
        try:
            await self.register(link, queues)
        except TryAgainError as error:
            self._tries += 1
            if time.monotonic() - self._said_at >= QUIET_SECONDS:
                self._said_at = time.monotonic()
                log.warning(
                    'octop_register waits for a lock and tries again; see the how-to "End a transaction that was left open": %s',
                    error,
                    extra={"worker_id": self._worker_id},
                )
            return min(LOCKED_SECONDS_MAX, pause_before_try(self._tries, self._worker_id))
        if self._tries:
            log.info("octop_register waits no longer", extra={"worker_id": self._worker_id})
        return 0.0

    async def deregister(self, link: Link, *, is_answered: bool = True) -> bool:
        """Release what is still ours and delete the row; tell whether the database has heard it.

        Args:
            link: How to say so.
            is_answered: The database answers there, as far as we know. If not, a supervisor says it, which has a connection of its own.
        """
        if not is_answered and self._supervisor_id is not None:
            return False
        seconds = LEAVING_SECONDS_MAX if is_answered else LEAVING_SECONDS_MIN
        try:
            released = await link.call(calls.octop_deregister(self._worker_id), seconds=seconds)
        except OctopError as error:
            log.warning("left without saying so; the lease covers it: %s", error.message)
            return False
        if released:
            log.info("released tasks: %d", released, extra={"worker_id": self._worker_id})
        return True

    async def lose_all(self, link: Link) -> None:
        """Give up what ran as lost: a task may have brought us down, so each loses a try and runs in a process of its own next time."""
        try:
            lost = await link.call(calls.octop_lost(self._worker_id), seconds=LEAVING_SECONDS_MAX)
        except OctopError as error:
            log.warning("went down without saying so; the lease covers it: %s", error.message)
        else:
            log.error("went down with tasks: %d", lost, extra={"worker_id": self._worker_id})

    def _policies(self) -> list[TaskTypePolicy]:
        # an alias is known too, so that tasks under the old name are not parked
        return [
            definition.policy if name == definition.name else dataclasses.replace(definition.policy, name=name)
            for name, definition in self._registry.items()
        ]
