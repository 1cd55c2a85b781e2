"""JSON forms of values with named fields: dataclasses, NamedTuple, TypedDict, pydantic models. All are objects."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any

from octop.model.json_text import RefusedError
from octop.model.scalars import Codec, Convert, refused

CodecFor = Callable[[object], Codec]


@dataclasses.dataclass(frozen=True, slots=True)
class _Fields:
    """Fields of a class: their codecs, and which of them must be there."""

    codecs: dict[str, Codec]
    required: frozenset[str]

    def encode(self, found: Mapping[str, object]) -> dict[str, object]:
        return {name: _field(self.codecs[name].encode, value, name) for name, value in found.items()}

    def decode(self, value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refused(value, f"an object for {name}")
        if unknown := [key for key in value if key not in self.codecs]:
            reason = f"{name} has no field {unknown[0]!r}; it has {', '.join(self.codecs)}"
            raise RefusedError(reason)
        if missing := [key for key in self.codecs if key in self.required and key not in value]:
            reason = f"{name} needs the field {missing[0]!r}"
            raise RefusedError(reason)
        return {key: _field(self.codecs[key].decode, inner, key) for key, inner in value.items()}


def _field(convert: Convert, value: object, name: str) -> object:
    try:
        return convert(value)
    except RefusedError as error:
        error.within(name)
        raise


def _made(make: Callable[..., object], value: object, arguments: dict[str, Any], name: str) -> object:
    try:
        return make(**arguments)
    except (
        TypeError,
        ValueError,
    ) as error:  # what __post_init__ refuses; anything else is a fault and stays what it is
        reason = f"{name} refuses these values: {type(error).__name__}: {error}"
        raise RefusedError(reason) from error


def _hints(kind: type, codec_for: CodecFor) -> dict[str, Codec]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        reason = f"an annotation of {kind.__qualname__} can not be resolved: {error}"
        raise RefusedError(reason) from error
    return {name: codec_for(hint) for name, hint in hints.items()}


def dataclass_codec(kind: type, codec_for: CodecFor) -> Codec:
    """Build the codec of a dataclass: an object of its init fields; missing fields take their defaults.

    Args:
        kind: The dataclass.
        codec_for: Finds the codec of a field's annotation; asked at first use, so that a class may contain itself.
    """
    name = kind.__qualname__

    @functools.cache
    def fields() -> _Fields:
        codecs = _hints(kind, codec_for)
        init = [field for field in dataclasses.fields(kind) if field.init]
        required = [
            f.name for f in init if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        return _Fields({field.name: codecs[field.name] for field in init}, frozenset(required))

    def decode(value: object) -> object:
        return _made(kind, value, fields().decode(value, name), name)

    def encode(value: object) -> object:
        if type(value) is not kind:
            # A subclass would silently lose what it adds.
            if isinstance(value, kind):
                raise refused(value, f"exactly a {name}")
            value = decode(value)
        return fields().encode({field: getattr(value, field) for field in fields().codecs})

    return Codec(encode, decode)


def named_tuple_codec(kind: type, codec_for: CodecFor) -> Codec:
    """Build the codec of a NamedTuple: an object by field names, so that a field added in front moves nothing."""
    name = kind.__qualname__
    names: tuple[str, ...] = getattr(kind, "_fields", ())
    defaults: dict[str, object] = getattr(kind, "_field_defaults", {})

    @functools.cache
    def fields() -> _Fields:
        hints = _hints(kind, codec_for)
        return _Fields({n: hints.get(n) or codec_for(Any) for n in names}, frozenset(names) - defaults.keys())

    def decode(value: object) -> object:
        if isinstance(value, list) and len(value) <= len(names):
            value = dict(zip(names, value, strict=False))
        return _made(kind, value, fields().decode(value, name), name)

    def encode(value: object) -> object:
        made = value if type(value) is kind else decode(list(value) if type(value) is tuple else value)
        return fields().encode({field: getattr(made, field) for field in names})

    return Codec(encode, decode)


def typed_dict_codec(kind: type, codec_for: CodecFor) -> Codec:
    """Build the codec of a TypedDict: unknown keys and missing required ones are refused."""
    name = kind.__qualname__

    @functools.cache
    def fields() -> _Fields:
        return _Fields(_hints(kind, codec_for), getattr(kind, "__required_keys__", frozenset()))

    def decode(value: object) -> object:
        return fields().decode(value, name)

    def encode(value: object) -> object:
        if not isinstance(value, dict):
            raise refused(value, f"a dict for {name}")
        unknown = value.keys() - fields().codecs.keys()
        missing = fields().required - value.keys()
        if unknown or missing:
            reason = f"{name} does not fit: missing {sorted(missing)}, unknown {sorted(map(str, unknown))}"
            raise RefusedError(reason)
        return fields().encode(value)

    return Codec(encode, decode)


def pydantic_codec(kind: type, plain_of: Convert) -> Codec:
    """Build the codec of a class with pydantic's two methods; pydantic itself is not imported.

    Args:
        kind: The model.
        plain_of: Checks what the model printed.
    """
    model: Any = kind
    name = kind.__qualname__

    def decode(value: object) -> object:
        try:
            return model.model_validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            reason = f"{name} refuses these values: {error}"
            raise RefusedError(reason) from error

    def encode(value: object) -> object:
        if type(value) is not kind:
            if isinstance(value, kind):
                raise refused(value, f"exactly a {name}")
            value = decode(value)
        printed: Any = value
        return plain_of(printed.model_dump(mode="json", by_alias=True, round_trip=True))

    return Codec(encode, decode)
