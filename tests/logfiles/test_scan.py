"""What is found in a log that cannot be followed."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from rmqha.logfiles.listing import file_name
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end, next_valid
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import FolderReader
from rmqha.wire.log.encode import place
from tests.support.logs import STORED, LogTestCase, encoded

SIZE = 64 << 10


class SeekTests(LogTestCase):
    """The same answers from mapped files and from files that are only read."""

    @given(
        st.lists(st.tuples(st.integers(0, 2 * SIZE - 1), st.integers(1, 9000)), max_size=5),
        st.integers(0, 2 * SIZE),
    )
    def test_data_end(self, written: list[tuple[int, int]], low: int) -> None:
        """The last byte that is not zero is found, holes or not, in whichever file."""
        expected = bytearray(2 * SIZE)
        for start, size in written:
            expected[start : start + size] = b"z" * min(size, 2 * SIZE - start)
        root = self.folder()
        self.spread(root, expected)
        wanted = low + len(expected[low:].rstrip(b"\0"))
        self.assertEqual(data_end(RawLog.open(root), low), wanted)
        folder = LogFolder.load(root, SIZE)
        self.addCleanup(folder.close)
        self.assertEqual(data_end(FolderReader(folder), low), wanted)

    @given(st.integers(0, SIZE - 300) | st.integers(4080, 4110), st.booleans())
    def test_next_valid(self, at: int, second: bool) -> None:
        """A record is found wherever it begins, its zeros in a hole too, not behind its start."""
        record = encoded(300)
        offset = at + SIZE * second
        place(record, queue_offset=0, offset=offset, store_timestamp=STORED)
        content = bytearray(2 * SIZE)
        content[offset : offset + 300] = record
        root = self.folder()
        self.spread(root, content)
        folder = LogFolder.load(root, SIZE)
        self.addCleanup(folder.close)
        for log in (RawLog.open(root), FolderReader(folder)):
            self.assertEqual((next_valid(log, 0), next_valid(log, offset)), (offset, offset))
            self.assertIsNone(next_valid(log, offset + 1))

    def spread(self, root: os.PathLike[str], content: bytearray) -> None:
        """Write two files, with holes where whole pages are zero."""
        for number in range(2):
            with open(os.path.join(root, file_name(number * SIZE)), "wb") as file:
                file.truncate(SIZE)
                for start in range(0, SIZE, 4096):
                    page = content[number * SIZE + start : number * SIZE + start + 4096]
                    if page.strip(b"\0"):
                        os.pwrite(file.fileno(), page, start)
