"""One function per SQL function, by the same name; each returns a Call. The only SQL text of the hot paths in Python."""

from octop.engine.calls.acts import (
    octop_cancel,
    octop_config_reset,
    octop_config_set,
    octop_delete,
    octop_pause,
    octop_resume,
    octop_retry,
    octop_scale,
)
from octop.engine.calls.exchange import octop_doubt, octop_doubtful, octop_exchange, octop_sleep
from octop.engine.calls.tasks import octop_enqueue_many, octop_task
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
)

__all__ = [
    "octop_beat",
    "octop_cancel",
    "octop_config_reset",
    "octop_config_set",
    "octop_control",
    "octop_declare_task_types",
    "octop_delete",
    "octop_deregister",
    "octop_doubt",
    "octop_doubtful",
    "octop_drain",
    "octop_enqueue_many",
    "octop_exchange",
    "octop_lost",
    "octop_owned",
    "octop_pause",
    "octop_register",
    "octop_release_unheld",
    "octop_remaining",
    "octop_resume",
    "octop_retry",
    "octop_scale",
    "octop_settings",
    "octop_sleep",
    "octop_sweep",
    "octop_task",
]
