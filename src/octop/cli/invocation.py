"""One run of the command: what was asked for, and the database it leads to."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from octop.model.errors import ConfigurationError, SchemaMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ParamSpec

    from octop.cli.output import Output
    from octop.engine.call import Call
    from octop.engine.connect import EngineConnection
    from octop.model.settings import Settings
    from octop.worker.load import Named

    P = ParamSpec("P")

R = TypeVar("R")


@dataclass
class Invocation:
    """Hold the global options of one command line.

    Attributes:
        dsn: `--dsn`, or None.
        schema: `--schema`, or None.
        app: `--app`, or None.
        as_json: Data as JSON.
        plain: No colour.
        quiet: No messages other than errors.
        verbose: Tracebacks.
    """

    dsn: str | None = None
    schema: str | None = None
    app: str | None = None
    as_json: bool = False
    plain: bool = False
    quiet: bool = False
    verbose: bool = False

    @cached_property
    def output(self) -> Output:
        """Return the printer of this run."""
        from octop.cli.output import Output  # noqa: PLC0415 - keeps help fast

        return Output(as_json=self.as_json, plain=self.plain, quiet=self.quiet)

    @cached_property
    def settings(self) -> Settings:
        """Return DSN, schema and application: flags > environment > octop.toml > pyproject.toml > none."""
        from octop.model.settings import load_settings, unknown_variables  # noqa: PLC0415 - only when a command asks

        for name, near in unknown_variables().items():
            also = f"; did you mean {near}?" if near else ""
            self.output.warn(f"the environment variable {name} means nothing to Octop{also}")
        return load_settings(dsn=self.dsn, schema=self.schema, app=self.app)

    @cached_property
    def application(self) -> Named:
        """Return the application that was named, else ./tasks.py; it is not loaded yet."""
        from octop.worker.load import named_application  # noqa: PLC0415 - loads the model

        found = named_application(self.settings)
        if found is None:
            message = "which application? None was named, and there is no tasks.py here"
            command = click.get_current_context().info_name
            hint = f"octop init writes one to begin with; or name yours: octop {command} -A module:attribute"
            raise ConfigurationError(message, hint=hint)
        return found

    @cached_property
    def database_url(self) -> str:
        """Return the DSN; without one, that of the private development database, which is started if need be."""
        if self.settings.dsn:
            return self.settings.dsn
        from octop.engine import private_database  # noqa: PLC0415 - loads psycopg

        ran = private_database.status() is not None
        running = private_database.start()
        if self.verbose or not ran:
            started = "" if ran else ", which is started now"
            self.output.say(f"octop: no DSN: using the private database in {running.data_directory.parent}{started}")
        return running.url

    @contextlib.contextmanager
    def connection(self) -> Iterator[EngineConnection]:
        """Open a connection for the length of a `with`; it is closed also when the command is interrupted."""
        from octop.engine import reads  # noqa: PLC0415 - keeps help fast
        from octop.engine.call import run  # noqa: PLC0415 - as above
        from octop.engine.connect import open_connection  # noqa: PLC0415 - loads psycopg
        from octop.engine.install import require  # noqa: PLC0415 - as above

        with contextlib.closing(
            open_connection(self.database_url, application_name="octop", schema=self.settings.schema)
        ) as connection:
            try:
                yield connection
            except SchemaMissingError:
                try:
                    require(
                        connection, self.settings.schema
                    )  # says it better: what is missing there, which version it is
                except SchemaMissingError as error:
                    if others := run(connection, reads.schemas()):
                        found = " or ".join(f"--schema {name}" for name in others[:3])
                        error.hint = f"Octop is in another schema here; did you mean {found}? Else: octop migrate"
                    raise
                raise

    def prepare_private(self) -> None:
        """Install what is missing in the private database, as the library does; another one is its DBA's."""
        if self.settings.dsn is not None:
            return
        from octop.engine.install import install, status  # noqa: PLC0415 - loads psycopg

        with self.connection() as connection:
            found = status(connection, self.settings.schema)
        if not found.current:
            install(self.database_url, schema=self.settings.schema)
            done = "Upgraded" if found.present else "Installed"
            self.output.say(f"octop: {done} Octop in the schema {self.settings.schema} of the private database.")

    def ask(self, call: Call[R]) -> R:
        """Run one call on a connection of its own."""
        from octop.engine.call import run  # noqa: PLC0415 - loads psycopg

        with self.connection() as connection:
            return run(connection, call)


def _keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
    # Given before or after the command's name: the later word counts, and one that was not given changes nothing.
    if value is not None and value is not False:
        setattr(ctx.ensure_object(Invocation), param.name or "", value)


def _modules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from octop.cli.completing import module_names  # noqa: PLC0415 - it imports this

    return module_names(ctx, param, incomplete)


def global_options(
    *, reads: bool = False, application: bool = False, hidden: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a command take the global options after its own name as well.

    Args:
        reads: The command prints data: show `--json` in its help.
        application: The command runs an application: show `-A` in its help.
        hidden: Leave the others out of its help; `octop --help` shows them.
    """

    def kept(*names: str, hidden: bool = hidden, **more: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
        return click.option(*names, expose_value=False, callback=_keep, hidden=hidden, **more)

    options = [
        kept("--dsn", metavar="DSN", help="Which database: a URL or key=value words."),
        kept("--schema", metavar="NAME", help="Schema that holds Octop (default: public)."),
        kept(
            "-A",
            "--app",
            metavar="MODULE[:ATTRIBUTE]",
            shell_complete=_modules,
            hidden=hidden and not application,
            help="Your application. Without ATTRIBUTE: the one that the module holds.",
        ),
        kept("--json", "as_json", is_flag=True, hidden=hidden and not reads, help="Print data as JSON."),
        kept("--no-color", "plain", is_flag=True, help="No colour; NO_COLOR=1 does the same."),
        kept("--quiet", is_flag=True, help="No messages other than errors."),
        kept("-v", "--verbose", is_flag=True, help="Show tracebacks."),
    ]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
