from collections.abc import Callable, Mapping

from rmqha.wire.lane.answer_form import AnswerForm

class Route:
    def __init__(self, topic: bytes, keys: list[tuple[str, int]], sys_flag: int) -> None: ...

class SendRun:
    count: int
    acks: int
    backs: int
    ends: int
    halves: bool
    firsts: list[int]
    end: int
    code: int
    unknown: bytes | None
    waits: int
    given: list[tuple[bytes, bytes]]
    numbers: list[int]
    codes: tuple[tuple[int, int], ...]
    unwaited: tuple[tuple[int, int], ...]
    def __init__(
        self,
        *,
        cluster: bytes,
        store_host: bytes,
        clients_flags: int,
        most_body: int,
        most_frame: int,
        levels: int,
        broker: bytes,
        timers: tuple[Callable[[], int], int, int] | None,
        stored: dict[int, int] | None,
        record_at: Callable[[int, int], memoryview],
        outlived: Callable[[str, int], bool],
        retries: Callable[[str], tuple[bytes, int] | None],
        claimed: Callable[[bytes, int, int, int, int], bool],
    ) -> None: ...
    def read(
        self,
        data: bytes,
        at: int,
        stop: int,
        routes: Mapping[bytes, Route | None],
        check: Callable[[bytes, bytes, bytes, bytes], bool] | None = None,
    ) -> int: ...
    def acked(
        self, count: int
    ) -> list[tuple[tuple[bytes, bytes, int, bytes], list[int], list[int]]]: ...
    def cut(self, count: int) -> None: ...
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
    def ending(self) -> list[int]: ...
    def ended(self) -> list[tuple[int, str, int, int, int]]: ...
    def answers(self, forms: tuple[AnswerForm, ...]) -> bytes: ...
