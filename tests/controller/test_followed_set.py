"""Tests for L{rmqha.controller.followed_set}."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.followed_set import FollowedSet
from rmqha.errors import DiskFull
from rmqha.ha.master_epoch import EpochJournal, EpochStart, MasterEpochs
from rmqha.wire.ha_v2 import EpochLabel, HandshakeAnswer, TransferHeader
from tests.support.logs import Held, LogTestCase, now

MASTER = ElectedMember(2, "10.0.0.2:10911")


class FollowedSetTests(LogTestCase):
    """What a master tells beside its log."""

    def setUp(self) -> None:
        self.root: Path = self.folder()
        self.epochs = MasterEpochs(self.root, now)
        self.seen: list[int] = []
        self.kept = 0
        self.connections = 0
        self.set = FollowedSet(
            epochs=self.epochs, confirm=self.seen.append, begun=self.begin, kept=self.keep
        )
        self.decide(3)

    def begin(self) -> None:
        """What was confirmed and has not come is over."""
        self.connections += 1

    def keep(self) -> None:
        self.kept += 1

    def decide(self, epoch: int) -> None:
        self.set.state = SetState(
            master=MASTER, master_epoch=epoch, in_sync=frozenset({1, 2}), set_epoch=4
        )

    def answer(self, *labels: tuple[int, int]) -> None:
        made = tuple(EpochLabel(*each) for each in labels)
        self.set.answered(HandshakeAnswer(1 << 20, made, made[-1].label if made else -1))

    def transfer(self, end: int, label: int, start: int, confirm: int = 0, size: int = 10) -> None:
        self.set.transfer(TransferHeader(size, end - size, label, start, confirm))

    def proven(self, end: int) -> None:
        self.set.proven("10.0.0.2:10912", MASTER.address, None, end)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return self.epochs.journal.starts

    def test_nothing_before_the_proof(self) -> None:
        """A master whose log was not compared with ours says nothing of it."""
        self.answer((1, 0), (3, 50))
        self.transfer(100, 3, 50, confirm=90)
        self.assertEqual((self.seen, self.starts), ([], ()))
        self.proven(40)
        self.assertEqual(self.seen, [40])
        self.assertEqual(self.starts, (EpochStart(1, 0),))

    def test_confirmed_beyond_what_is_sent(self) -> None:
        """A confirm offset goes for what was sent with it, and for no longer than the next one: one
        lie, or one that is true of bytes to come, shows readers nothing else.
        """
        self.answer((1, 0))
        self.proven(40)
        self.transfer(40, 1, 0, confirm=1 << 62, size=0)
        self.transfer(60, 1, 0, confirm=50, size=20)
        self.assertEqual(self.seen, [-1, 40, 50])
        self.answer((1, 0))
        self.assertEqual(self.connections, 2)

    def test_labels_come_with_their_bytes(self) -> None:
        """A label is ours when our log reaches it, with its writer, and durable."""
        self.answer((1, 0), (3, 50))
        self.proven(20)
        self.assertEqual(self.starts, (EpochStart(1, 0),))
        self.transfer(60, 3, 50, confirm=60, size=40)
        self.assertEqual(self.starts, (EpochStart(1, 0), EpochStart(3, 50, MASTER.id)))
        self.assertEqual(EpochJournal.read(self.root), self.epochs.journal)
        self.assertEqual(self.epochs.number, 3)

    def test_reported_when_durable(self) -> None:
        """Bytes are reported when the label under which they lie is on the disk, and not before."""
        self.answer((1, 0), (3, 50))
        self.proven(20)
        self.assertEqual((self.set.filed(20), self.kept), (20, 1))
        held = Held()
        self.epochs.in_thread = held
        self.transfer(60, 3, 50, size=40)
        self.assertEqual([self.set.filed(end) for end in (50, 51, 60)], [50, 50, 50])
        self.transfer(90, 3, 50, size=30)
        self.assertEqual((self.set.filed(90), self.kept), (50, 1))
        held.work()
        self.assertEqual((self.set.filed(90), self.kept), (90, 2))
        self.assertEqual(EpochJournal.read(self.root), self.epochs.journal)

    def test_compared_and_not_filed(self) -> None:
        """A log that has lost its labels is reported up to the first of the master's until it is
        known to be the master's, and the labels are on the disk.
        """
        self.answer((1, 0), (3, 50))
        self.assertEqual(self.set.filed(80), 0)
        self.proven(80)
        self.assertEqual(self.set.filed(80), 80)
        self.answer((1, 0), (3, 50), (4, 70))
        self.assertEqual(self.set.filed(80), 70)

    def test_not_written(self) -> None:
        """Without room for the label nothing beyond its start is reported, until there is room."""
        self.answer((1, 0), (3, 50))
        self.proven(20)
        full = DiskFull("epochs.json", 100)
        with patch.object(EpochJournal, "write", side_effect=full):
            self.transfer(60, 3, 50, size=40)
            self.epochs.try_again()
            self.assertEqual(self.set.filed(60), 50)
        self.epochs.try_again()
        self.assertEqual(self.set.filed(60), 60)
        self.assertEqual(EpochJournal.read(self.root), self.epochs.journal)

    def test_a_label_that_was_not_in_the_answer(self) -> None:
        """An empty log gets its first label with its first byte."""
        self.answer()
        self.proven(0)
        self.transfer(10, 3, 0, confirm=10)
        self.assertEqual(self.starts, (EpochStart(3, 0, MASTER.id),))
        self.assertEqual(self.seen[-1], 10)

    def test_a_master_without_a_label_of_its_own(self) -> None:
        """Two elections with no write between them: a stock master goes on under the old label, and
        its bytes are filed under its epoch.
        """
        self.answer((1, 0), (2, 50))
        self.proven(80)
        self.assertEqual(self.starts, (EpochStart(1, 0), EpochStart(3, 50, MASTER.id, label=2)))
        self.assertEqual(EpochJournal.read(self.root).starts, self.starts)

    def test_a_label_that_came_without_bytes(self) -> None:
        """A label is told by a heartbeat, the connection breaks, the log is cut to the label's
        start: it is taken again with its first byte, as nothing is remembered beside the journal.
        """
        self.answer((1, 0))
        self.proven(50)
        self.transfer(50, 3, 50, size=0)
        self.successResultOf(self.epochs.become(self.epochs.journal.cut(49)))
        self.answer((1, 0), (3, 50))
        self.proven(50)
        self.transfer(60, 3, 50)
        self.assertEqual(self.starts, (EpochStart(1, 0), EpochStart(3, 50, MASTER.id)))

    def test_another_connection(self) -> None:
        """It has to be proven anew, and may tell less."""
        self.answer((1, 0))
        self.proven(20)
        self.transfer(30, 1, 0, confirm=25)
        self.answer((1, 0))
        self.transfer(40, 1, 0, confirm=40)
        self.assertEqual(self.seen[-1], 25)
        self.proven(40)
        self.assertEqual(self.seen[-1], 40)

    def test_the_number_never_goes_down(self) -> None:
        """It is that of the journal where that is higher."""
        self.successResultOf(self.epochs.become(EpochJournal(number=9)))
        self.answer((1, 0))
        self.proven(20)
        self.assertEqual(self.epochs.number, 9)
