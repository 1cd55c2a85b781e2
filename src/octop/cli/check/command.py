"""`octop check`: before a deployment, whether this code fits what is queued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.findings import failing
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.output import number
from octop.model.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from octop.cli.check.payloads import Looked
    from octop.cli.findings import Finding
    from octop.worker.load import Application

SAMPLE: Final = 1_000
EXIT_FINDINGS: Final = 1


class SampleSize(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """How many payloads of each task type are read: a number, or all."""

    name = "sample"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word all."""
        text = str(value)
        if text == "all":
            return text
        if not text.isdecimal() or len(text) > 9:
            self.fail(f"{text!r} is not a number of payloads, nor the word all", param, ctx)
        return int(text)


@click.command(short_help="Before a deployment: does this code fit what is queued?")
@click.option(
    "--no-database", is_flag=True, help="Only the code: the module imports, and every signature can be understood."
)
@click.option(
    "--sample",
    type=SampleSize(),
    default=SAMPLE,
    show_default=True,
    metavar="N|all",
    help="Read about so many payloads of each task type; names are compared for every task anyway.",
)
@click.option("--strict", is_flag=True, help="Let what is only worth knowing count as a finding.")
@global_options(reads=True, application=True)
@pass_invocation
def check(invocation: Invocation, *, no_database: bool, sample: int | str, strict: bool) -> int:
    """Compare an application with what is queued and who runs it: octop check -A shop.tasks:octop. Change nothing.

    The task module imports; every queued task, frozen ones too, is of a type that the code knows, and its payload fits the
    function as it is now; the workers that live know its task types. Exit code 1 when something does not fit.
    """
    from octop.worker.load import load_application  # noqa: PLC0415 - help need not load the worker

    named = invocation.application
    application = load_application(*named)
    report = _Report(invocation, named.spec, application)
    report.look(None if no_database else sample)
    report.print()
    return EXIT_FINDINGS if failing(report.findings, strict=strict) else 0


class _Report:
    """Findings, and what was looked at."""

    def __init__(self, invocation: Invocation, spec: str, application: Application) -> None:
        self._invocation = invocation
        self._spec = spec
        self._registry = application.registry
        self.findings: list[Finding] = []
        self._looked: Looked | None = None
        self._workers = 0

    def look(self, sample: int | str | None) -> None:
        """Look at the code, and, unless sample is None, at the database."""
        from octop.cli.check.code import signatures  # noqa: PLC0415 - loads the model

        self.findings += signatures(self._registry)
        if sample is None:
            return
        from octop.cli.check.payloads import Payloads  # noqa: PLC0415 - loads psycopg
        from octop.cli.check.workers import other_workers, types_of_others  # noqa: PLC0415 - likewise
        from octop.cli.progress import progress  # noqa: PLC0415 - likewise
        from octop.engine import queued  # noqa: PLC0415 - likewise
        from octop.engine.call import run  # noqa: PLC0415 - likewise
        from octop.engine.install import require  # noqa: PLC0415 - likewise

        with (
            self._invocation.connection() as connection,
            progress(self._invocation.output, "Reading payloads") as told,
        ):
            require(connection, self._invocation.settings.schema)
            per_type = sample if isinstance(sample, int) else None
            workers = run(connection, queued.living_workers())
            queues = run(connection, queued.queues_of_types())
            others = types_of_others(self._registry, workers, queues)
            payloads = Payloads(connection, self._registry, others=others, per_type=per_type, told=told)
            self.findings += payloads.findings()
            self.findings += other_workers(self._registry, workers, queues)
        self._looked = payloads.looked
        self._workers = len(workers)

    def print(self) -> None:
        """Print it."""
        output = self._invocation.output
        if output.as_json:
            output.json({"findings": [each.as_json() for each in self.findings], "looked_at": self._looked_at()})
            return
        from octop.cli.findings import Listing  # noqa: PLC0415 - keeps help fast

        listing = Listing(output)
        for finding in self.findings:
            listing.finding(finding)
        for line in self._words():
            output.line(line)
        settings = self._invocation.settings
        if self.findings and self._looked is not None and settings.dsn is None and settings.schema == DEFAULT_SCHEMA:
            output.say(
                "All your projects share the private database: if these tasks are another one's, part them with"
                ' schema = "NAME" in octop.toml.'
            )

    def _looked_at(self) -> dict[str, Any]:
        looked = self._looked
        found: dict[str, Any] = {"application": self._spec, "task_types": self._own_types()}
        if looked is not None:
            found |= {
                "tasks": looked.tasks,
                "shapes": looked.shapes,
                "payloads": looked.payloads,
                "sample": "all" if looked.per_type is None else looked.per_type,
                "workers": self._workers,
            }
        return found

    def _words(self) -> list[str]:
        looked, own = self._looked, self._own_types()
        verdict = "Fits" if not self.findings else number(len(self.findings), "finding")
        lines = [f"{verdict}. Looked at {self._spec} with {number(own, 'task type')}."]
        if looked is None:
            return [*lines, "Not at a database: --no-database."]
        tasks = f"{number(looked.tasks, 'queued task')} of {number(looked.task_types, 'type')}"
        values = (
            "every value"
            if looked.payloads >= looked.known
            else f"values of {looked.payloads:,} of them (--sample {looked.per_type}; --sample all reads all)"
        )
        lines.append(
            f"In the database: {tasks}: the names of all arguments, {values}; {number(self._workers, 'living worker')}."
        )
        return lines

    def _own_types(self) -> int:
        return sum(name == each.name for name, each in self._registry.items())
