"""Schedules as the application sees them: make, change, pause, run and backfill them, and look at what became of their slots."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from octop.model.definition import Registry
from octop.model.errors import InvalidOptionError
from octop.model.options import checked_moment, checked_name, checked_whole
from octop.model.schedule import ScheduleOptions, checked_rule, lane_setting, schedule_settings, template_payload
from octop.task import Task

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.pools import Pools

Row = dict[str, Any]
Rows = list[Row]
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Schedules:
    """The schedules of an application's database, as ``octop.schedules``. Each act has a form to be awaited, and one ending in ``_sync``.

    Each act stands in the audit. The role needs the operator's rights; to look it needs those of a reader.

    Args:
        pools: Connections of the application.
        registry: Its task types, by name.
    """

    __slots__ = ("_pools", "_registry")

    def __init__(self, pools: "Pools", registry: Registry) -> None:
        """Keep the connections; nothing is asked yet."""
        self._pools = pools
        self._registry = registry

    async def put(
        self,
        name: str,
        rule: str | None = None,
        task: Task[..., Any, Any] | str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Row:
        """Make a schedule, or change what is named of one that exists.

        Args:
            name: 1 to 200 characters.
            rule: When; None = as it is. A new schedule needs it.
            task: The decorated function, or the name of a task type; None = as it is. A new schedule needs it.
            **options: As for ``Octop.schedule``; None = the default. What is not named stays.

        Returns:
            All values that hold now, by column of ``octop_schedules``.

        Raises:
            InvalidScheduleError: The database can not read the rule, or knows no such zone.
            InvalidOptionError: An option is out of bounds; nothing was changed. Likewise InvalidScheduleValueError of the database.
            InvalidTaskError: The arguments do not fit the function.
            NotPermittedError: The role is no operator.

        Examples:
            >>> await octop.schedules.put(
            ...     "report", "0 9 * * MON-FRI", report, timezone="Europe/Berlin"
            ... )  # doctest: +SKIP
        """
        return await self._pools.run_async(self._put_call(name, rule, task, options))

    def put_sync(
        self,
        name: str,
        rule: str | None = None,
        task: Task[..., Any, Any] | str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Row:
        """Make or change a schedule; see ``put``."""
        return self._pools.run(self._put_call(name, rule, task, options))

    async def get(self, name: str, tenant: str = "") -> Row | None:
        """Return all about a schedule, as ``octop schedules show --json``; None = there is none.

        Args:
            name: Of the schedule.
            tenant: Whose.
        """
        return await self._pools.run_async(_get_call(name, tenant))

    def get_sync(self, name: str, tenant: str = "") -> Row | None:
        """Return all about a schedule; see ``get``."""
        return self._pools.run(_get_call(name, tenant))

    async def list(self) -> Rows:
        """Return all schedules, by tenant and name, with next and last slot."""
        return await self._pools.run_async(_list_call())

    def list_sync(self) -> Rows:
        """Return all schedules; see ``list``."""
        return self._pools.run(_list_call())

    async def drop(self, name: str, tenant: str = "") -> bool:
        """Drop a schedule; its tasks stay. What code declares does not bring it back.

        Returns:
            Whether there was one.
        """
        return bool(await self._pools.run_async(_act("drop", name, tenant)))

    def drop_sync(self, name: str, tenant: str = "") -> bool:
        """Drop a schedule; see ``drop``."""
        return bool(self._pools.run(_act("drop", name, tenant)))

    async def pause(self, name: str, reason: str = "", tenant: str = "") -> None:
        """Fire no slot until ``resume``. What was due meanwhile is not made up for.

        Args:
            name: Of the schedule.
            reason: Shown to the next person.
            tenant: Whose.

        Raises:
            ScheduleNotFoundError: There is none.
        """
        await self._pools.run_async(_pause_call(name, reason, tenant))

    def pause_sync(self, name: str, reason: str = "", tenant: str = "") -> None:
        """Fire no slot until ``resume``; see ``pause``."""
        self._pools.run(_pause_call(name, reason, tenant))

    async def resume(self, name: str, tenant: str = "") -> None:
        """Fire slots again, from the next one on.

        Raises:
            ScheduleNotFoundError: There is none.
        """
        await self._pools.run_async(_act("resume", name, tenant))

    def resume_sync(self, name: str, tenant: str = "") -> None:
        """Fire slots again; see ``resume``."""
        self._pools.run(_act("resume", name, tenant))

    async def run(self, name: str, tenant: str = "") -> UUID:
        """Make one of its tasks now, also while it is paused; return the task's id.

        Raises:
            ScheduleNotFoundError: There is none.
        """
        made: str = await self._pools.run_async(_run_call(name, tenant))
        return UUID(made)

    def run_sync(self, name: str, tenant: str = "") -> UUID:
        """Make one of its tasks now; see ``run``."""
        return UUID(self._pools.run(_run_call(name, tenant)))

    async def backfill(
        self, name: str, since: datetime, until: datetime, *, most_running: int = 1, tenant: str = ""
    ) -> UUID:
        """Make the tasks of past slots that have none, in order, so many at once; return the backfill's id.

        Args:
            name: Of the schedule.
            since: First moment, aware, included.
            until: A later moment, aware, not after now, not included.
            most_running: Its tasks that have not ended, at most, 1 to 100.
            tenant: Whose.

        Raises:
            ScheduleNotFoundError: There is none.
            InvalidBackfillError: The range has no slot, more than 100,000, or is not past.
            InvalidOptionError: most_running is out of bounds.
            InvalidTimeError: A moment is naive.
        """
        made: str = await self._pools.run_async(_backfill_call(name, since, until, most_running, tenant))
        return UUID(made)

    def backfill_sync(
        self, name: str, since: datetime, until: datetime, *, most_running: int = 1, tenant: str = ""
    ) -> UUID:
        """Make the tasks of past slots; see ``backfill``."""
        return UUID(self._pools.run(_backfill_call(name, since, until, most_running, tenant)))

    async def history(self, name: str, tenant: str = "", most: int = 100) -> Rows:
        """Return its latest slots, the newest first: fired or skipped and why, and what became of the task.

        Args:
            name: Of the schedule.
            tenant: Whose.
            most: At most so many, 1 to 10,000.
        """
        return await self._pools.run_async(_history_call(name, tenant, most))

    def history_sync(self, name: str, tenant: str = "", most: int = 100) -> Rows:
        """Return its latest slots; see ``history``."""
        return self._pools.run(_history_call(name, tenant, most))

    def _put_call(
        self, name: str, rule: object, task: object, options: Mapping[str, Any] | ScheduleOptions
    ) -> "Call[Row]":
        from octop.engine import calls  # noqa: PLC0415 - only when it is needed

        said = dict(options)
        tenant = checked_name(said.pop("tenant", None) or "", "a tenant", empty=True)
        arguments: dict[str, Any] = {key: said.pop(key) for key in ("args", "kwargs") if key in said}
        settings = schedule_settings(said)
        if rule is not None:
            settings["rule"] = checked_rule(rule)
        if task is not None:
            settings["task_type"] = task.name if isinstance(task, Task) else checked_name(task, "a task type's name")
        if arguments:
            settings["payload"] = payload = self._payload(task, arguments)
            definition = task.definition if isinstance(task, Task) else self._registry.get(str(task))
            if definition is not None and "lane" not in settings:
                settings |= lane_setting(definition, payload)
        return calls.octop_put_schedule(checked_name(name, "a schedule's name"), settings, tenant)

    def _payload(self, task: object, arguments: Mapping[str, Any]) -> dict[str, object]:
        args, kwargs = arguments.get("args") or (), arguments.get("kwargs") or {}
        definition = task.definition if isinstance(task, Task) else self._registry.get(str(task))
        if definition is not None:
            return template_payload(definition, args, kwargs)
        if args:
            message = "arguments of a task that is not registered here are given by name, as kwargs"
            raise InvalidOptionError(message, hint="Pass the decorated function as task.")
        return dict(schedule_settings({"payload": kwargs})["payload"])  # type: ignore[call-overload,no-any-return]


def _get_call(name: str, tenant: str) -> "Call[Row | None]":
    from octop.engine import schedules  # noqa: PLC0415 - only when it is needed

    return schedules.schedule(name, tenant)


def _list_call() -> "Call[Rows]":
    from octop.engine import schedules  # noqa: PLC0415 - likewise

    return schedules.list_schedules()


def _history_call(name: str, tenant: str, most: int) -> "Call[Rows]":
    from octop.engine import schedules  # noqa: PLC0415 - likewise

    return schedules.history(name, tenant, checked_whole(most, "most", 1, 10_000))


def _act(act: str, name: str, tenant: str) -> "Call[Any]":
    from octop.engine import calls  # noqa: PLC0415 - likewise

    return {"drop": calls.octop_drop_schedule, "resume": calls.octop_resume_schedule}[act](name, tenant)


def _pause_call(name: str, reason: str, tenant: str) -> "Call[bool]":
    from octop.engine import calls  # noqa: PLC0415 - likewise

    return calls.octop_pause_schedule(name, reason, tenant)


def _run_call(name: str, tenant: str) -> "Call[str]":
    from octop.engine import calls  # noqa: PLC0415 - likewise

    return calls.octop_run_schedule(name, tenant)


def _backfill_call(name: str, since: datetime, until: datetime, most_running: int, tenant: str) -> "Call[str]":
    from octop.engine import calls  # noqa: PLC0415 - likewise

    first, last = checked_moment(since), checked_moment(until)
    return calls.octop_backfill_schedule(name, first, last, checked_whole(most_running, "most_running", 1, 100), tenant)
