"""
The hashes RocketMQ puts on disk: Java's C{String.hashCode} and CRC-32.

Source: docs/protocol/store.rst, Hashes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from isal.isal_zlib import crc32

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What the codecs read from."""

MASK = 0x7FFFFFFF
"""What RocketMQ leaves of a CRC: all but the sign."""


def java_hash(text: str) -> int:
    """
    Java's hash of a string, over UTF-16 units, as a signed 32-bit number.
    """
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8) + low) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """
    What a queue unit keeps of a message's tags: the hash of the whole text, 0 for none.
    """
    return java_hash(tags) if tags else 0


def key_hash(topic: str, key: str) -> int:
    """
    What an index entry keeps of a key: never negative; the one hash that has no
    positive counterpart is 0.
    """
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value > MASK else value


def body_crc(body: Buffer) -> int:
    """
    A record's checksum of its body: CRC-32 without its highest bit.
    """
    return crc32(body) & MASK
