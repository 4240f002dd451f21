from collections.abc import Mapping

from rmqha.wire.lane.answer_form import AnswerForm

class Route:
    def __init__(self, topic: bytes, keys: list[tuple[str, int]], sys_flag: int) -> None: ...

class SendRun:
    count: int
    end: int
    code: int
    unknown: bytes | None
    def __init__(
        self,
        *,
        cluster: bytes,
        store_host: bytes,
        clients_flags: int,
        most_body: int,
        most_frame: int,
    ) -> None: ...
    def read(
        self, data: bytes, at: int, stop: int, routes: Mapping[bytes, Route | None]
    ) -> int: ...
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
    def answers(self, forms: tuple[AnswerForm, ...]) -> bytes: ...
