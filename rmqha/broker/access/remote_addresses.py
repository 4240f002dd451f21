"""White remote addresses: from where requests are taken without a signature.

A pattern is one address whose parts behind the first may be C{*}, a range C{1-9} or, as the last
one, a choice C{{1,2}}; of IPv6 parts behind a C{*} may be left out.  Several have commas between,
where stock brokers take plain addresses alone.  They do not read on behind a range, and take
C{10.0.1-3.7} for C{10.0.1-3.*}; here it is what it says.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Self

from attrs import field, frozen

from rmqha.broker.access.errors import AclInvalid

_EVERYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_COMMAS = re.compile(r",(?![^{]*\})")

_Part = Callable[[int], bool]


def patterns(text: str) -> tuple[str, ...]:
    """The patterns that have commas between."""
    return tuple(part.strip() for part in _COMMAS.split(text) if part.strip())


@frozen
class RemoteAddresses:
    """Some addresses.

    @ivar text: As they were written.
    """

    text: str
    _patterns: tuple[tuple[int, tuple[_Part, ...]], ...] = field(eq=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read patterns; an empty text is nobody.

        @raise AclInvalid: If one is none.
        """
        return cls(text, tuple(_pattern(part) for part in patterns(text)))

    @classmethod
    def all_of(cls, texts: Iterable[str]) -> Self:
        """Read several texts.

        @raise AclInvalid: As L{parse}.
        """
        return cls.parse(",".join(texts))

    def contain(self, host: str) -> bool:
        """Whether a peer's address is among them.

        @param host: An IPv4 or IPv6 address as text; other text is nowhere.
        """
        if not self._patterns:
            return False
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        size = 1 if address.version == 4 else 2
        raw = address.packed
        numbers = [int.from_bytes(raw[at : at + size], "big") for at in range(0, len(raw), size)]
        return any(
            version in (0, address.version)
            and all(part(number) for part, number in zip(parts, numbers, strict=False))
            for version, parts in self._patterns
        )


def _pattern(text: str) -> tuple[int, tuple[_Part, ...]]:
    """@return: The version of IP, 0 for both, and what the first numbers of an address must be."""
    if text in _EVERYBODY:
        return 0, ()
    version, mark, base, count = (6, ":", 16, 8) if ":" in text else (4, ".", 10, 4)
    words = _words(text, mark, count)
    most = 0xFFFF if version == 6 else 0xFF
    short = version == 6 and len(words) < count and words[-1] == "*"
    if len(words) != count and not short:
        raise AclInvalid(f"address {text!r}", f"{len(words)} parts, {count} are needed")
    if not words[0].isalnum():
        raise AclInvalid(f"address {text!r}", "the first part must be a number")
    if any(word.startswith("{") for word in words[:-1]):
        raise AclInvalid(f"address {text!r}", "only the last part may be a choice")
    try:
        return version, tuple(_part(word, base, most) for word in words)
    except ValueError:
        raise AclInvalid(f"address {text!r}", "this is no address, and no pattern of one") from None


def _words(text: str, mark: str, count: int) -> list[str]:
    """The parts of a pattern; those that C{::} stands for are zeros."""
    before, double, after = text.partition("::")
    if mark != ":" or not double:
        return text.split(mark)
    ends = [part.split(":") if part else [] for part in (before, after)]
    return [*ends[0], *["0"] * (count - len(ends[0]) - len(ends[1])), *ends[1]]


def _part(word: str, base: int, most: int) -> _Part:
    """What one part of a pattern says of a number.

    @raise ValueError: If it is no part.
    """
    if word == "*":
        return lambda number: True
    if word.startswith("{") and word.endswith("}"):
        numbers = frozenset(_number(each.strip(), base, most) for each in word[1:-1].split(","))
        return numbers.__contains__
    low, minus, high = word.partition("-")
    first = _number(low, base, most)
    last = _number(high, base, most) if minus else first
    if last < first:
        raise ValueError(word)
    return lambda number: first <= number <= last


def _number(word: str, base: int, most: int) -> int:
    if not word.isascii() or not word.isalnum():
        raise ValueError(word)
    number = int(word, base)
    if number > most:
        raise ValueError(word)
    return number
