"""Loss of power at any system call, and damage on the disk: which offsets there are afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from twisted.internet.task import Clock

from rmqha.broker.tables.consumer_offsets import INTERVAL, ConsumerOffsetTable
from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.store_layout import CONSUMER_OFFSETS
from tests.broker.tables.journal_power_cuts import assert_kept
from tests.broker.tables.test_offset_journal import PAUSE, JournalTestCase, Offsets
from tests.support.effort import tries
from tests.support.logs import now


class PowerCutTests(JournalTestCase):
    """Which offsets there are after a loss of power."""

    def test_any_call(self) -> None:
        """Whatever the disk has of what was not synced, names of files too, no offset is older than
        the last batch that was durable, and nothing is damaged.
        """

        def change(choice: random.Random, step: int) -> None:
            what = choice.randrange(8)
            if what == 0:
                self.offsets.remove_topic("T")
            elif what == 1:
                self.offsets.reset("g", "T", 0, choice.randrange(step))
            else:
                self.commit(step, choice.randrange(2), choice.choice("TU"))

        def restored(root: Path) -> tuple[Offsets, bool]:
            found = ConsumerOffsetTable(CheckedTables(root), Clock(), now, PAUSE)
            found.load()
            assert found.read is not None
            return self.held(found), bool(found.read.damaged)

        assert_kept(self, self.offsets, change, restored, lambda: (self.held(self.offsets), False))


class JournalDamageTests(JournalTestCase):
    """A journal in which the disk has changed something that was durable."""

    def setUp(self) -> None:
        """A table, and a journal of three batches since."""
        super().setUp()
        self.commit(1)
        self.clock.advance(INTERVAL + 1)
        self.ends: list[int] = []
        for offset in (10, 20, 30):
            self.commit(offset)
            self.commit(offset, queue_id=offset)
            self.clock.advance(PAUSE)
            self.ends.append(self.journal.stat().st_size)

    @property
    def journal(self) -> Path:
        return offset_segments.path_of(self.root / "rmqha" / "offsets", self.segments[-1])

    def test_any_byte(self) -> None:
        """A byte that is not what it was costs the batch in which it is and no other; it is named,
        in the log and in C{/healthz}, unless a loss of power may have left it.
        """
        whole = self.journal.read_bytes()
        batches = [{10: 10}, {20: 20}, {30: 30}]
        for place in range(0, len(whole), 1 + tries(2)):
            data = bytearray(whole)
            data[place] ^= 1 << place % 8
            self.journal.write_bytes(data)
            found = self.crashed()
            head, hit = place < 16, next(n for n, end in enumerate(self.ends) if place < end)
            expected = {0: 1 if head else 20 if hit == 2 else 30}
            for number, batch in enumerate(batches):
                if not head and number != hit:
                    expected |= batch
            self.assertEqual(self.held(found), {"T@g": expected}, place)
            assert found.read is not None
            self.assertEqual(bool(found.journal_damage()), hit < 2, place)
            self.assertEqual(bool(found.read.torn), hit == 2, place)

    def test_named(self) -> None:
        """The log says which file it is, and how much of it."""
        data = bytearray(self.journal.read_bytes())
        data[30] ^= 1
        self.journal.write_bytes(data)
        found = self.crashed()
        name = self.journal.name
        said = f"{name}: {self.ends[0] - 16} bytes before others are no whole records"
        self.assertEqual(found.journal_damage(), {name: said})


class TableDamageTests(JournalTestCase):
    """A file of the table, or of the checksums, that is not what was written."""

    def test_any_file(self) -> None:
        """A byte that is another, or an end that is gone, zeroed or nonsense, costs no offset; that
        a table is not what it was is in the log and in what C{/healthz} says.
        """
        for offset in (100, 200, 300):
            self.commit(offset)
            self.commit(offset + 5, group="h")
            self.clock.advance(INTERVAL + 1)
            self.commit(offset - 50)
            self.clock.advance(PAUSE)
        truth = self.held(self.offsets)
        for path in [*self.root.glob("config/*"), *self.root.glob("rmqha/tables.json*")]:
            whole = path.read_bytes()
            for what in _damaged(whole):
                path.write_bytes(what)
                found = self.crashed()
                self.assertEqual(self.held(found), truth, (path, what))
                assert found.read is not None
                own = path.name == CONSUMER_OFFSETS
                self.assertEqual(found.read.file.older, own, (path, what))
                self.assertIn(path.name if own else "", found.read.file.fault)
            path.write_bytes(whole)


def _damaged(whole: bytes) -> Iterator[bytes]:
    yield from (b"", b"{}", b"[]", b"null", b'{"offsetTable":null}', b'{"offsetTable":{"T@g":{}}}')
    for place in range(0, len(whole), 7 * tries(5)):
        end = len(whole) - place
        yield from (whole[:place], whole[:place] + bytes(end))
        yield whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
