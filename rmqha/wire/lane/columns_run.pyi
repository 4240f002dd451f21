from typing import Any

from numpy.typing import NDArray

def heads(
    view: memoryview,
    base: int,
    stop: int,
    crc: bool,
    max_size: int,
    nul_is_torn: bool,
    chain: NDArray[Any],
    narrow: NDArray[Any],
    wide: NDArray[Any],
    places: NDArray[Any],
    topics: NDArray[Any],
    odd: NDArray[Any],
    ends: NDArray[Any],
    bodies: NDArray[Any],
) -> int: ...
def columns(
    view: memoryview,
    starts: NDArray[Any],
    ends: NDArray[Any],
    narrow: NDArray[Any],
    wide: NDArray[Any],
    is_ascii: NDArray[Any],
    key_record: NDArray[Any],
    key_hash: NDArray[Any],
    topics: NDArray[Any],
) -> tuple[int, int]: ...
def properties(
    view: memoryview,
    starts: NDArray[Any],
    row_ends: NDArray[Any],
    names: bytes,
    bounds: NDArray[Any],
    found_start: NDArray[Any],
    found_end: NDArray[Any],
    wanted: bool,
    counts: NDArray[Any],
    pairs: NDArray[Any],
    many: NDArray[Any],
    bounds_out: NDArray[Any],
    texts: NDArray[Any],
) -> int: ...
def gather(
    view: memoryview, starts: NDArray[Any], ends: NDArray[Any], out: NDArray[Any]
) -> None: ...
def hosts(
    ips: NDArray[Any], ports: NDArray[Any], offsets: NDArray[Any], out: NDArray[Any]
) -> int: ...
def offset_ids(
    ips: NDArray[Any], ports: NDArray[Any], places: NDArray[Any], out: NDArray[Any]
) -> None: ...
