from mmap import mmap

class DispatchReader:
    records: int
    end: int
    last_timestamp: int
    hashes: list[int]
    offsets: list[int]
    timestamps: list[int]
    def __init__(
        self,
        data: memoryview,
        base: int,
        stop: int,
        most: int,
        max_size: int,
        *,
        delays: tuple[int, ...],
    ) -> None: ...
    def units(self) -> list[tuple[tuple[str, int], int, bytes]]: ...

def put_entries(
    area: mmap | bytearray,
    slots_at: int,
    slots: int,
    entries_at: int,
    number: int,
    begin: int,
    hashes: list[int],
    offsets: list[int],
    timestamps: list[int],
) -> int: ...
