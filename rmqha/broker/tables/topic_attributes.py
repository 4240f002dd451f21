"""What a topic's attributes may be, and how they are changed.

An administrator of 5.x says C{+name} to give an attribute a value and C{-name} to take it away;
the table, and whoever asks for it, has the plain names.  A proxy takes the kind of a topic's
messages from C{message.type}.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from rmqha.errors import RequestRefused
from rmqha.wire.names import MESSAGE_TYPES
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import ResponseCode

ADD, DELETE = "+", "-"

MOST_LONG = (1 << 63) - 1
"""The most that Java's C{long} holds."""

SHOWN = 64
"""Most characters of a name or a value in a refusal."""


@frozen
class Attribute:
    """One that is known.

    @ivar takes: Whether it may have a value.
    @ivar wanted: What values it may have, for who gave another.
    @ivar changeable: Whether that may be said of a topic that is there already.
    """

    takes: Callable[[str], bool]
    wanted: str
    changeable: bool


def _one_of(*values: str, changeable: bool) -> Attribute:
    return Attribute(frozenset(values).__contains__, "one of " + ", ".join(values), changeable)


def _milliseconds(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and -1 <= int(text[:20]) <= MOST_LONG


KNOWN: Mapping[str, Attribute] = {
    "message.type": _one_of(*MESSAGE_TYPES, changeable=True),
    # Stock brokers also have BatchCQ and COMPACTION here, other files than ours.
    "queue.type": _one_of("SimpleCQ", changeable=False),
    "cleanup.policy": _one_of("DELETE", changeable=False),
    "reserve.time": Attribute(_milliseconds, f"a number from -1 to {MOST_LONG}", changeable=True),
}
"""The attributes of 5.3, by name.  C{MIXED} is refused as it is by stock brokers, by default."""


def wanted(text: str | None) -> dict[str, str]:
    """The changes that request 17 asks for.

    @param text: C{+name=value} and C{-name}, with commas between.
    @return: The values by the signed names; none for what is to be deleted.
    @raise RequestRefused: If it is anything else.
    """
    found: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        signed, equals, value = part.partition("=")
        sign = ADD if equals else DELETE
        if not signed.startswith(sign) or (equals and not value):
            raise _wrong(f"{part[:SHOWN]!r} is neither +name=value nor -name")
        if signed in found:
            raise _wrong(f"{signed[:SHOWN]!r} is there twice")
        found[signed] = value
    return found


def changed(before: TopicConfig | None, changes: Mapping[str, str]) -> dict[str, str] | None:
    """A topic's attributes after changes, all of them or none.

    @param before: The topic; C{None} if it is about to be made.
    @param changes: As L{wanted} gives them, or request 18.
    @return: C{None} if there are none and never were.
    @raise RequestRefused: If one may not be.
    """
    found = None if before is None else before.attributes
    if not changes:
        return found
    after = dict(found or {})
    names = [signed[1:] for signed in changes]
    for (signed, value), name in zip(changes.items(), names, strict=True):
        _check(signed, value, new=before is None, there=name in after)
        if names.count(name) > 1:
            raise _wrong(f"{name!r} is there twice")
    for signed, value in changes.items():
        if signed.startswith(ADD):
            after[signed[1:]] = value
        else:
            del after[signed[1:]]
    return after


def _check(signed: str, value: str, *, new: bool, there: bool) -> None:
    sign, name = signed[:1], signed[1:]
    shown = signed[:SHOWN]
    known = KNOWN.get(name)
    if sign not in (ADD, DELETE) or (new and sign == DELETE):
        signs = ADD if new else f"{ADD} or {DELETE}"
        raise _wrong(f"{shown!r} must begin with {signs}")
    if known is None:
        raise _wrong(f"{name[:SHOWN]!r} is not one of {', '.join(sorted(KNOWN))}")
    if not new and not known.changeable:
        raise _wrong(f"{name!r} cannot change once the topic is there")
    if sign == DELETE and not there:
        raise _wrong(f"{name!r} is not there and cannot be deleted")
    if sign == ADD and not known.takes(value):
        raise _wrong(f"{name!r} is {value[:SHOWN]!r}, must be {known.wanted}")


def _wrong(fault: str) -> RequestRefused:
    return RequestRefused(ResponseCode.INVALID_PARAMETER, f"topic attributes: {fault}")
