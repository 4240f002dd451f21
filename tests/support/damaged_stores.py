"""Golden stores and logs made by hand that are to be harmed, and what is read of them then.

Using this module needs the extra C{pipeline}, importing it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.wire.log.published import CutReason, parse_point, render_point
from rmqha.wire.log.record import Message
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.support.rows import expected
from tests.wire.records import stored

try:
    from rmqha.pipeline.log import reading
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.ranges import Range, plan
    from rmqha.pipeline.log.reading import MessageReader
    from rmqha.pipeline.log.stores import open_stores
    from rmqha.pipeline.scan import scan
    from rmqha.pipeline.spark import stream
except ImportError:
    pass  # without the extra, who uses this is skipped

SIZE = golden.LOG_FILE_SIZE


def rows(path: Path, **options: object) -> list[dict[str, Any]]:
    """All rows of a scan that leaves nothing out by itself."""
    found: list[dict[str, Any]] = scan(path, visibility="log", **options).read_all().to_pylist()
    return found


def offsets(path: Path, **options: object) -> list[int]:
    """Physical offsets of its rows."""
    return [row["physical_offset"] for row in rows(path, columns="physical_offset", **options)]


def change(file: Path, place: int, raw: bytes) -> None:
    """Overwrite some bytes of a file."""
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(raw)


class BadInputTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")
        self.all = [record["physicalOffset"] for record in self.records]
        self.end = self.all[-1] + self.records[-1]["size"]
        self.folder = self.store / "commitlog"
        self.patch(stream, "PATIENCE", 0.0)
        self.patch(reading, "PATIENCE", 0.0)

    def file_of(self, offset: int) -> Path:
        """The golden store's file that has a byte."""
        return self.folder / f"{offset - offset % SIZE:020d}"

    def made(self, *messages: Message | Callable[[int], Message], size: int = 1 << 20) -> Path:
        """A log of one file with these messages, or what makes one of its physical offset."""
        root = Path(self.mktemp())
        raw = b""
        for number, each in enumerate(messages):
            message = each if isinstance(each, Message) else each(len(raw))
            raw += stored(message, queue_offset=number, offset=len(raw), store_timestamp=1000)
        (root / "commitlog").mkdir(parents=True)
        (root / "commitlog" / f"{0:020d}").write_bytes(raw.ljust(size, b"\0"))
        return root

    def cut(self, at: int, why: CutReason = CutReason.CUT) -> None:
        """Tell that the golden store's log was cut back."""
        file = self.store / OWN_FOLDER / POINT
        file.write_bytes(render_point(parse_point(file.read_bytes()).cut_at(at, 5, why)))

    def ranges(self, **given: object) -> tuple[ReadOptions, list[Range]]:
        options = ReadOptions.parse({"path": self.store, "visibility": "log", **given})
        return options, plan(open_stores(options), options)

    def read(self, options: ReadOptions, wanted: Range) -> list[int]:
        batches = MessageReader(options, ("physical_offset",)).read(wanted)
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]
