"""Arrow columns from the places of strings and numbers in a block of the log.

With numba strings are copied one behind the other.  Without it Arrow does so: the block is
taken for one long column in which every second item is wanted.

Importing this module needs pyarrow, from the extra C{pipeline}.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any

import numpy as np
import pyarrow as pa

from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.kernels import chosen
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import IP6_EXTRA
from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6

TIME = pa.timestamp("us", tz="UTC")

EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999
"""First and last millisecond of years 1 to 9999, from 1970 on: what SQL has dates for."""

# --- columns of places --------------------------------------------------------


def binaries(
    buf: memoryview,
    start: Array,
    end: Array,
    present: Array | None = None,
    *,
    utf8: bool = False,
) -> Any:
    """Copy parts of a buffer into a column of bytes.

    @param start: Where each part starts.
    @param end: Where it ends; where it starts in rows that have none.
    @param present: Which rows have one; the others become null.
    @param utf8: Whether they are known to be UTF-8, and the column is to be text.
    """
    rows, kind = len(start), pa.string() if utf8 else pa.binary()
    if present is not None and not present.any():
        return pa.nulls(rows, kind)
    if present is not None and present.all():
        present = None
    gather = chosen().gather
    if gather is not None:
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(end - start, out=offsets[1:])
        data = pa.allocate_buffer(int(offsets[-1]))
        gather(buf, start, end, np.frombuffer(data, np.uint8))
        bits = None
        if present is not None:
            bits = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(offsets), data])
    places = np.empty(2 * rows, np.int32)
    places[0::2], places[1::2] = start, end
    if present is not None:
        # Places have to ascend all the same.
        np.maximum.accumulate(places, out=places)
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    whole = pa.Array.from_buffers(
        kind, 2 * rows - 1, [None, pa.py_buffer(places), pa.py_buffer(buf)]
    )
    return whole.take(pa.array(wanted, mask=None if present is None else ~present))


def strung(ends: Array, letters: Array, kind: Any) -> Any:
    """A column of texts that stand one behind the other.

    @param ends: Where each begins, and where the last one ends, C{int32}.
    @param letters: The texts, C{uint8}.
    """
    parts = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.Array.from_buffers(kind, len(ends) - 1, parts, 0)


def as_text(column: Any) -> Any:
    """Take bytes for text: what is not UTF-8 becomes U+FFFD, as in RocketMQ."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        rows = column.to_pylist()
        return pa.array(
            [None if row is None else row.decode("utf-8", "replace") for row in rows], pa.string()
        )


def times(milliseconds: Array, present: Array | None = None) -> Any:
    """A column of times; one outside years 1 to 9999 is null: it is a producer's word."""
    good = (milliseconds >= EARLIEST) & (milliseconds <= LATEST)
    if present is not None:
        good &= present
    mask = None if good.all() else ~good
    micros = np.where(good, milliseconds, 0) * 1000
    return pa.array(micros, pa.int64(), mask=mask).cast(TIME)


# --- columns of hosts ---------------------------------------------------------


@lru_cache(maxsize=4096)
def _address(key: int) -> str:
    ip, port = key >> 32 & 0xFFFFFFFF, (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
    return f"{ip >> 24}.{ip >> 16 & 255}.{ip >> 8 & 255}.{ip & 255}:{port}"


@lru_cache(maxsize=4096)
def _address6(host: bytes) -> str:
    port = int.from_bytes(host[16:], "big", signed=True)
    return f"[{IPv6Address(host[:16])}]:{port}"


def hosts(heads: FixedFields, which: str) -> Any:
    """A column of addresses, C{1.2.3.4:5} or C{[::1]:5}.

    @param which: C{born} or C{store}.
    """
    ip, port = heads.column(f"{which}_ip"), heads.column(f"{which}_port")
    rows = _longer(heads, which)
    written = chosen().hosts
    if written is not None and not len(rows):
        return strung(*written(ip, port), pa.string())
    key = ip.astype(np.int64) << 32 | port.astype(np.int64) & 0xFFFFFFFF
    key[rows] = 0
    found = pa.array(key).dictionary_encode()
    texts = [_address(one) for one in found.dictionary.to_pylist()]
    numbers = found.indices.to_numpy(zero_copy_only=False).copy()
    numbers[rows] = len(texts) + np.arange(len(rows))
    texts += [_address6(_host6(heads, which, row)) for row in rows.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(numbers))


def _longer(heads: FixedFields, which: str) -> Array:
    """The rows whose host is of IPv6."""
    return np.flatnonzero(heads.sys_flag & (BORN_IP6 if which == "born" else STORE_IP6))


def _host6(heads: FixedFields, which: str, row: int) -> bytes:
    start = int(heads.start[row]) + 48
    if which == "store":
        start += 16 + (IP6_EXTRA if heads.sys_flag[row] & BORN_IP6 else 0)
    return bytes(heads.buf[start : start + 20])


def _offset_ids(ip: Array, port: Array, places: Array) -> Array:
    """Ids of store host and physical offset, 32 letters each."""
    ids = np.empty(len(ip), [("ip", ">u4"), ("port", ">i4"), ("offset", ">i8")])
    ids["ip"], ids["port"], ids["offset"] = ip, port, places
    halves = ids.view(np.uint8).reshape(-1, 16)
    letters = np.empty((len(ip), 32), np.uint8)
    letters[:, 0::2], letters[:, 1::2] = halves >> 4, halves & 15
    letters += 48 + 7 * (letters > 9).view(np.uint8)
    return letters


def offset_ids(heads: FixedFields, base: int) -> Any:
    """A column of ids that tell where a record is: store host and physical offset."""
    ip, port, places = heads.column("store_ip"), heads.column("store_port"), heads.start + base
    letters = (chosen().offset_ids or _offset_ids)(ip, port, places)
    short = strung(np.arange(0, 32 * len(heads) + 1, 32, dtype=np.int32), letters, pa.string())
    rows = _longer(heads, "store")
    if not len(rows):
        return short
    longer = [
        _host6(heads, "store", row).hex().upper() + f"{base + int(heads.start[row]):016X}"
        for row in rows.tolist()
    ]
    numbers = np.arange(len(heads))
    numbers[rows] = len(heads) + np.arange(len(rows))
    return pa.concat_arrays([short, pa.array(longer, pa.string())]).take(pa.array(numbers))
