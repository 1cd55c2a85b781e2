"""One act on many tasks: by ids one after the other, by a filter in steps, each a transaction of its own."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from octop.cli.asking import ask, can_ask
from octop.cli.output import clean, number
from octop.cli.progress import progress
from octop.cli.task_ids import TASK_REFERENCE, References
from octop.cli.tasks.list import print_tasks
from octop.engine import filtered
from octop.engine.call import run
from octop.model.errors import InvalidTaskError, OctopError, TryAgainError
from octop.model.filter_values import BY_NAME, Condition, Equal, Filter, Text
from octop.model.filters import render
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from octop.cli.invocation import Invocation
    from octop.cli.tasks.act import Act
    from octop.engine.connect import EngineConnection
    from octop.engine.selection import Selection

STEP: Final = 500
"""Tasks of one transaction: it locks them for some tens of milliseconds."""

SHOWN: Final = 10
TRIES: Final = 3


@dataclass(frozen=True)
class Wish:
    """How it is to be done.

    Attributes:
        words: Ids, or words of a filter.
        options: The filter of the options.
        dry_run: Say what would be done, and do nothing.
        limit: At most so many tasks of a filter; None = all.
        yes: Do not ask.
    """

    words: tuple[str, ...]
    options: Filter
    dry_run: bool
    limit: int | None
    yes: bool

    @property
    def typed(self) -> str:
        """Return the filter as it was typed, what options say as words."""
        words = (shlex.quote(word) if " " in word else word for word in self.words)
        return clean(" ".join(filter(None, (*words, render(self.options)))))

    @property
    def by_filter(self) -> bool:
        """Tell whether tasks are meant by a filter, and not by ids."""
        return bool(self.options) or any(":" in word or word in BY_NAME or word in set(Status) for word in self.words)


def asked(invocation: Invocation, act: Act, count: int, what: str) -> None:
    """Ask once.

    Raises:
        click.exceptions.Exit: The answer is no: code 1.
    """
    ask(invocation.output, f"{act.verb.capitalize()} {count:,} {what}?")


# --- by ids -----------------------------------------------------------------------------------------------------------


def act_on_ids(invocation: Invocation, act: Act, wish: Wish) -> None:
    """Act on every task that is named, also after one that could not be acted on; end with the first error's code."""
    context = click.get_current_context()
    references = [TASK_REFERENCE.convert(word, None, context) for word in wish.words]
    with invocation.connection() as connection:
        known = References(connection, references)
        if wish.dry_run:
            _show_named(invocation, act, [known.id_of(each) for each in references])
            return
        if len(references) > 1 and not wish.yes and can_ask():
            asked(invocation, act, len(references), "tasks")
        first, answers = _each(invocation, connection, act, references, known)
    if invocation.as_json:
        invocation.output.json(answers)
    if first is not None:
        raise click.exceptions.Exit(first.exit_code)


def _each(
    invocation: Invocation, connection: EngineConnection, act: Act, references: Sequence[str], known: References
) -> tuple[OctopError | None, list[dict[str, object]]]:
    first: OctopError | None = None
    answers: list[dict[str, object]] = []
    for reference in references:
        try:
            answer, text = act.one(connection, known.id_of(reference))
        except OctopError as error:
            if len(references) == 1:
                raise
            named = error.message if reference in error.message else f"{reference}: {error.message}"
            invocation.output.warn(named + (f"\n  hint: {error.hint}" if error.hint else ""))
            first = first or error
            answer = {"id": reference, "error": error.message}
        else:
            if not invocation.as_json:
                invocation.output.done({}, text)
        answers.append(answer)
    return first, answers


def _show_named(invocation: Invocation, act: Act, ids: Sequence[str]) -> None:
    if invocation.as_json:
        invocation.output.json({"count": len(ids), "ids": list(ids)})
        return
    invocation.output.line(f"Would {act.verb} {number(len(ids), 'task')}; nothing was done.")


# --- by a filter ------------------------------------------------------------------------------------------------------


def act_on_filter(invocation: Invocation, act: Act, wish: Wish, wanted: Filter) -> None:
    """Act on all tasks that a filter asks for, as far as their status allows it.

    Raises:
        click.UsageError: None of its statuses allows it, or there is nobody to ask.
    """
    meant = "tasks" if wanted.names("status") else f"{act.meant} tasks"
    wanted, statuses = _allowed(invocation, act, wanted)
    if not (wish.dry_run or wish.yes or can_ask()):
        message = (
            f"without a terminal, {act.verb} by a filter acts only with --yes; --dry-run says how many tasks are meant"
        )
        raise click.UsageError(message)
    most = filtered.COUNT_MAX if wish.limit is None else wish.limit
    with invocation.connection() as connection:
        selection = filtered.selected(connection, wanted, made_by_now=True)
        count = run(connection, filtered.count_tasks(selection, most))
        noun = meant.removesuffix("s") if count == 1 else meant
        what = f"{'or more ' if count == filtered.COUNT_MAX else ''}{noun} ({wish.typed})"
        if wish.dry_run:
            _show(invocation, act, connection, selection, count, wish.limit, what)
            return
        if count and not wish.yes:  # also about one: a filter may mean another than one thinks
            asked(invocation, act, count, what)
        verdicts = _steps(invocation, act, connection, selection, count, wish.limit)
    _report(invocation, act, verdicts, statuses)


def _allowed(invocation: Invocation, act: Act, wanted: Filter) -> tuple[Filter, frozenset[Status]]:
    """Return the filter with the statuses that are meant, and these."""
    left = wanted.statuses()
    meant = left & (act.possible if wanted.names("status") else act.default)
    if not meant:
        named = ", ".join(each for each in Status if each in left) or "no status"
        message = f"{act.verb} is for {_listed(act.possible)}; this filter asks for {named}. {act.otherwise}"
        raise click.UsageError(message)
    if wanted.names("status") and (others := left - act.possible):
        invocation.output.say(f"{_listed(others)} left out: {act.verb} is for {_listed(act.possible)}.")
    tests = tuple(Equal(Text((each.value,))) for each in Status if each in meant)
    rest = tuple(each for each in wanted.conditions if each.key != "status")
    return Filter((Condition("status", tests), *rest)), meant


def _listed(statuses: Collection[Status]) -> str:
    names = [each.value for each in Status if each in statuses]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _show(
    invocation: Invocation,
    act: Act,
    connection: EngineConnection,
    selection: Selection,
    count: int,
    limit: int | None,
    what: str,
) -> None:
    rows = run(connection, filtered.list_tasks(selection, min(SHOWN, limit or SHOWN)))
    if invocation.as_json:
        invocation.output.json({"count": count, "tasks": rows})
        return
    output = invocation.output
    output.line(f"Would {act.verb} {count:,} {what}; nothing was done.")
    if rows:
        print_tasks(output, rows)
    if count > len(rows):
        output.say(f"The latest {len(rows)} of {count:,}.")


def _steps(
    invocation: Invocation, act: Act, connection: EngineConnection, selection: Selection, count: int, limit: int | None
) -> Counter[str]:
    verdicts: Counter[str] = Counter()
    with (
        _what_was_done(invocation, act, verdicts),
        progress(invocation.output, act.verb, min(count, limit or count)) as more,
    ):
        for ids in _pages(connection, selection, limit):
            done = _step(invocation, act, connection, ids)
            verdicts.update(done)
            more(len(ids))
    return verdicts


@contextlib.contextmanager
def _what_was_done(invocation: Invocation, act: Act, verdicts: Counter[str]) -> Iterator[None]:
    """Say, when it was interrupted, how far it came."""
    finished = False
    try:
        yield
        finished = True
    finally:
        if not finished:
            again = "; finished tasks that were repeated would be repeated once more" if verdicts["repeated"] else ""
            invocation.output.warn(
                f"stopped after {number(verdicts.total(), 'task')}: what was done stays done,"
                f" and the same command goes on with the rest{again}"
            )


def _pages(connection: EngineConnection, selection: Selection, limit: int | None) -> Iterator[list[str]]:
    """Yield ids in steps, the largest first; no step meets what an earlier one made: that is younger than the selection."""
    below: str | None = None
    left = limit
    while left is None or left > 0:
        wanted = STEP if left is None else min(STEP, left)
        ids = run(connection, filtered.ids_below(selection, below, wanted))
        if ids:
            yield ids
        if len(ids) < wanted:
            return
        below, left = ids[-1], None if left is None else left - len(ids)


def _step(invocation: Invocation, act: Act, connection: EngineConnection, ids: list[str]) -> Counter[str]:
    for left in reversed(range(TRIES)):
        try:
            return Counter(str(row[1]) for row in run(connection, act.many(ids)))
        except TryAgainError:
            if not left:
                raise
        except InvalidTaskError:
            break
    # One of them can not be enqueued any more, and nothing was done: one by one, the others can.
    verdicts: Counter[str] = Counter()
    for task_id in ids:
        try:
            verdicts.update(str(row[1]) for row in run(connection, act.many([task_id])))
        except InvalidTaskError as error:
            invocation.output.warn(f"{task_id}: {error.message}")
            verdicts["refused"] += 1
    return verdicts


def _report(invocation: Invocation, act: Act, verdicts: Counter[str], statuses: frozenset[Status]) -> None:
    if invocation.as_json:
        invocation.output.json({"count": verdicts.total(), "verdicts": dict(verdicts)})
    elif not verdicts:
        invocation.output.say(f"No such task that is {_listed(statuses).replace(' and ', ' or ')}.")
    for verdict, count in () if invocation.as_json else verdicts.most_common():
        meaning = act.spoken.get(verdict, f"left alone, for meanwhile: {verdict}")
        invocation.output.done({}, f"{number(count, 'task')} {meaning}")
    if verdicts["refused"]:
        raise click.exceptions.Exit(InvalidTaskError.exit_code)
