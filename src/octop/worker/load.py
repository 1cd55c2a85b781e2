"""Find the user's application by its name."""

import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

from octop.model.declared_schedules import DeclaredSchedules
from octop.model.definition import TaskDefinition
from octop.model.errors import ApplicationError, OctopError
from octop.model.hooks import Hooks
from octop.model.settings import Settings

log = logging.getLogger(__name__)

OURS: Final = Path(__file__).parents[1]
MAIN_ALIAS: Final = "__octop_main__"
DEFAULT_QUEUE: Final = "default"
TASKS: Final = "tasks"
"""The module that is taken when nothing names one: what `octop init` writes."""


class Named(NamedTuple):
    """An application that is not loaded yet.

    Attributes:
        spec: ``module:attribute``, ``module`` or the path of a ``.py`` file.
        folder: Where its module is looked for first; None = nowhere in particular.
    """

    spec: str
    folder: Path | None

    @property
    def import_folder(self) -> str | None:
        """Return the folder as text, for ``WorkerOptions``."""
        return None if self.folder is None else str(self.folder)


class Loaded(NamedTuple):
    """What a worker process tells its supervisor of the application that it has loaded.

    Attributes:
        file: The path of its module; None = it has none.
        task_types: How many there are, aliases not counted.
        queues: Those that the task types name; ``default`` where one names none.
    """

    file: str | None
    task_types: int
    queues: tuple[str, ...]


class Application(Protocol):
    """What a worker needs of an ``octop.Octop``."""

    @property
    def registry(self) -> dict[str, TaskDefinition]:
        """Hold the task types by name and alias."""

    @property
    def hooks(self) -> Hooks:
        """Hold what is called around the life of worker and task."""

    @property
    def queue_declarations(self) -> dict[str, dict[str, object]]:
        """Hold values of queues that the code declares, by queue."""

    @property
    def declared_schedules(self) -> DeclaredSchedules:
        """Hold the schedules that the code declares."""


def named_application(settings: Settings, folder: Path | None = None) -> Named | None:
    """Return the application that the settings name, else ``tasks.py``; None when there is none of the two.

    Args:
        settings: As they were found.
        folder: Where ``tasks.py`` may be; None = the current folder.
    """
    if settings.app:
        return Named(settings.app, settings.app_folder)
    folder = Path.cwd() if folder is None else folder
    return Named(TASKS, folder) if (folder / f"{TASKS}.py").is_file() else None


def load_application(spec: str, folder: str | Path | None = None) -> Application:
    """Import the application that ``module:attribute`` names.

    The current folder is put on the import path, and ``folder`` before it. Without an attribute the module is searched
    for its one application.

    Args:
        spec: ``module:attribute``, ``module``, or the path of a ``.py`` file in place of the module.
        folder: Where the module is looked for first: that of the settings file which names it.

    Returns:
        The application.

    Raises:
        ApplicationError: When the module does not import (whatever it raises, SystemExit too) or holds no such application. The
            message names module and cause, the detail the user's own frames.
    """
    name, _, attribute = spec.partition(":")
    if not name:
        message = f"{spec!r} names no module"
        raise ApplicationError(message, hint="Give module:attribute, for example `octop worker -A shop.tasks:octop`.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if folder is not None:
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
    module = _imported(name, Path(folder or ""))
    if not attribute:
        return _only_application(module)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        message = f"the module {name} has no attribute {attribute}"
        raise ApplicationError(message, hint=f"Applications in {name}: {', '.join(_applications(module)) or 'none'}.")
    if not _is_application(found):
        message = f"{spec} is a {type(found).__name__}, not an Octop"
        raise ApplicationError(message, hint="Name the object made by `octop = Octop()`.")
    application: Application = found
    return application


def application_folder(spec: str) -> Path | None:
    """Return the folder whose files make up an application that was loaded; None when it has none."""
    name = spec.partition(":")[0]
    module = sys.modules.get(MAIN_ALIAS if name.endswith(".py") else name.partition(".")[0])
    file = getattr(module, "__file__", None)
    if file is None:
        folders = list(getattr(module, "__path__", []))
        return Path(folders[0]) if folders else None
    return Path(file).resolve().parent


def described(spec: str, application: Application) -> Loaded:
    """Say what was loaded.

    Args:
        spec: The name under which it was loaded.
        application: What ``load_application`` returned for it.
    """
    name = spec.partition(":")[0]
    module = sys.modules.get(MAIN_ALIAS if name.endswith(".py") else name)
    definitions = {definition.name: definition for definition in application.registry.values()}
    queues = {definition.policy.queue or DEFAULT_QUEUE for definition in definitions.values()}
    return Loaded(getattr(module, "__file__", None), len(definitions), tuple(sorted(queues)))


def warn_of_queues(named: Iterable[str], loaded: Loaded) -> None:
    """Warn of a queue of -q that is probably mistyped. It may be meant: an enqueue, or an operator, can name any queue.

    Args:
        named: Those of -q.
        loaded: What was loaded.
    """
    for name in named:
        if name not in (*loaded.queues, DEFAULT_QUEUE):  # a plain INSERT goes to `default`
            near = get_close_matches(name, loaded.queues, n=1)
            also = f"; did you mean {near[0]}?" if near else f": they are in {', '.join(loaded.queues) or 'none'}"
            log.warning("no task type of the application is in the queue %s%s", name, also)


def is_mendable(error: OctopError) -> bool:
    """Tell whether saving a file may mend it: the module is there, and raised while it was imported.

    Args:
        error: What ``load_application`` raised.
    """
    return isinstance(error, ApplicationError) and error.__cause__ is not None


def _imported(name: str, folder: Path) -> ModuleType:
    is_file = name.endswith(".py")
    if is_file and not (folder / name).is_file():
        message = f"there is no file {folder / name}"
        raise ApplicationError(
            message, hint=f"Name a file that is there, or a module. The current folder: {Path.cwd()}."
        )
    if not is_file and not all(part.isidentifier() for part in name.split(".")):
        message = f"{name!r} is neither the name of a module nor a .py file"
        raise ApplicationError(message, hint="Give module:attribute as in `shop.tasks:octop`, or a file: app/tasks.py.")
    try:
        return _from_file(folder / name) if is_file else importlib.import_module(name)
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: a worker that starts without its tasks would be alive and useless.
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name is not None
            and f"{name}.".startswith(f"{error.name}.")
        ):
            message = f"there is no module {error.name}, so the application {name} can not be imported"
            hint = f"Looked in {', '.join(entry or '.' for entry in sys.path[:3])} …; start in the project's folder."
            raise ApplicationError(
                message, hint=hint
            ) from None  # a cause is what the module itself raised: see is_mendable
        message = f"the module {name} does not import: {type(error).__name__}: {error}"
        raise ApplicationError(message, detail=_where(error), hint="Correct the module and start again.") from error


def _where(error: BaseException) -> str:
    """Return the way to the error through the user's own files; all of it when debugging. The message stands above it."""
    if log.isEnabledFor(logging.DEBUG):
        return "".join(traceback.format_exception(error)).rstrip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    lines = traceback.format_list(frames)
    if isinstance(error, SyntaxError):  # its place is no frame
        lines += [line for line in traceback.format_exception_only(error) if line.startswith(" ")]
    return "".join(lines).rstrip()


def _is_ours(file: str) -> bool:
    """Tell whether a file is Octop's or the import system's, which nobody who looks for his fault wants to read."""
    return file.startswith(("<frozen importlib", str(OURS))) or Path(file).parent.name == "importlib"


def _from_file(path: Path) -> ModuleType:
    """Import a script that was started as ``__main__``, under another name, so that its main part does not run again."""
    if MAIN_ALIAS in sys.modules:
        return sys.modules[MAIN_ALIAS]
    found = importlib.util.spec_from_file_location(MAIN_ALIAS, path)
    if found is None or found.loader is None:
        message = f"{path} is not a Python file"
        raise ImportError(message)
    module = importlib.util.module_from_spec(found)
    if str(path.resolve().parent) not in sys.path:
        sys.path.insert(0, str(path.resolve().parent))
    sys.modules[MAIN_ALIAS] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN_ALIAS]
        raise
    return module


def _is_application(thing: object) -> bool:
    return isinstance(getattr(thing, "registry", None), dict) and isinstance(getattr(thing, "hooks", None), Hooks)


def _applications(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if _is_application(value)]


def _only_application(module: ModuleType) -> Application:
    found = {id(getattr(module, name)): getattr(module, name) for name in _applications(module)}
    if len(found) != 1:
        message = f"the module {module.__name__} holds {len(found) or 'no'} application{'s' if len(found) > 1 else ''}"
        hint = f"Name it: {module.__name__}:ATTRIBUTE."
        if not found:
            hint = f"{module.__file__} has no `octop = Octop()`; `octop init` in an empty folder shows one."
        raise ApplicationError(message, hint=hint)
    application: Application = next(iter(found.values()))
    return application
