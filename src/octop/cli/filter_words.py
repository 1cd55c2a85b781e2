"""Words of a filter on a command line, and the options that are short forms of them."""

from __future__ import annotations

import re
from functools import reduce, wraps
from operator import and_
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from octop.cli.completing import filter_values, queue_names, task_ids, task_type_names
from octop.cli.moments import DURATION
from octop.cli.policy import did_you_mean
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octop.model.filter_values import Filter

    F = TypeVar("F", bound="Callable[..., Any]")
    R = TypeVar("R")

EPILOG: Final = """\b
FILTER words are key:value, and a task must satisfy all of them:
  status:failed,frozen   one of several      type:send_*      * = any characters
  -queue:mail            none of these       priority:0..3    a range (also 4.. ..2)
  created:-1h..          within the hour     'attempt:>3'     quote > and < for the shell
  payload.user.id:42     inside the payload  error:"time out" quotes keep spaces and colons
All keys and values: octop help filters
"""

COVER: Final = "\0"
"""Stands before a word that is none of click's business: no shell can hand in such a character."""

AGAIN: Final = "Repeated: any of them."

_NEGATED: Final = re.compile(r"-([A-Za-z_]+)[.:]")


class FilterCommand(click.Command):
    """A command that takes words of a filter, also those that begin with `-`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Add the short grammar to the end of the help."""
        options.setdefault("epilog", EPILOG)
        super().__init__(*arguments, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Hide the `-` of `-key:value` from click, which would take it for an option; `FilterWord` uncovers it."""
        options = [param for param in self.params if isinstance(param, click.Option)]
        taking = {name for each in options if not each.is_flag and not each.count for name in each.opts}
        short = {name[1] for each in options for name in each.opts if len(name) == 2} | {"h"}
        written: list[str] = []
        for index, word in enumerate(args):
            if word == "--":
                written += args[index:]
                break
            after_option = index > 0 and args[index - 1] in taking
            negated = None if after_option else _NEGATED.match(word)
            ours = negated is not None and (_is_key(negated[1]) or negated[1][0] not in short)
            written.append(f"{COVER}{word}" if ours else word)
        return super().parse_args(ctx, written)


def _is_key(name: str) -> bool:
    from octop.model.filter_values import BY_NAME  # noqa: PLC0415 - a fifth of the time that help may take

    return name in BY_NAME


class FilterWord(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """One word of a filter, completed by the keys and some values."""

    name = "filter"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word as it was typed."""
        return str(value).removeprefix(COVER)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the keys, and after `status:`, `queue:` and `type:` their values."""
        from octop.model.filter_values import KEYS  # noqa: PLC0415 - as above

        words = [f"{key.name}{'.' if key.kind == 'document' else ':'}" for key in KEYS]
        words = [each for each in words if each != incomplete]
        words += [f"status:{status}" for status in Status if incomplete.startswith("status:")]
        found = [each for each in words if each.startswith(incomplete)] + filter_values(ctx, param, incomplete)
        return [CompletionItem(each) for each in found]


class IdOrFilterWord(FilterWord):
    """The id of a task, or one word of a filter."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer ids too."""
        ids = [CompletionItem(each) for each in task_ids(ctx, param, incomplete)]
        return ids or super().shell_complete(ctx, param, incomplete)


FILTER_WORD: Final = FilterWord()
ID_OR_FILTER_WORD: Final = IdOrFilterWord()


class Statuses(click.ParamType):  # type: ignore[type-arg]  # as above
    """One status or several with commas between them."""

    name = "statuses"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return their names."""
        if isinstance(value, tuple):
            return value
        names = tuple(each.strip() for each in str(value).split(","))
        for name in names:
            if name not in set(Status):
                also = did_you_mean(name, Status)
                self.fail(f"there is no status {name!r}{also or '.'} Statuses: {', '.join(Status)}", param, ctx)
        return names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the statuses, also after a comma."""
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{each}") for each in Status if each.startswith(last)]


def filter_options(*, since_help: str = "As created:-DURATION.. (1h, 2d).") -> Callable[[F], F]:
    """Give a command the options that are short forms of filter words; `options_filter` reads them.

    Args:
        since_help: What `--since` means, where it means something else.
    """
    options = (
        click.option(
            "--status",
            multiple=True,
            type=Statuses(),
            metavar="STATUS,...",
            help=f"As status:STATUS,…, of {', '.join(Status)}. {AGAIN}",
        ),
        click.option("--queue", multiple=True, shell_complete=queue_names, help=f"As queue:QUEUE. {AGAIN}"),
        click.option(
            "--type", "task_type", multiple=True, shell_complete=task_type_names, help=f"As type:TYPE. {AGAIN}"
        ),
        click.option("--tenant", multiple=True, help=f"As tenant:TENANT. {AGAIN}"),
        click.option("--since", type=DURATION, metavar="DURATION", help=since_help),
    )

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def options_filter(given: dict[str, Any]) -> Filter:
    """Take the options of `filter_options` out of all that a command got, and return the filter that they ask for.

    Args:
        given: The parameters by their names; `since` may be gone already.

    Raises:
        InvalidFilterError: One of them is no condition.
    """
    from octop.model.filter_values import Filter  # noqa: PLC0415 - as above
    from octop.model.filters import exactly, since  # noqa: PLC0415 - as above

    names = {"status": "status", "queue": "queue", "task_type": "type", "tenant": "tenant"}
    texts = {key: given.pop(name) for name, key in names.items()}
    texts["status"] = [each for several in texts["status"] for each in several]
    seconds: float | None = given.pop("since", None)
    parts = [exactly(key, *values) for key, values in texts.items() if values]
    parts += [] if seconds is None else [since(seconds)]
    return reduce(and_, parts, Filter())


def takes_filter(*, since_help: str | None = None) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command a filter, as words and as options: it gets the parameter `wanted`.

    Args:
        since_help: What `--since` means to it, when it is none of the filter; it then gets the parameter `since`, too.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def filtered(*arguments: Any, words: Sequence[str], **given: Any) -> R:
            from octop.model.filters import parse_words  # noqa: PLC0415 - as above

            kept = {} if since_help is None else {"since": given.pop("since")}
            wanted = parse_words(words) & options_filter(given)
            return function(*arguments, wanted=wanted, **kept, **given)

        words = click.argument("words", metavar="[FILTER]...", nargs=-1, type=FILTER_WORD)
        options = filter_options() if since_help is None else filter_options(since_help=since_help)
        return words(options(filtered))

    return decorate
