"""Custom headers: typed values that travel as strings.

A header is a frozen class of attrs, as L{Header} makes them.  Its attribute C{queue_id} is the
field C{queueId} on the wire, unless L{ext} names it otherwise; an attribute without a default is
mandatory.  Their types are C{str}, C{int} (32 bits), L{Long} (64 bits), C{bool} and C{float}, each
of them C{| None} where absence means something.  Source: docs/protocol/remoting.md, Custom headers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from string import ascii_lowercase
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from attrs import NOTHING, Attribute, AttrsInstance, evolve, field, fields, frozen

from rmqha.errors import HeaderFieldInvalid

Long = Annotated[int, "64 bits"]
"""A whole number of 64 bits; what is only C{int} has 32."""

H = TypeVar("H", bound=AttrsInstance)

_NAME = "rmqha.ext"


def ext(name: str, default: Any = NOTHING) -> Any:
    """Declare a field whose name on the wire is not its attribute's in camel case.

    @param name: The name on the wire.
    @param default: What an absent field means; without one it is mandatory.
    """
    return field(default=default, metadata={_NAME: name})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, ext))
class Header:
    """What is below it is a header, without a decorator of its own."""

    __attrs_attrs__: ClassVar[tuple[Any, ...]]

    def __init_subclass__(cls, **how: Any) -> None:
        frozen(cls, kw_only=True, slots=False, **how)

    def but(self, **changes: Any) -> Self:
        """The same, with other values of some fields."""
        made: Self = evolve(cast(Any, self), **changes)
        return made


def lettered(cls: type, attributes: list[Attribute[Any]]) -> list[Attribute[Any]]:
    """Name the fields of a class a, b, c, ... on the wire, in their order; for attrs'
    C{field_transformer}.
    """
    letters = zip(ascii_lowercase, attributes, strict=False)
    return [attribute.evolve(metadata={_NAME: letter}) for letter, attribute in letters]


def to_ext(header: AttrsInstance) -> dict[str, str]:
    """What a header says, as it goes on the wire: fields that are C{None} are left out."""
    found = {}
    for attribute, name in _names(type(header)):
        value = getattr(header, attribute)
        if type(value) is str:
            found[name] = value
        elif value is True:
            found[name] = "true"
        elif value is False:
            found[name] = "false"
        elif value is not None:
            found[name] = str(value)
    return found


def from_ext(cls: type[H], ext: Mapping[str, str]) -> H:
    """Read a header.  Fields the class does not know are ignored.

    @raise HeaderFieldInvalid: If a mandatory field is missing, or any is not of its type.
    """
    values: dict[str, Any] = {}
    get = ext.get
    for argument, name, parse, mandatory in _slots(cls):
        text = get(name)
        if parse is None:
            if text is not None:
                values[argument] = text
            elif mandatory:
                raise _invalid(cls, name, text)
        elif text:
            try:
                values[argument] = parse(text)
            except ValueError:
                raise _invalid(cls, name, text) from None
        elif mandatory:
            raise _invalid(cls, name, text)
    return cls(**values)


def changed(header: H, other: Mapping[str, Any]) -> H:
    """A header like another, but for some attributes; a quarter of what C{attrs.evolve} takes.

    @param other: These, by name; their values are not checked.
    """
    cls = type(header)
    made = cls.__new__(cls)
    for attribute, _ in _names(cls):
        value = other[attribute] if attribute in other else getattr(header, attribute)
        object.__setattr__(made, attribute, value)
    return made


def _int32(text: str) -> int:
    number = int(text) if text.isdigit() else _signed(text)
    if -(1 << 31) <= number < 1 << 31:
        return number
    raise ValueError


def _int64(text: str) -> int:
    number = int(text) if text.isdigit() else _signed(text)
    if -(1 << 63) <= number < 1 << 63:
        return number
    raise ValueError


def _signed(text: str) -> int:
    # int() alone would take blanks and underscores too.
    if text[0] in "+-" and text[1:].isdigit():
        return int(text)
    raise ValueError


def _bool(text: str) -> bool:
    return text.lower() == "true"


_PARSERS: dict[Any, tuple[Callable[[str], Any] | None, str]] = {
    str: (None, "a string"),
    int: (_int32, "a 32-bit integer"),
    Long: (_int64, "a 64-bit integer"),
    bool: (_bool, "true or false"),
    float: (float, "a number"),
}


_Parser = Callable[[str], Any] | None


@cache
def _slots(cls: type[AttrsInstance]) -> tuple[tuple[str, str, _Parser, bool], ...]:
    """For each field: attribute name, wire name, parser (C{None} for a string), and whether it
    is mandatory.
    """
    return tuple(
        (
            attribute.alias,
            wire_name(attribute),
            _PARSERS[_kind(cls, attribute.name)][0],
            attribute.default is NOTHING,
        )
        for attribute in fields(cls)
    )


def _invalid(cls: type[AttrsInstance], name: str, text: str | None) -> HeaderFieldInvalid:
    """The error for a field with such a text."""
    (attribute,) = (found for found in fields(cls) if wire_name(found) == name)
    expected = _PARSERS[_kind(cls, attribute.name)][1]
    return HeaderFieldInvalid(cls.__name__, name, text, expected)


@cache
def _names(cls: type[AttrsInstance]) -> tuple[tuple[str, str], ...]:
    return tuple((attribute.name, wire_name(attribute)) for attribute in fields(cls))


def wire_name(attribute: Attribute[Any]) -> str:
    """What an attribute is called on the wire."""
    given = attribute.metadata.get(_NAME)
    if given is not None:
        return str(given)
    return camel(attribute.name)


def camel(name: str, mark: str = "_") -> str:
    """A name of words between marks as Java would write it."""
    first, *rest = name.split(mark)
    return first + "".join(word.capitalize() for word in rest)


def _kind(cls: type[AttrsInstance], attribute: str) -> Any:
    hint = _hints(cls)[attribute]
    if hint in _PARSERS:
        return hint
    (kind,) = (kind for kind in get_args(hint) if kind is not NoneType)
    return kind


@cache
def _hints(cls: type[AttrsInstance]) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)
