from rmqha.wire.log.encode import BatchForm

class BatchRun:
    count: int
    size: int
    queue_offset: int
    def __init__(
        self,
        head: bytes,
        topic: bytes,
        pairs: list[tuple[bytes, bytes]],
        key: tuple[str, int],
        *,
        host: bytes,
        most_body: int,
    ) -> None: ...
    @classmethod
    def of(cls, form: BatchForm, key: tuple[str, int]) -> BatchRun: ...
    def read(self, body: bytes, at: int, end: int) -> bool: ...
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
    def ids(self) -> bytes: ...
