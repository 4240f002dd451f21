from collections import OrderedDict

from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.unit_files import Tally
from rmqha.wire.columnar.queue_units import QueueRun

def write_usual(
    runs: list[QueueRun],
    at: int,
    most: int,
    whole: bool,
    file_size: int,
    queues: dict[tuple[str, int], ConsumeQueue],
    deleted: dict[str, int],
    moved: dict[tuple[str, int], int],
    news: dict[tuple[str, int], tuple[int, int]],
    tally: Tally,
    opened: OrderedDict[str, int],
    dirty: set[str],
    full: bool,
    closed: int,
    swept: int,
) -> int: ...
