def sound_records(
    data: memoryview,
    base: int,
    stop: int,
    crc: bool,
    max_size: int,
    nul_is_torn: bool,
    ends: memoryview,
) -> int: ...
def sound_stretch(
    data: memoryview,
    at: int,
    base: int,
    stop: int,
    crc: bool,
    max_size: int,
) -> tuple[int, int]: ...
