def sound_runs(
    units: bytes,
    number: int,
    most: int,
    most_bytes: int,
    codes: frozenset[int] | None,
    log: memoryview,
    base: int,
) -> tuple[int, int, list[tuple[int, int]]] | None: ...
