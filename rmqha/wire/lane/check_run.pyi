def sound_records(
    data: memoryview,
    base: int,
    stop: int,
    crc: bool,
    max_size: int,
    nul_is_torn: bool,
    ends: memoryview,
) -> int: ...
