"""A log made by hand, of records with chosen topics, and the index that a node would make of it."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from rmqha.logfiles.offline_log import OfflineLog
from rmqha.store.published.split_index import SplitIndex
from tests.support.rows import publish
from tests.wire.records import PLAIN, stored

FILE = 4 << 20
BODY = b"b" * 1000


class TopicStore:
    """A log of records of some topics, in files of 4 MiB, with the index of a node."""

    def __init__(self, root: Path, topics: list[str], began: int) -> None:
        self.root, self.topics, self.starts = root, topics, list[int]()
        data = bytearray()
        for number, topic in enumerate(topics):
            message = evolve(PLAIN, topic=topic, body=BODY)
            size = len(stored(message))
            left = FILE - len(data) % FILE
            if size + 8 > left:
                data += left.to_bytes(4, "big") + b"\xcb\xd4\x31\x94" + bytes(left - 8)
            self.starts.append(len(data))
            data += stored(
                message, queue_offset=number, offset=len(data), store_timestamp=began + number
            )
        self.end = len(data)
        (root / "commitlog").mkdir(parents=True)
        for start in range(0, len(data), FILE):
            file = root / "commitlog" / f"{start:020d}"
            file.write_bytes(data[start : start + FILE].ljust(FILE, b"\0"))
        publish(root, self.end)
        self.index()

    def index(self) -> None:
        """Make the index as a node does."""
        log = OfflineLog(self.root)
        made = SplitIndex.open(self.root, log)
        while made.position < self.end:
            stop = log.file_end(made.position)
            view = log.read(made.position, min(stop, self.end) - made.position)
            assert made.advance(view, stop)

    def of(self, *topics: str) -> list[int]:
        pairs = zip(self.starts, self.topics, strict=True)
        return [start for start, topic in pairs if topic in topics]
