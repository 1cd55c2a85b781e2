"""What people and programs do to tasks, queues and settings. Each act is written to the audit."""

from octop.engine.call import Call, first_value


def octop_cancel(id: str, reason: str = "") -> Call[str]:
    """Cancel a task; answer ``cancelled``, or ``requested`` when it runs.

    Raises:
        TaskNotFoundError: There is none, or it is not yours.
        TaskStatusError: It has finished with success.
    """
    return Call(
        "select octop_cancel(%(id)s::text::uuid, %(reason)s::text)",
        {"id": id, "reason": reason},
        lambda rows: str(first_value(rows)),
    )


def octop_retry(id: str) -> Call[str]:
    """Try a task again, now; answer its id, or that of a new task when it had finished.

    Raises:
        TaskNotFoundError: There is none.
        TaskStatusError: It runs or is blocked.
    """
    return Call("select octop_retry(%(id)s::text::uuid)::text", {"id": id}, lambda rows: str(first_value(rows)))


def octop_delete(id: str) -> Call[bool]:
    """Delete a frozen task for good; answer whether there was one."""
    return Call("select octop_delete(%(id)s::text::uuid)", {"id": id}, lambda rows: bool(first_value(rows)))


def octop_hold(
    kind: str,
    target: str,
    *,
    queue: str = "",
    tenant: str = "",
    reason: str = "",
    ends_at: str | None = None,
    ends_in_seconds: float | None = None,
) -> Call[bool]:
    """Hold a queue, task type, tenant or lane on all workers; answer False if such an order was there already.

    Args:
        kind: ``queue``, ``task_type``, ``tenant`` or ``lane``.
        target: Its name.
        queue: Of a lane: where it lies.
        tenant: Of a lane: whose it is.
        reason: Why; cut at 1,000 characters.
        ends_at: When it ends by itself, ISO 8601 with a zone. None = see the next.
        ends_in_seconds: The same, from now on the database's clock. None = when somebody lifts it.

    Raises:
        InvalidNameError: No such name can be.
        InvalidOptionError: There is no such kind.
        InvalidTimeError: The end has passed.
    """
    return Call(
        "select octop_hold(%(kind)s::text, %(target)s::text, %(queue)s::text, %(tenant)s::text, %(reason)s::text,"
        " coalesce(%(ends_at)s::text::timestamptz, _octop_now() + make_interval(secs => %(seconds)s::float8)))",
        {
            "kind": kind,
            "target": target,
            "queue": queue,
            "tenant": tenant,
            "reason": reason,
            "ends_at": ends_at,
            "seconds": ends_in_seconds,
        },
        lambda rows: bool(first_value(rows)),
    )


def octop_lift(kind: str, target: str, *, queue: str = "", tenant: str = "") -> Call[bool]:
    """Lift a hold, whatever its cause; answer False if nothing was held. See ``octop_hold`` for the arguments."""
    return Call(
        "select octop_lift(%(kind)s::text, %(target)s::text, %(queue)s::text, %(tenant)s::text)",
        {"kind": kind, "target": target, "queue": queue, "tenant": tenant},
        lambda rows: bool(first_value(rows)),
    )


def octop_pause(queue: str, reason: str = "") -> Call[bool]:
    """Pause a queue on all workers; answer False if it was paused already."""
    return Call(
        "select octop_pause(%(queue)s::text, %(reason)s::text)",
        {"queue": queue, "reason": reason},
        lambda rows: bool(first_value(rows)),
    )


def octop_resume(queue: str) -> Call[bool]:
    """Lift the pause of a queue; answer False if it was not paused."""
    return Call("select octop_resume(%(queue)s::text)", {"queue": queue}, lambda rows: bool(first_value(rows)))


def octop_scale(queue: str, worker_limit: int | None) -> Call[None]:
    """Set how many tasks of a queue each worker runs at once; None = back to the workers' flags."""
    return Call(
        "select octop_scale(%(queue)s::text, %(limit)s::integer)",
        {"queue": queue, "limit": worker_limit},
        lambda _: None,
    )


def octop_freeze(task_type: str, reason: str = "") -> Call[bool]:
    """Freeze a task type on all workers and in all queues; answer False if it was frozen already."""
    return Call(
        "select octop_freeze(%(task_type)s::text, %(reason)s::text)",
        {"task_type": task_type, "reason": reason},
        lambda rows: bool(first_value(rows)),
    )


def octop_thaw(task_type: str) -> Call[bool]:
    """Lift the freeze of a task type; answer False if it was not frozen."""
    return Call(
        "select octop_thaw(%(task_type)s::text)", {"task_type": task_type}, lambda rows: bool(first_value(rows))
    )


def octop_config_set(key: str, value: str) -> Call[str]:
    """Set one setting; value and answer are JSON text.

    Raises:
        UnknownSettingError: There is no such key.
        InvalidSettingError: Wrong type or out of bounds.
        SettingsDisagreeError: It does not agree with another setting.
    """
    return Call(
        "select octop_config_set(%(key)s::text, %(value)s::text::jsonb)::text",
        {"key": key, "value": value},
        lambda rows: str(first_value(rows)),
    )


def octop_config_reset(key: str) -> Call[None]:
    """Bring the default of one setting back."""
    return Call("delete from octop_config where key = %(key)s::text", {"key": key}, lambda _: None)
