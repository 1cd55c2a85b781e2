"""One function per SQL function, by the same name; each returns a Call. The only SQL text of the hot paths in Python.

Which module holds it, a caller need not know. Modules are looked through when a name is first asked for, and no further than it: the
help of a command that pauses a queue needs not the shapes of an exchange.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from octop.engine.calls.acts import (
        octop_cancel,
        octop_config_reset,
        octop_config_set,
        octop_delete,
        octop_freeze,
        octop_hold,
        octop_lift,
        octop_pause,
        octop_resume,
        octop_retry,
        octop_scale,
        octop_thaw,
    )
    from octop.engine.calls.alerts import octop_ack_alerts, octop_alert_tried, octop_take_alerts
    from octop.engine.calls.bulk import octop_cancel_many, octop_delete_many, octop_retry_many
    from octop.engine.calls.cron import octop_cron_check, octop_cron_explain, octop_cron_next, octop_cron_next_n
    from octop.engine.calls.exchange import octop_doubt, octop_doubtful, octop_exchange, octop_sleep
    from octop.engine.calls.queues import octop_declare_queues, octop_lanes, octop_set_queue
    from octop.engine.calls.schedules import (
        octop_backfill_schedule,
        octop_cancel_backfill,
        octop_declare_schedules,
        octop_drop_schedule,
        octop_pause_schedule,
        octop_put_schedule,
        octop_resume_schedule,
        octop_run_schedule,
        octop_tick,
    )
    from octop.engine.calls.tasks import octop_enqueue_many, octop_task, octop_why
    from octop.engine.calls.workers import (
        octop_beat,
        octop_control,
        octop_declare_task_types,
        octop_deregister,
        octop_drain,
        octop_lost,
        octop_owned,
        octop_register,
        octop_release_unheld,
        octop_remaining,
        octop_settings,
        octop_sweep,
        octop_wanted_processes,
    )

__all__ = [
    "octop_ack_alerts",
    "octop_alert_tried",
    "octop_backfill_schedule",
    "octop_beat",
    "octop_cancel",
    "octop_cancel_backfill",
    "octop_cancel_many",
    "octop_config_reset",
    "octop_config_set",
    "octop_control",
    "octop_cron_check",
    "octop_cron_explain",
    "octop_cron_next",
    "octop_cron_next_n",
    "octop_declare_queues",
    "octop_declare_schedules",
    "octop_declare_task_types",
    "octop_delete",
    "octop_delete_many",
    "octop_deregister",
    "octop_doubt",
    "octop_doubtful",
    "octop_drain",
    "octop_drop_schedule",
    "octop_enqueue_many",
    "octop_exchange",
    "octop_freeze",
    "octop_hold",
    "octop_lanes",
    "octop_lift",
    "octop_lost",
    "octop_owned",
    "octop_pause",
    "octop_pause_schedule",
    "octop_put_schedule",
    "octop_register",
    "octop_release_unheld",
    "octop_remaining",
    "octop_resume",
    "octop_resume_schedule",
    "octop_retry",
    "octop_retry_many",
    "octop_run_schedule",
    "octop_scale",
    "octop_set_queue",
    "octop_settings",
    "octop_sleep",
    "octop_sweep",
    "octop_take_alerts",
    "octop_task",
    "octop_thaw",
    "octop_tick",
    "octop_wanted_processes",
    "octop_why",
]

_MODULES: Final = ("acts", "alerts", "bulk", "cron", "exchange", "queues", "schedules", "tasks", "workers")


def __getattr__(name: str) -> Any:
    """Find a call in its module, once."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(importlib.import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
