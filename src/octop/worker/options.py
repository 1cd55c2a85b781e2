"""What a worker is told when it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from octop.model.errors import ConfigurationError

LOG_FORMATS: Final = ("text", "json")
LIMIT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Say what a worker serves and how.

    Attributes:
        dsn: Where the database is; never shown, never on a command line.
        schema: Schema in which the engine is installed.
        application: ``module:attribute`` of the application, which child processes import. None only for a worker inside the
            user's own process.
        import_folder: Where its module is looked for first; None = on the import path, which the current folder is on.
        queues: Limit by queue, None = ``concurrency``. Named queues are the only ones served; None = those of the registered types.
        concurrency: Tasks at once from each queue that names no limit, 1 to 10,000; None = ``worker.concurrency`` of the
            configuration. An operator's limit for the queue wins over both.
        processes: Worker processes, 1 to 256; with ``processes_min`` the most.
        processes_min: At least so many, and more as the backlog asks for them, 1 to ``processes``; None = always ``processes``.
        name: Label shown by ``octop workers``.
        drain: Stop when no unfinished task is left in the queues.
        reload: Restart the processes when a Python file of the application changes.
        grace_seconds: How long a stopping worker waits for its tasks; None = ``worker.grace_seconds`` of the configuration, else 1.2
            times the longest time limit among the running tasks, at most 60.
        listen: Hold a connection for LISTEN; without it the worker polls, as behind a pooler in transaction mode.
        log_format: ``text`` or ``json``.
        log_level: Name of the lowest level that is logged.
        max_tasks_per_process: A worker process that has run so many tasks is replaced by a fresh one, when all of them have ended; up to a
            tenth fewer, so that processes do not end together, and a few more where it serves several queues. At least 1; None = never.
        max_memory_mb: A worker process whose resident memory is over so many MB is replaced likewise, and a child process of a task gets
            no further one. At least 1; None = never.
        health_port: Answer health probes over HTTP there, 0 to 65,535; 0 = at a free port, which the log names; None = not at all.
        health_host: Address of that port; None = 127.0.0.1, which nobody outside of the machine or container reaches.
        health_file: A file that is there, and not older than a few seconds, while the worker can work; None = none.
        tell_tasks: Log the end of each task, with the traceback where it failed: not for thousands a second.

    Raises:
        ConfigurationError: When a value is out of its bounds.
    """

    dsn: str = field(repr=False)
    schema: str = "public"
    application: str | None = None
    import_folder: str | None = None
    queues: Mapping[str, int | None] | None = None
    concurrency: int | None = None
    processes: int = 1
    processes_min: int | None = None
    name: str = ""
    drain: bool = False
    reload: bool = False
    grace_seconds: float | None = None
    listen: bool = True
    log_format: str = "text"
    log_level: str = "INFO"
    tell_tasks: bool = False
    max_tasks_per_process: int | None = None
    max_memory_mb: int | None = None
    health_port: int | None = None
    health_host: str | None = None
    health_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no worker could do."""
        limits = [limit for limit in (self.queues or {}).values() if limit is not None]
        if self.concurrency is not None and not 1 <= self.concurrency <= LIMIT_MAX:
            _refuse(f"concurrency is {self.concurrency}", f"Give 1 to {LIMIT_MAX}.")
        if any(not 0 <= limit <= LIMIT_MAX for limit in limits):
            _refuse("a queue's limit is out of bounds", f"Give 0 to {LIMIT_MAX}, as in `-q mail=5,reports=2`.")
        if self.queues is not None and (not self.queues or any(not name for name in self.queues)):
            _refuse("a queue has no name", "Name each queue, as in `-q mail=5,reports=2`.")
        self._check_processes()
        if self.grace_seconds is not None and not 0 <= self.grace_seconds <= 86_400:
            _refuse(f"grace is {self.grace_seconds} seconds", "Give 0 to 86400.")
        for name in ("max_tasks_per_process", "max_memory_mb"):
            if (most := getattr(self, name)) is not None and most < 1:
                _refuse(f"{name} is {most}", "Give at least 1, or leave it out.")
        if self.health_port is not None and not 0 <= self.health_port <= 65_535:
            _refuse(f"the health port is {self.health_port}", "Give 1 to 65535, or 0 for a free one.")
        if self.health_host is not None and self.health_port is None:
            _refuse("a health host is given, and no port", "Give --health-port, too.")
        if self.health_host == "" or self.health_file == "":
            _refuse("the health host or file is empty", "Name it, as in --health-host 0.0.0.0, or leave it out.")
        if self.log_format not in LOG_FORMATS:
            _refuse(f"log format is {self.log_format!r}", f"Give one of {', '.join(LOG_FORMATS)}.")

    def _check_processes(self) -> None:
        if not 1 <= self.processes <= 256:
            _refuse(f"processes is {self.processes}", "Give 1 to 256.")
        if self.processes_min is not None and not 1 <= self.processes_min <= self.processes:
            _refuse(
                f"processes is {self.processes_min}-{self.processes}",
                "Give the least and the most, as in --processes 1-8.",
            )

    def as_json(self) -> dict[str, Any]:
        """Return the form that goes to a child over its pipe."""
        return {**asdict(self), "queues": None if self.queues is None else dict(self.queues)}


def _refuse(message: str, hint: str) -> None:
    raise ConfigurationError(message, hint=hint)
