"""The checksums of whole records, kept beside the log."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32
from twisted.trial.unittest import SynchronousTestCase

from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import scan
from rmqha.store.derived import dispatch
from rmqha.store.log import record_checksums
from rmqha.store.log.record_checksums import KeptChecksums, drop, remake
from rmqha.store.offline.verify import LogCheck
from rmqha.store.store import Store
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.checksum_entry import ENTRY_SIZE, parse_entries, render_entries
from tests.support.damage import flip, log_file
from tests.support.logs import FILE_SIZE, LogTestCase, message

SIZES = {"file_size": FILE_SIZE}


class EntryTests(SynchronousTestCase):
    @given(st.integers(0, 1 << 40), st.binary(max_size=200), st.integers(0, ENTRY_SIZE * 8 - 1))
    def test_checks_itself(self, offset: int, record: bytes, bit: int) -> None:
        """An entry has its record's place and CRC; with any bit changed, or zeros, it is none."""
        made = bytearray(render_entries(offset, [0], [crc32(record)]))
        low, _, sound = parse_entries(bytes(made) + bytes(ENTRY_SIZE) + b"torn")
        self.assertEqual((low[0], sound.tolist()), (offset & 0xFFFFFFFF, [True, False]))
        made[bit // 8] ^= 1 << bit % 8
        self.assertFalse(parse_entries(bytes(made))[2].any())


class KeptTests(LogTestCase):
    """A store that keeps them as it dispatches."""

    def setUp(self) -> None:
        self.store = self.open_at(self.folder() / "store")
        self.root = self.store.settings.root

    def open_at(self, root: Path) -> Store:
        return self.opened(root, settings=SIZES)

    def put(self, count: int, store: Store | None = None) -> None:
        store = self.store if store is None else store
        for _ in range(count):
            store.put(message(300))
        while store.dispatcher.run(1.0):
            pass

    def starts(self) -> list[int]:
        log = self.store.log
        found: list[Array] = [block.start for _, block in scan(log, log.min_offset, log.end)]
        return [int(start) for each in found for start in each]

    def known(self, start: int) -> bool:
        """Whether something is kept of a record, and it is right."""
        log = self.store.log
        kept = KeptChecksums(self.root, log.file_size)
        crc = kept.of(start)
        size = int.from_bytes(log.read(start, 4), "big")
        if crc is not None:
            made = render_entries(start, [0], [crc32(log.read(start, size))])
            self.assertEqual(crc, int(parse_entries(made)[1][0]))
        return crc is not None

    def path(self, number: int = 0) -> Path:
        size = self.store.log.file_size
        return self.root / "rmqha" / "checksums" / f"{number * size:020d}"

    def found(self) -> list[int]:
        """Where a check of the log's files finds something."""
        check = LogCheck(RawLog.open(self.root, self.store.log.file_size))
        return [finding.offset for finding in check.findings()]

    def test_every_record(self) -> None:
        """Each record has one, a file for each of the log's, read alone, in runs or blocks."""
        self.put(1)
        self.put(200)
        starts = self.starts()
        self.assertGreater(len([*self.path().parent.iterdir()]), 1)
        self.assertTrue(all(self.known(start) for start in starts))
        kept = sum(path.stat().st_size for path in self.path().parent.iterdir())
        self.assertEqual(kept, len(starts) * ENTRY_SIZE)

    def test_properties(self) -> None:
        """A bit turned in a record's properties, where no CRC looks, is found."""
        self.put(10)
        starts = self.starts()
        self.assertEqual(self.found(), [])
        flip(log_file(self.root, 0), starts[4] - 3)
        self.assertEqual(self.found(), [starts[3]])

    def test_after_a_restart(self) -> None:
        """A start goes on where they end, and keeps none twice."""
        self.put(5)
        self.store = self.reopened(self.store, settings=SIZES)
        self.put(1)
        self.assertEqual(self.path().stat().st_size, 6 * ENTRY_SIZE)
        self.assertTrue(all(self.known(start) for start in self.starts()))

    def test_killed_before_they_were_written(self) -> None:
        """What a crash has taken of them is torn off, and made again by dispatch or the scrubber;
        what was kept says of damage that happened meanwhile that it is damage.
        """
        self.put(6)
        root = self.crash(self.store)
        path = root / "rmqha" / "checksums" / self.path().name
        os.truncate(path, 4 * ENTRY_SIZE + 7)
        flip(log_file(root, 0), self.starts()[3] - 3)
        (root / "rmqha" / "dispatched.json").unlink(missing_ok=True)
        self.store = self.open_at(root)
        self.root = root
        self.assertEqual(self.path().stat().st_size, 6 * ENTRY_SIZE)
        self.assertEqual(self.found(), [self.starts()[2]])

    def test_cut(self) -> None:
        """What was cut off is forgotten with the log: other records come there."""
        self.put(6)
        root = self.crash(self.store)
        start = self.starts()[4]
        path = log_file(root, 0)
        with open(path, "r+b") as file:
            os.pwrite(file.fileno(), bytes(2000), start)
        self.store, self.root = self.open_at(root), root
        self.assertEqual(self.path().stat().st_size, 4 * ENTRY_SIZE)
        self.put(1)
        self.assertTrue(self.known(start))

    def test_another_log(self) -> None:
        """Where the log's end differs all go: another broker had the store."""
        self.put(6)
        root = self.crash(self.store)
        for start in self.starts()[1:]:
            flip(log_file(root, 0), start - 3)
        self.store, self.root = self.open_at(root), root
        self.assertEqual(self.found(), [])

    def test_disk_full(self) -> None:
        """Without room dispatch goes on, and says so once; an entry is whole or not."""
        self.put(1)
        checksums = self.store.dispatcher.checksums
        assert checksums is not None, "a store has them"
        real = os.write

        def little(fd: int, data: bytes) -> int:
            return real(fd, bytes(data)[:5])

        self.patch(record_checksums.os, "write", little)
        self.put(2)
        self.assertIn(os.strerror(errno.ENOSPC), checksums.trouble)
        self.patch(record_checksums.os, "write", real)
        self.put(1)
        self.assertEqual(checksums.trouble, "")
        self.assertEqual([self.known(start) for start in self.starts()], [True, False, False, True])

    def test_written_anew(self) -> None:
        """Of a record with other bytes nothing is kept any more; of its neighbours, still."""
        self.put(3)
        starts = self.starts()
        drop(self.root, self.store.log.file_size, [(starts[1] + 100, starts[1] + 120)])
        self.assertEqual([self.known(start) for start in starts], [True, False, True])

    def test_deleted_with_the_log(self) -> None:
        """They go with the file of the log that they speak of."""
        self.put(40)
        self.assertTrue(self.path().exists())
        self.store.trimmer.follow(self.store.log.file_size)
        self.assertFalse(self.path().exists())
        self.assertTrue(self.path(1).exists())

    def test_made_anew(self) -> None:
        """A rebuild takes the log as it is: what was damaged before is not found after it."""
        self.put(4)
        flip(log_file(self.root, 0), self.starts()[2] - 3)
        self.assertEqual(len(self.found()), 1)
        count = remake(self.root, RawLog.open(self.root, self.store.log.file_size))
        self.assertEqual((count, self.found()), (4, []))


class PlainTests(KeptTests):
    def setUp(self) -> None:
        super().setUp()
        self.patch(dispatch, "COMPILED", False)
        self.patch(record_checksums, "CHECKSUMS", False)

    if not COMPILED:
        skip: Any = "nothing is compiled here"
