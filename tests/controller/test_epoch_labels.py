"""Tests for L{rmqha.controller.epoch_labels}."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.epoch_labels import EpochLabelBehind, Labels, appended, consistent_point, cut
from rmqha.wire.ha_v2 import EpochLabel, HandshakeAnswer, MasterMessages
from tests.support.controller_captures import chunks

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
