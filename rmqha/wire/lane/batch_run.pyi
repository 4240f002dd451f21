from rmqha.wire.log.encode import BatchForm

class BatchRun:
    count: int
    queue_offset: int
    def __init__(self, form: BatchForm, key: tuple[str, int]) -> None: ...
    def read(self, body: bytes) -> bool: ...
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
    def ids(self) -> str: ...
