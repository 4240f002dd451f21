"""Tests for L{rmqha.controller.epoch_labels} and L{rmqha.controller.followed_set}."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.epoch_labels import EpochLabelBehind, Labels, appended, consistent_point, cut
from rmqha.controller.followed_set import FollowedSet
from rmqha.errors import DiskFull
from rmqha.ha.master_epoch import EpochJournal, EpochStart, MasterEpochs
from rmqha.wire.ha_v2 import EpochLabel, HandshakeAnswer, MasterMessages, TransferHeader
from tests.support.controller_captures import chunks
from tests.support.logs import Held, LogTestCase, now

STEPS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), max_size=8)


def made(*pairs: tuple[int, int]) -> Labels:
    """Labels by number and start."""
    return tuple(EpochLabel(*pair) for pair in pairs)


def filed(labels: Labels, end: int) -> list[int | None]:
    """Under which label each byte of a log is."""
    found: list[int | None] = []
    for offset in range(end):
        under = [label.label for label in labels if label.start <= offset]
        found.append(under[-1] if under else None)
    return found


class GrowingTests(SynchronousTestCase):
    """Labels of a log that grows and is cut."""

    def test_empty_ones_give_way(self) -> None:
        """Two elections without a write between leave the second."""
        labels = made((1, 0), (2, 50))
        self.assertEqual(appended(labels, EpochLabel(3, 50)), made((1, 0), (3, 50)))
        self.assertEqual(appended(labels, EpochLabel(3, 51)), made((1, 0), (2, 50), (3, 51)))
        self.assertEqual(appended((), EpochLabel(7, 9)), made((7, 9)))

    def test_behind(self) -> None:
        """What goes back is refused with both."""
        for label in (EpochLabel(2, 60), EpochLabel(1, 60), EpochLabel(3, 49)):
            with self.assertRaises(EpochLabelBehind) as raised:
                appended(made((2, 50)), label)
            words = (
                f"label {label.label} from byte {label.start} cannot follow label 2 from byte 50"
            )
            self.assertIn(words, str(raised.exception))

    @given(STEPS, st.integers(0, 40))
    def test_cut(self, steps: list[tuple[int, int]], at: int) -> None:
        """A cut takes no byte's label from it, and leaves none without a byte."""
        labels: Labels = ()
        label = start = 0
        for more, further in steps:
            label, start = label + more, start + further
            labels = appended(labels, EpochLabel(label, start))
        left = cut(labels, at)
        self.assertEqual(filed(left, at), filed(labels, at))
        self.assertTrue(all(each.start < at for each in left))


class ConsistentPointTests(SynchronousTestCase):
    """Where two logs are one, as their labels tell."""

    def test_cases(self) -> None:
        """The newest label that both have counts, and the log that ends first."""
        master = made((1, 0), (2, 100), (4, 300))
        for ours, end, point in (
            (made((1, 0)), 80, 80),
            (made((1, 0)), 130, 100),
            (made((1, 0), (2, 100)), 250, 250),
            (made((1, 0), (2, 100), (3, 280)), 310, 280),
            (made((1, 0), (2, 100), (4, 300)), 350, 350),
            (made((1, 0), (2, 100), (4, 300)), 999, 400),
            (made((1, 0), (2, 90)), 250, 90),
            (made((3, 0)), 50, None),
            ((), 50, None),
        ):
            self.assertEqual(consistent_point(ours, end, master, 400), point, ours)

    @given(STEPS, STEPS, st.integers(0, 8), st.integers(0, 9), st.integers(0, 9))
    def test_one_history(
        self,
        ours: list[tuple[int, int]],
        theirs: list[tuple[int, int]],
        shared: int,
        our_tail: int,
        their_tail: int,
    ) -> None:
        """Logs that were one up to somewhere, and then had masters of different epochs, are cut
        neither above that place nor below the last label before it.
        """
        common: Labels = ()
        label = start = 0
        for more, further in ours[:shared]:
            label, start = label + more, start + further
            common = appended(common, EpochLabel(label, start))
        split = start + 3 if common else 0
        mine, other = common, common
        number = label
        place = split
        for more, further in ours[shared:]:
            number, place = number + 2 * more, place + further
            mine = appended(mine, EpochLabel(number, place))
        my_end = place + our_tail
        number, place = label + 1, split
        for more, further in theirs:
            number, place = number + 2 * more, place + further
            other = appended(other, EpochLabel(number, place))
        point = consistent_point(mine, my_end, other, place + their_tail)
        if not common:
            self.assertIsNone(point)
            return
        assert point is not None
        self.assertGreater(point, common[-1].start)
        if len(mine) > len(common) and len(other) > len(common):
            self.assertEqual(point, min(mine[len(common)].start, other[len(common)].start))

    def test_captured(self) -> None:
        """The silent divergence: the labels call a returning log sound, but its end differs."""
        decoder = MasterMessages()
        (answer,) = (
            event
            for chunk in chunks("ha-run3-diverge-9-to35201", "master")
            for event in decoder.receive(chunk)
            if isinstance(event, HandshakeAnswer)
        )
        self.assertEqual((answer.end, answer.last), (346830, 11))
        point = consistent_point(answer.labels, 346830, answer.labels, answer.end)
        self.assertEqual(point, 346830)


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
        self.set.on_handshake(HandshakeAnswer(1 << 20, made, made[-1].label if made else -1))

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
