"""Bodies: frozen attrs classes from and to RocketMQ's JSON.

A class is read by its annotations: C{str}, C{int} (64 bits), C{float}, C{bool}, enums,
C{tuple[X, ...]}, C{dict[K, X]}, other such classes, C{X | None} and C{Any}.  Members are
named as in L{rmqha.wire.remoting.fields}.  Like Java, this takes numbers in quotes and
enums by number, and leaves an absent or null member at its default.  A class with an
attribute C{extra} keeps the members it does not know and writes them back.  A table can do without
an attribute that is L{SPARE}: where that is of another kind in a table, it is left out.
Source: docs/protocol/remoting.md, JSON habits.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from functools import cache, partial
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from attrs import NOTHING, AttrsInstance, fields, has

from rmqha.errors import BodyInvalid
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.fastjson import JsonInvalid
from rmqha.wire.remoting.fields import wire_name

B = TypeVar("B", bound=AttrsInstance)
Reader = Callable[[Any], Any]

_EXTRA = "extra"

SPARE = "spare"
"""In an attribute's metadata: one that later releases added.  A client that gives it another kind
is refused; in a table it must not keep the rest from being read."""


_ORDERS = ("@type", "$ref")
"""What a Java peer's reader of JSON does not take for names: it fails the whole body for the first
one, which asks it to make an object of a class."""


class _Misfit(Exception):
    """A value is not of its kind.

    @ivar place: The way to it, from the inside out.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.place: list[str] = []


def read(cls: type[B], body: bytes | memoryview) -> B:
    """Read a body.

    @raise BodyInvalid: If it is no JSON, lacks something or is of another shape.
    """
    try:
        return from_json(cls, fastjson.loads(body))
    except JsonInvalid as error:
        raise BodyInvalid(cls.__name__, str(error)) from None


def from_json(cls: type[B], value: Any, *, table: bool = False) -> B:
    """The same for what L{fastjson.loads} gave.

    @param table: Whether it is a table, which is read without what is L{SPARE} and misshapen.
    """
    try:
        found: B = _reader(cast(Any, cls), table)(value)
    except _Misfit as misfit:
        place = ".".join(reversed(misfit.place))
        reason = f"{place}: {misfit.reason}" if place else misfit.reason
        raise BodyInvalid(cls.__name__, reason) from None
    return found


def write(value: AttrsInstance, *, numeric_keys: Literal["bare", "quoted"] = "quoted") -> bytes:
    """Write a body.

    @param numeric_keys: How keys that are numbers are written.
    """
    return fastjson.dumps(to_json(value), numeric_keys=numeric_keys)


def to_json(value: Any) -> Any:
    """Turn a value into what L{fastjson.dumps} can write."""
    if isinstance(value, str | bool | float | NoneType) or type(value) is int:
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {_key(key): to_json(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(member) for member in value]
    members = {}
    cls: Any = type(value)
    for attribute, name in _members(cls):
        member = getattr(value, attribute)
        if attribute == _EXTRA:
            members.update(member)
        elif member is not None:
            members[name] = to_json(member)
    return members


def _key(key: Any) -> str | int:
    if isinstance(key, str | int):
        return key
    return fastjson.ObjectKey(fastjson.dumps(to_json(key)).decode())


@cache
def _members(cls: type[AttrsInstance]) -> tuple[tuple[str, str], ...]:
    return tuple((attribute.name, wire_name(attribute)) for attribute in fields(cls))


@cache
def _reader(hint: Any, table: bool = False) -> Reader:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (kind,) = (argument for argument in arguments if argument is not NoneType)
        return _reader(kind, table)
    if origin is tuple:
        return partial(_tuple, _reader(arguments[0], table))
    if origin is dict:
        key, member = arguments
        return partial(_dict, _KEYS.get(key) or partial(_object_key, key), _reader(member, table))
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return partial(_enum, hint)
    if has(hint):
        return _object_reader(hint, table)
    raise TypeError(f"bodies have no {hint}")


def _object_reader(cls: type[AttrsInstance], table: bool) -> Reader:
    hints = get_type_hints(cls)
    readers: dict[str, tuple[str, Reader]] = {}
    mandatory = []
    spare = set()
    extra = False
    for attribute in fields(cls):
        if attribute.name == _EXTRA:
            extra = True
            continue
        name = wire_name(attribute)
        readers[name] = (attribute.alias, _reader(hints[attribute.name], table))
        if table and SPARE in attribute.metadata:
            spare.add(name)
        if attribute.default is NOTHING:
            mandatory.append((name, attribute.alias))

    def read_object(value: Any) -> AttrsInstance:
        if type(value) is not dict:
            raise _Misfit(f"{_shown(value)} is not an object")
        values: dict[str, Any] = {}
        unknown: dict[str, Any] = {}
        for name, member in value.items():
            known = readers.get(name)
            try:
                if known is not None:
                    if member is not None:
                        values[known[0]] = known[1](member)
                elif extra:
                    unknown[name] = _any(member)
            except _Misfit as misfit:
                if name not in spare:
                    misfit.place.append(str(name))
                    raise
        for name, alias in mandatory:
            if alias not in values:
                raise _Misfit(f"{name} is missing")
        if unknown:
            values[_EXTRA] = unknown
        return cls(**values)

    return read_object


def _shown(value: object) -> str:
    return repr(value)[:64]


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) in (int, float):
        return str(value)
    raise _Misfit(f"{_shown(value)} is not a string")


def _whole(value: Any) -> int:
    try:
        number = int(value) if type(value) in (str, float) else value
    except (ValueError, OverflowError):
        number = None
    if type(number) is not int or (type(value) is float and number != value):
        raise _Misfit(f"{_shown(value)} is not an integer")
    if not -(1 << 63) <= number < 1 << 63:
        raise _Misfit(f"{_shown(value)} has more than 64 bits")
    return number


def _real(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    try:
        return float(_text(value))
    except ValueError:
        raise _Misfit(f"{_shown(value)} is not a number") from None


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if value in (0, 1):
        return bool(value)
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _Misfit(f"{_shown(value)} is neither true nor false")


def _any(value: Any, depth: int = 0) -> Any:
    """Anything that can be written again: in a table it may have to be for years."""
    if depth > fastjson.MAX_DEPTH:
        raise _Misfit(f"values nested more than {depth - 1} deep")
    if type(value) is float and not isfinite(value):
        raise _Misfit(f"{value} is not a number")
    if isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            _any(member, depth + 1)
    return value


def _name(key: Any) -> Any:
    if key in _ORDERS:
        raise _Misfit(f"{key} is no name to a Java peer")
    return key


_PLAIN: dict[Any, Reader] = {str: _text, int: _whole, float: _real, bool: _bool, Any: _any}
_KEYS: dict[Any, Reader] = {str: _name, int: _whole}


def _object_key(cls: type[AttrsInstance], key: str) -> Any:
    """A key that is an object, as such or inside a text."""
    try:
        return _reader(cast(Any, cls))(fastjson.loads(key.encode()))
    except JsonInvalid:
        raise _Misfit(f"the key {_shown(key)} is not an object") from None


def _tuple(reader: Reader, value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise _Misfit(f"{_shown(value)} is not an array")
    found = []
    try:
        for member in value:
            found.append(reader(member))  # noqa: PERF401 -- its length says where a misfit is
    except _Misfit as misfit:
        misfit.place.append(str(len(found)))
        raise
    return tuple(found)


def _dict(key_reader: Reader, reader: Reader, value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise _Misfit(f"{_shown(value)} is not an object")
    found = {}
    for key, member in value.items():
        try:
            found[key_reader(key)] = reader(member)
        except _Misfit as misfit:
            misfit.place.append(str(key))
            raise
    return found


def _enum(cls: type[IntEnum], value: Any) -> IntEnum:
    try:
        return cls(value) if type(value) is int else cls[value]
    except (ValueError, KeyError, TypeError):
        raise _Misfit(f"{_shown(value)} is not a {cls.__name__}") from None
