"""A record's property string: names and values between 0x01 and 0x02.

Stock versions differ in whether a 0x02 follows the last pair; both are read, and ours
always has one, so that a record torn in its properties can be told from a whole one.
Source: docs/protocol/store.rst, Properties.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.wire.names import TAGS

NAME_END = b"\x01"
"""Between a property's name and its value."""
PAIR_END = b"\x02"
"""Behind a value; the last one may lack it."""


def _pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """The pairs RocketMQ would read: named, and with a value."""
    found = []
    for segment in raw.split(PAIR_END):
        name, separator, value = segment.partition(NAME_END)
        if separator and name and value:
            found.append((name, value))
    return found


def parse(raw: bytes) -> dict[str, str]:
    """Read a property string as RocketMQ does.

    Pairs without a name or with an empty value are lost, the last of equal names
    wins, and bytes that are not UTF-8 become U+FFFD.
    """
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in _pairs(raw)
    }


def encode(pairs: Mapping[str, str]) -> bytes:
    """Write a property string, with a 0x02 behind every pair."""
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()]).encode()


OP_PROPERTIES = encode({TAGS: "d"})
"""Those of a record that ends a half message: its tag, the only one there is."""


def find(raw: bytes, name: bytes) -> bytes | None:
    """One property, read as L{parse} does but without reading the others.

    @param name: The name, in UTF-8.
    """
    wanted = name + NAME_END
    end = len(raw)
    while True:
        at = raw.rfind(wanted, 0, end)
        if at < 0:
            return None
        if at == 0 or raw[at - 1] == 2:
            start = at + len(wanted)
            stop = raw.find(PAIR_END, start)
            if stop < 0:
                stop = len(raw)
            if stop > start:
                return raw[start:stop]
        end = at + len(wanted) - 1
