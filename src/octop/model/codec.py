"""Values to JSON and back, by annotation. Never pickle: a payload must not run code.

``encode`` takes a value of the annotated type, or its JSON form, and refuses everything else: what is refused here
would fail in the worker, at night. ``decode`` gives the type back. Where there is no annotation, rich values are still
written (a date as text), and come back plain.

Besides the scalars of ``octop.model.scalars``: list, tuple, set, frozenset, dict (keys: text, or anything whose JSON
form is text or int), their abstract forms, dataclasses, NamedTuple, TypedDict, Literal, unions, Annotated, NewType,
and classes with pydantic's ``model_validate`` and ``model_dump``. ``-0.0`` is written as it is, and PostgreSQL keeps
it as 0.0.
"""

import dataclasses
import threading
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Literal, Union, get_args, get_origin

from octop.model.json_text import RefusedError, from_text, to_text
from octop.model.records import dataclass_codec, named_tuple_codec, pydantic_codec, typed_dict_codec
from octop.model.scalars import SCALARS, Codec, Convert, enum_codec, formless, path_codec, refused

_PLAIN: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})
_LISTS: Final = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection})
_SETS: Final[dict[object, type]] = {set: set, abc.Set: set, abc.MutableSet: set, frozenset: frozenset}
_DICTS: Final = frozenset({dict, abc.Mapping, abc.MutableMapping})


def encode(value: object, annotation: object = Any) -> str:
    """Write a value as JSON text.

    Args:
        value: Of the annotated type, or its JSON form.
        annotation: Any annotation that this module knows.

    Returns:
        Compact JSON that jsonb takes.

    Raises:
        NotJsonError: The value has no JSON form; the message begins with its path.
        InvalidTimeError: A datetime without a zone.

    Examples:
        >>> from datetime import date
        >>> encode({"day": date(2030, 1, 31)})
        '{"day":"2030-01-31"}'
    """
    return to_text(plain(value, codec_for(annotation)))


def plain(value: object, codec: Codec) -> object:
    """Turn a value into plain JSON values; see ``encode``."""
    if type(value) in codec.exact:
        return value
    try:
        return codec.encode(value)
    except RefusedError as error:
        raise error.when_encoding() from error.__cause__
    except RecursionError as error:
        reason = "nested too deeply, or a value that contains itself"
        raise RefusedError(reason).when_encoding() from error


def decode(text: str, annotation: object = Any) -> object:
    """Read JSON text as a value of a type.

    Args:
        text: JSON.
        annotation: As for ``encode``.

    Raises:
        InvalidPayloadError: The text is not JSON that Python can read.
        InvalidArgumentsError: The JSON is not one of this type; the message begins with the path.
        InvalidTimeError: A moment without an offset.
    """
    return typed(from_text(text), codec_for(annotation))


def typed(value: object, codec: Codec) -> object:
    """Turn plain JSON values into a value of the codec's type; see ``decode``."""
    try:
        return codec.decode(value)
    except RefusedError as error:
        raise error.when_decoding() from error.__cause__


def _encode_any(value: object) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return _ANY_DICT.encode(value)
    if kind is list or kind is tuple:
        return _ANY_LIST.encode(value)
    if kind in (set, frozenset):
        return _ANY_SET.encode(value)
    found = codec_for(kind)
    if found is ANY:
        raise formless(value, "a value with a JSON form")
    return found.encode(value)


def _decode_any(value: object) -> object:
    return value


ANY: Final = Codec(_encode_any, _decode_any, _PLAIN)


def _list_codec(item: Codec) -> Codec:
    def encode_list(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise refused(value, "a list")
        encoded: list[object] = []
        # A loop, not a comprehension that calls: two frames a level, so that 200 levels fit into any stack.
        try:
            for inner in value:
                encoded.append(inner if type(inner) in item.exact else item.encode(inner))  # noqa: PERF401 - see above
        except RefusedError as error:
            error.within(len(encoded))
            raise
        return encoded

    def decode_list(value: object) -> object:
        if not isinstance(value, list):
            raise refused(value, "a list")
        if item is ANY:
            return value
        return [_each(item.decode, inner, index) for index, inner in enumerate(value)]

    return Codec(encode_list, decode_list)


def _each(convert: Convert, value: object, step: str | int) -> object:
    try:
        return convert(value)
    except RefusedError as error:
        error.within(step)
        raise


def _set_codec(item: Codec, kind: type) -> Codec:
    listed = _list_codec(item)

    def encode_set(value: object) -> object:
        if not isinstance(value, set | frozenset | list):
            raise refused(value, "a set")
        encoded = listed.encode(list(value))
        # One order for equal sets, whatever the hash seed: payloads can be compared.
        return sorted(encoded, key=to_text) if isinstance(encoded, list) else encoded

    def decode_set(value: object) -> object:
        try:
            return kind(listed.decode(value))
        except TypeError as error:
            raise refused(value, "a list of hashable values") from error

    return Codec(encode_set, decode_set)


def _tuple_codec(items: tuple[Codec, ...]) -> Codec:
    wanted = f"a list of {len(items)}"

    def encode_tuple(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise refused(value, wanted)
        return [_each(item.encode, inner, i) for i, (item, inner) in enumerate(zip(items, value, strict=True))]

    def decode_tuple(value: object) -> object:
        if not isinstance(value, list) or len(value) != len(items):
            raise refused(value, wanted)
        return tuple(_each(item.decode, inner, i) for i, (item, inner) in enumerate(zip(items, value, strict=True)))

    return Codec(encode_tuple, decode_tuple)


def _long_tuple_codec(item: Codec) -> Codec:
    listed = _list_codec(item)

    def decode_tuple(value: object) -> object:
        decoded = listed.decode(value)
        return tuple(decoded) if isinstance(decoded, list) else decoded

    return Codec(listed.encode, decode_tuple)


def _dict_codec(key: Codec, item: Codec) -> Codec:
    def encode_dict(value: object) -> object:
        if not isinstance(value, Mapping):
            raise refused(value, "a dict")
        encoded: dict[str, object] = {}
        name: object = None
        try:
            for name, inner in value.items():
                text = name if type(name) is str and str in key.exact else _key_text(key, name)
                encoded[text] = inner if type(inner) in item.exact else item.encode(inner)
        except RefusedError as error:
            error.within(str(name))
            raise
        if len(encoded) != len(value):
            raise formless(value, "a dict whose keys stay different as text")
        return encoded

    def decode_dict(value: object) -> object:
        if not isinstance(value, dict):
            raise refused(value, "an object")
        if item is ANY and str in key.exact:
            return value
        return {_key_value(key, name): _each(item.decode, inner, name) for name, inner in value.items()}

    return Codec(encode_dict, decode_dict)


def _key_text(codec: Codec, key: object) -> str:
    if type(key) is str and str in codec.exact:
        return key
    found = codec.encode(key)
    if isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise formless(key, "a key with a JSON form that is text or int")


def _key_value(codec: Codec, key: str) -> object:
    if str in codec.exact:
        return key
    try:
        return codec.decode(key)
    except RefusedError as error:
        error.within(key)
        try:
            return codec.decode(int(key))
        except ValueError:
            raise error from None


def _union_codec(members: tuple[object, ...]) -> Codec:
    codecs = [codec_for(member) for member in members]
    nullable = type(None) in members
    rest = [codec for codec, member in zip(codecs, members, strict=True) if member is not type(None)]
    if nullable and len(rest) == 1:
        return _optional_codec(rest[0])
    # Types whose JSON form must be parsed are tried first: text that is no date is still text, a date read as text is
    # lost.
    tried = sorted(codecs, key=lambda codec: bool(codec.exact))
    names = " or ".join(getattr(member, "__name__", str(member)) for member in members)

    def decode_union(value: object) -> object:
        for codec in tried:
            if type(value) in codec.exact and all(other.exact for other in tried):
                return value
        for codec in tried:
            try:
                return codec.decode(value)
            except RefusedError:
                continue
        raise refused(value, names)

    def encode_union(value: object) -> object:
        for codec in (*(c for c in tried if type(value) in c.exact), *tried):
            try:
                encoded = codec.encode(value)
                back = decode_union(encoded)
            except RefusedError:
                continue
            if type(back) is type(value) or type(value) in _PLAIN - {str}:
                return encoded
            reason = f"as JSON it would come back as {type(back).__name__}: the union {names} can not tell them apart"
            raise RefusedError(reason)
        raise refused(value, names)

    return Codec(encode_union, decode_union)


def _optional_codec(codec: Codec) -> Codec:
    def encode_optional(value: object) -> object:
        return None if value is None else codec.encode(value)

    def decode_optional(value: object) -> object:
        return None if value is None else codec.decode(value)

    return Codec(
        encode_optional, decode_optional, codec.exact | {type(None)} if codec.exact else frozenset({type(None)})
    )


def _literal_codec(values: tuple[object, ...]) -> Codec:
    pairs = [(value, _encode_any(value)) for value in values]
    names = " or ".join(ascii(value) for value in values)

    def encode_literal(value: object) -> object:
        for allowed, form in pairs:
            if value == allowed and type(value) is type(allowed):
                return form
        return _encode_any(decode_literal(value))

    def decode_literal(value: object) -> object:
        for allowed, form in pairs:
            if value == form and type(value) is type(form):
                return allowed
        raise refused(value, names)

    return Codec(encode_literal, decode_literal)


_KNOWN: Final[dict[object, Codec]] = {**SCALARS, Any: ANY, object: ANY, None: SCALARS[type(None)]}


_BUILDING: Final[dict[object, Codec]] = {}
_BUILDING_LOCK: Final = threading.RLock()


def codec_for(annotation: object) -> Codec:
    """Return the codec of an annotation; the same one each time.

    Args:
        annotation: Resolved (no strings inside). An unknown class gets a codec that refuses each value, naming it.
    """
    try:
        found = _KNOWN.get(annotation)
    except TypeError:  # Annotated[int, []] has no hash
        return _build(annotation)
    if found is not None:
        return found
    with _BUILDING_LOCK:
        if annotation in _BUILDING:  # a class that contains itself
            return _BUILDING[annotation]
        holder: list[Codec] = []
        _BUILDING[annotation] = Codec(lambda value: holder[0].encode(value), lambda value: holder[0].decode(value))
        try:
            found = _build(annotation)
        finally:
            del _BUILDING[annotation]
        holder.append(found)
        # Only what is complete can be seen by other threads.
        return _KNOWN.setdefault(annotation, found)


def _build(annotation: object) -> Codec:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
        return codec_for(arguments[0])
    if origin is Union or origin is types.UnionType:
        return _union_codec(arguments)
    if origin is Literal:
        return _literal_codec(arguments)
    if isinstance(annotation, typing.NewType):
        return codec_for(annotation.__supertype__)
    if isinstance(annotation, typing.TypeVar):
        return codec_for(annotation.__bound__ or Any)
    if (alias := getattr(annotation, "__value__", None)) is not None and not isinstance(annotation, type):
        return codec_for(alias)  # PEP 695: type Ids = list[int]
    kind = origin or annotation
    return _container_codec(kind, arguments) or _class_codec(kind)


def _container_codec(kind: object, arguments: tuple[object, ...]) -> Codec | None:
    first = arguments[0] if arguments else Any
    if kind in _LISTS:
        return _list_codec(codec_for(first))
    if kind is tuple:
        if not arguments:
            return _long_tuple_codec(ANY) if kind is tuple else None
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _long_tuple_codec(codec_for(first))
        return _tuple_codec(tuple(codec_for(argument) for argument in arguments if argument != ()))
    if (made := _SETS.get(kind)) is not None:
        return _set_codec(codec_for(first), made)
    if kind in _DICTS:
        return _dict_codec(codec_for(first) if arguments else _ANY_KEY, codec_for(arguments[1] if arguments else Any))
    return None


def _class_codec(kind: object) -> Codec:
    if isinstance(kind, type):
        if issubclass(kind, Enum):
            return enum_codec(kind, _encode_any)
        if issubclass(kind, PurePath):
            return path_codec(kind)
        if dataclasses.is_dataclass(kind):
            return dataclass_codec(kind, codec_for)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return named_tuple_codec(kind, codec_for)
        if typing.is_typeddict(kind):
            return typed_dict_codec(kind, codec_for)
        if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
            return pydantic_codec(kind, _encode_any)
        for base in kind.__mro__[1:]:
            if base in SCALARS or base in (dict, list, set, frozenset):
                return _derived_codec(kind, codec_for(base))
    return _no_codec(getattr(kind, "__qualname__", str(kind)))


def _derived_codec(kind: type, base: Codec) -> Codec:
    """Build the codec of a subclass of a known class (``class Celsius(float)``): written as its base, made again from
    it.
    """
    make: Callable[[Any], object] = kind

    def decode_derived(value: object) -> object:
        try:
            return make(base.decode(value))
        except (TypeError, ValueError) as error:
            raise refused(value, f"a {kind.__qualname__}") from error

    return Codec(base.encode, decode_derived)


def _no_codec(name: str) -> Codec:
    reason = f"the class {name} has no JSON form"

    def refuse(_value: object) -> object:
        raise RefusedError(reason)

    return Codec(refuse, refuse)


def _encode_any_key(key: object) -> object:
    if isinstance(key, bool | float) or key is None:
        raise formless(key, "a key that is text or int")
    return _encode_any(key)


_ANY_KEY: Final = Codec(_encode_any_key, _decode_any, frozenset({str}))
_ANY_DICT: Final = _dict_codec(_ANY_KEY, ANY)
_ANY_LIST: Final = _list_codec(ANY)
_ANY_SET: Final = _set_codec(ANY, set)
