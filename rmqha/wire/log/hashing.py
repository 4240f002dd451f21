"""The hashes RocketMQ puts on disk: Java's C{String.hashCode} and CRC-32.

Source: docs/protocol/store.rst, Hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from struct import unpack
from typing import TypeAlias

from isal.isal_zlib import crc32

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What the codecs read from."""

MASK = 0x7FFFFFFF
"""What RocketMQ leaves of a CRC: all but the sign."""

# The weights of the last characters of a text, the last one's at the end.
_POWERS = tuple(pow(31, power, 1 << 32) for power in reversed(range(256)))


def java_hash(text: str) -> int:
    """Java's hash of a string, over UTF-16 units, as a signed 32-bit number."""
    units: Sequence[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = unpack(f">{len(raw) // 2}H", raw)
    if len(units) <= len(_POWERS):
        # A third faster than a loop.
        value: int = sum(map(mul, units, _POWERS[-len(units) :])) & 0xFFFFFFFF
    else:
        value = 0
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """What a queue unit keeps of a message's tags: the hash of the whole text, 0 for none."""
    return java_hash(tags) if tags else 0


def key_hash(topic: str, key: str) -> int:
    """What an index entry keeps of a key: never negative; the one hash that has no
    positive counterpart is 0.
    """
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value > MASK else value


def body_crc(body: Buffer) -> int:
    """A record's checksum of its body: CRC-32 without its highest bit."""
    return crc32(body) & MASK
