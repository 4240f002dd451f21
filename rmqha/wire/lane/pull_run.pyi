from rmqha.wire.sql92.filter import Filter

def sound_runs(
    units: bytes,
    number: int,
    most: int,
    most_bytes: int,
    codes: frozenset[int] | None,
    log: memoryview,
    base: int,
    wanted: Filter | None = None,
) -> tuple[int, int, list[tuple[int, int]], int] | None: ...
