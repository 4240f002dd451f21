from collections import Counter
from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt

class DueRun:
    count: int
    queues: list[tuple[str, int]]
    code: int
    waits: int
    unwaited: tuple[tuple[int, int], ...]
    def __init__(
        self,
        *,
        topic: str,
        precision: int,
        window: int,
        most_body: int,
        file: Callable[[int], tuple[memoryview, int]],
        living: Callable[[str], int | None],
    ) -> None: ...
    def scan(
        self,
        units: bytes,
        first: int,
        times: npt.NDArray[np.int64],
        *,
        back: bool,
        known: tuple[int, int, Collection[int]] | None,
        marks: Collection[int] | None,
        topics: Counter[str],
    ) -> int: ...
    def finished(
        self, units: bytes, offsets: list[int], places: set[int], topics: Counter[str]
    ) -> int: ...
    def read(
        self,
        units: bytes,
        offsets: list[int],
        *,
        queue_id: int,
        now: int,
        cancelled: Mapping[int, object],
    ) -> int: ...
    def clear(self) -> None: ...
    def fitting(self, room: int) -> tuple[int, int]: ...
    def write(
        self,
        file: memoryview,
        position: int,
        offset: int,
        *,
        count: int,
        stored: int,
        born_host: bytes,
        next_offsets: dict[tuple[str, int], int],
    ) -> int: ...
