"""Which life of the log a run belongs to."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.ha.epoch import Epoch
from rmqha.ha.master.ledger import Ledger
from rmqha.logfiles import json_table
from rmqha.logfiles.log_writer import EPOCH_FILE, crashed_from
from tests.support.sending_log import MemoryLog


class EpochTests(SynchronousTestCase):
    """Runs of a master over one store."""

    def setUp(self) -> None:
        """A log of 5000 bytes in small files."""
        self.root = Path(self.mktemp())
        self.log = MemoryLog(file_size=1000)
        self.log.put(bytes(range(250)) * 20)

    def begin(self) -> Epoch:
        return Epoch.begin(self.root, self.log)

    def test_first_run(self) -> None:
        """It begins at the end of what it found."""
        run = self.begin()
        self.assertEqual((run.start, run.marks, run.continued), (5000, {}, False))
        self.assertTrue((self.root / EPOCH_FILE).exists())

    def test_goes_on(self) -> None:
        """After a clean stop marks go on, under a new id; a restart proves nobody."""
        first = self.begin()
        self.log.put(bytes(2000))
        first.close(self.log, {"10.0.0.1": 6000, "fe80::1": 7000})
        self.assertTrue(Epoch.goes_on(self.root, self.log))
        second = self.begin()
        self.assertNotEqual(first.id, second.id)
        self.assertEqual((second.start, second.continued), (5000, True))
        # What was to go on has been begun, and has not ended yet.
        self.assertFalse(Epoch.goes_on(self.root, self.log))
        self.assertEqual(second.marks, {"10.0.0.1": 6000, "fe80::1": 7000})
        ledger = Ledger(log=self.log, start=second.start, marks=second.marks)
        self.assertEqual(ledger.open("10.0.0.1", "10.0.0.1").first(6000), 6000)

    def test_killed(self) -> None:
        """After a kill a new epoch begins at the recovered end, whatever was lost."""
        self.begin()
        self.log.put(bytes(2000))
        run = self.begin()
        self.assertEqual((run.start, run.marks, run.continued), (7000, {}, False))

    def test_killed_after_a_clean_run(self) -> None:
        """The clean stop before does not speak for it, even if nothing was written."""
        self.begin().close(self.log, {"a": 5000})
        self.begin()
        self.assertFalse(self.begin().continued)

    def test_somebody_else_wrote(self) -> None:
        """Another end, or other bytes before the same end, are another life."""
        self.begin().close(self.log, {"a": 5000})
        self.log.put(b"x")
        run = self.begin()
        self.assertEqual((run.start, run.marks, run.continued), (5001, {}, False))
        run.close(self.log, {})
        other = MemoryLog(file_size=1000)
        other.put(bytes(5001))
        self.assertFalse(Epoch.begin(self.root, other).continued)

    def test_before_slaves_had_one(self) -> None:
        """What does not say whose run it was is a master's: slaves had none then."""
        self.begin().close(self.log, {})
        path = self.root / EPOCH_FILE
        table = json_table.read(path) or {}
        del table["master"]
        json_table.replace(path, table)
        self.assertTrue(Epoch.goes_on(self.root, self.log))
        self.assertFalse(Epoch.goes_on(self.root, self.log, master=False))

    def test_damaged(self) -> None:
        """A file that makes no sense is no reason not to start."""
        (self.root / EPOCH_FILE).parent.mkdir(parents=True)
        for content in (b"", b"{", b"[]", b'{"closed": true}', b'{"closed":true,"marks":[]}'):
            (self.root / EPOCH_FILE).write_bytes(content)
            self.assertFalse(self.begin().continued)

    def test_empty_log(self) -> None:
        """A new store is a log, too."""
        self.log = MemoryLog()
        self.begin().close(self.log, {})
        run = self.begin()
        self.assertEqual((run.start, run.continued), (0, True))

    def test_crashed_from(self) -> None:
        """After a kill the file tells where our own records begin; else it tells nothing."""
        self.assertIsNone(crashed_from(self.root))
        run = self.begin()
        self.assertEqual(crashed_from(self.root), 5000)
        run.close(self.log, {})
        self.assertIsNone(crashed_from(self.root))
