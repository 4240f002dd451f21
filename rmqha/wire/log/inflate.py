"""Bodies that their producer compressed.

The system flag says that a body is compressed and how; brokers store it as it came.  What
a body becomes may be thousands of times as long, so there is a limit, and no more than it
is ever held.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

import zlib

from rmqha.wire.log.sys_flag import COMPRESSED, COMPRESSION_TYPE

ZLIB, LZ4, ZSTD = (0x000, 0x300), 0x100, 0x200
"""Their values: clients before 5.0 leave them 0, which is zlib too."""

_FIRST = 64 << 10
"""Bytes asked for at first; then twice as many each time."""


def inflate(sys_flag: int, body: memoryview, limit: int) -> bytes:
    """Decompress a body whose system flag has L{COMPRESSED} set.

    @param limit: The most bytes it may become.
    @raise ValueError: If it is not what the flag says, ends early, or becomes longer.
    """
    kind = sys_flag & COMPRESSION_TYPE
    if not sys_flag & COMPRESSED:
        raise ValueError("not compressed")
    if kind in ZLIB:
        whole = _zlib(body, limit)
    elif kind in (LZ4, ZSTD):
        whole = _stream(body, "lz4" if kind == LZ4 else "zstd", limit)
    else:
        raise ValueError(f"compression type {kind >> 8} is unknown")
    if len(whole) > limit:
        raise ValueError(f"it inflates to more than {limit} bytes")
    return whole


def _zlib(body: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        whole = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not stream.eof and len(whole) <= limit:
        raise ValueError("the zlib stream ends early")
    return whole


def _stream(body: memoryview, codec: str, limit: int) -> bytes:
    """One frame of LZ4 or Zstandard, or several; they need the pipeline's extra."""
    import pyarrow as pa

    if not body:
        raise ValueError(f"an empty body is not a {codec} frame")
    parts, total, wanted = [], 0, _FIRST
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while total <= limit:
                part = stream.read(min(wanted, limit + 1 - total))
                if not part:
                    break
                parts.append(part)
                total += len(part)
                wanted *= 2
    except (OSError, pa.ArrowException) as error:
        raise ValueError(str(error)) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)
