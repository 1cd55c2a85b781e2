"""What binding arguments needs of a signature: of the function itself, or of the class of one task where it gets a list of them."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from octop.model.batch import BatchTask
from octop.model.codec import ANY, codec_for
from octop.model.context import Context
from octop.model.errors import InvalidTaskError
from octop.model.scalars import Codec

POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Plan:
    """What binding needs of a signature, worked out once.

    Attributes:
        positional: Names that take positional arguments, in order, without context parameters.
        codecs: Codec of each parameter, by name, without context parameters.
        required: Those without a default.
        positional_only: Those that can not be passed by name, context parameters included, in order.
        contexts: Parameters that get the Context.
        rest: Codec of the values of ``**kwargs``; None = there is none.
        result: Codec of what the function returns.
        allowed: Names that may be passed by name.
        defaults: Values of those that have one.
        arguments: Of a batch, what is made of the arguments of one task; None = the function takes them itself.
    """

    positional: tuple[str, ...]
    codecs: dict[str, Codec]
    required: frozenset[str]
    positional_only: tuple[str, ...]
    contexts: frozenset[str]
    rest: Codec | None
    result: Codec
    allowed: frozenset[str]
    defaults: Mapping[str, object]
    arguments: Callable[..., Any] | None = None


_MAYBE: Final = (typing.Required, typing.NotRequired)


def by_name(**arguments: Any) -> dict[str, Any]:
    """Return arguments as they are: of a batch whose tasks have no class."""
    return arguments


def planned_batch(function: Callable[..., Any], name: str) -> Plan:
    """Work out what binding one task of a batch needs: the fields of ``Mail`` in ``list[BatchTask[Mail]]``.

    Args:
        function: Takes a list of tasks.
        name: Of the task type, for messages.

    Raises:
        InvalidTaskError: An annotation can not be resolved.
    """
    hints = _hints(function, name)
    first = next(iter(inspect.signature(function).parameters))
    inner = (*typing.get_args(hints.get(first, list[Any])), Any)[0]
    arguments = (*typing.get_args(inner), Any)[0] if typing.get_origin(inner) is BatchTask else Any
    said = hints.get("return", Any)
    lists = [each for each in (said, *typing.get_args(said)) if typing.get_origin(each) in (list, Sequence)]
    results = typing.get_args(lists[0])[0] if lists else Any
    try:
        result = _result_codec(results)
    except InvalidTaskError:  # such as list[str | Exception]
        result = ANY
    if typing.is_typeddict(arguments):
        fields = _hints(arguments, name)
        # __required_keys__ does not know of NotRequired in annotations that are text
        kinds = {n: typing.get_origin(hint) for n, hint in fields.items()}
        bare = {n: typing.get_args(hint)[0] if kinds[n] in _MAYBE else hint for n, hint in fields.items()}
        codecs = {n: codec_for(hint) for n, hint in bare.items()}
        total = vars(arguments)["__total__"]
        required = frozenset(
            n for n, kind in kinds.items() if kind is typing.Required or (total and kind is not typing.NotRequired)
        )
        return Plan((), codecs, required, (), frozenset(), None, result, frozenset(codecs), {}, by_name)
    if arguments is Any or not inspect.isclass(arguments) or issubclass(arguments, Mapping):
        return Plan((), {}, frozenset(), (), frozenset(), ANY, result, frozenset(), {}, by_name)
    plan = planned(arguments, name)
    # a field with a factory has no value that could be stored
    defaults = {n: value for n, value in plan.defaults.items() if repr(value) != "<factory>"}
    return replace(plan, result=result, arguments=arguments, defaults=defaults)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        if inspect.isclass(function) and not hints:
            hints = typing.get_type_hints(function.__init__, include_extras=True)
    except (NameError, AttributeError, TypeError) as error:
        message = f"an annotation of the task {name} can not be resolved: {error}"
        hint = "Import its class at the top of the module, not under TYPE_CHECKING, or leave the annotation out."
        raise InvalidTaskError(message, hint=hint) from error
    return hints


def planned(function: Callable[..., Any], name: str) -> Plan:
    """Work out what binding a call needs.

    Args:
        function: Takes the arguments.
        name: Of the task type, for messages.

    Raises:
        InvalidTaskError: An annotation can not be resolved.
    """
    hints = _hints(function, name)
    parameters = inspect.signature(function).parameters
    contexts = frozenset(n for n in parameters if _is_context(hints.get(n)))
    own = {n: p for n, p in parameters.items() if n not in contexts and p.kind is not p.VAR_KEYWORD}
    rest = next((n for n, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
    return Plan(
        positional=tuple(n for n, p in own.items() if p.kind in POSITIONAL),
        codecs={n: codec_for(hints.get(n, Any)) for n in own},
        required=frozenset(n for n, p in own.items() if p.default is p.empty),
        positional_only=tuple(n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY),
        contexts=contexts,
        rest=None if rest is None else codec_for(hints.get(rest, Any)),
        result=_result_codec(hints.get("return", Any)),
        allowed=frozenset(n for n, p in own.items() if p.kind is not p.POSITIONAL_ONLY),
        defaults={n: p.default for n, p in own.items() if p.default is not p.empty},
    )


def _is_context(hint: object) -> bool:
    if hint is Context:
        return True
    return Context in typing.get_args(hint) and len(typing.get_args(hint)) == 2 and type(None) in typing.get_args(hint)


def _result_codec(hint: object) -> Codec:
    # `-> None` promises nothing about what comes back: a task that returns something all the same has not failed.
    return ANY if hint in (None, type(None), typing.NoReturn) else codec_for(hint)
