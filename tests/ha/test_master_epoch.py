"""The number that says which of two masters is the later one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import DiskFull, Refused, TableUnreadable
from rmqha.ha.master_epoch import (
    MOST_STARTS,
    NEVER_ELECTED,
    EpochJournal,
    EpochStart,
    HigherMaster,
    MasterEpochs,
    parse,
    path_of,
)
from tests.support.logs import Held, now

OTHER = HigherMaster(4, "10.0.0.5:10911", "name server 10.0.0.9:9876")
LARGEST = 2_147_483_647
"""The most that Java's C{int} holds, as which an epoch goes over the wire."""


def journal(*starts: tuple[int, int], number: int | None = None) -> EpochJournal:
    """A journal with these entries, whose number is the last one's."""
    entries = tuple(EpochStart(*start) for start in starts)
    known = entries[-1].epoch if entries else 0
    return EpochJournal(number=known if number is None else number, starts=entries)


class JournalTests(SynchronousTestCase):
    def test_promotions(self) -> None:
        """Each raises the number, and its first byte is noted."""
        once = EpochJournal().raised(500)
        self.assertEqual(once, journal((1, 500)))
        self.assertEqual(once.raised(700), journal((1, 500), (2, 700)))
        self.assertGreater(once.number, NEVER_ELECTED)

    def test_without_bytes(self) -> None:
        """An epoch in which nothing was written gives its place to the next."""
        self.assertEqual(journal((1, 500)).raised(500), journal((2, 500)))

    def test_above_what_was_met(self) -> None:
        """A promotion exceeds a master that was met; a fenced store is so no more."""
        fenced = journal((1, 500)).met(OTHER)
        self.assertEqual(fenced.fenced_by, OTHER)
        raised = fenced.raised(900)
        self.assertEqual((raised.number, raised.fenced_by), (5, None))

    def test_chosen(self) -> None:
        """An operator may choose a number, but none that is known already."""
        for number in (7, LARGEST):
            self.assertEqual(EpochJournal().raised(500, number).number, number)
        for number in (0, 1, LARGEST + 1):
            self.assertRaises(Refused, journal((1, 500)).raised, 900, number)

    def test_met(self) -> None:
        """The highest that was met counts; one that is not higher is no reason."""
        found = EpochJournal(number=4).met(OTHER)
        self.assertIsNone(found.fenced_by)
        higher = HigherMaster(6, "10.0.0.6:10911", "a slave")
        self.assertEqual(found.met(higher).met(OTHER).fenced_by, higher)

    def test_met_again(self) -> None:
        """Another just as high changes nothing: two would write a file at each word."""
        found = journal((1, 500)).met(OTHER)
        self.assertIs(found.met(HigherMaster(4, "10.0.0.6:10911", "a slave")), found)

    def test_followed(self) -> None:
        """A slave has its master's epochs, and forgets a higher one that is not higher any more."""
        starts = (EpochStart(2, 100), EpochStart(3, 900))
        before = journal((1, 50)).met(OTHER)
        self.assertEqual(before.followed(4, starts), EpochJournal(number=4, starts=starts))
        self.assertEqual(before.followed(3, starts).fenced_by, OTHER)

    def test_cut(self) -> None:
        """What is cut off takes its entries along, and never the number."""
        found = journal((1, 500), (2, 700))
        self.assertEqual(found.cut(700), found)
        self.assertEqual(found.cut(699), journal((1, 500), number=2))
        self.assertEqual(found.cut(0), journal(number=2))

    def test_bounded(self) -> None:
        """The newest entries are kept."""
        found = EpochJournal()
        for number in range(MOST_STARTS + 3):
            found = found.raised(number)
        self.assertEqual(len(found.starts), MOST_STARTS)
        self.assertEqual(found.starts[-1].epoch, MOST_STARTS + 3)

    def test_text(self) -> None:
        """What goes over the wire is read as it was; anything else is refused."""
        for one in (
            journal(),
            journal((1, 0), (2, 66215)),
            # In a stock master's journal an epoch without bytes keeps its place.
            journal((1, 5), (2, 5), (LARGEST, 7)),
        ):
            self.assertEqual(parse(one.text()), one.starts)
        wrong = ["1", "1-", "1-2-3", "x-1", "2-5,1-7", "2-5,2-7", "1-5,2-4", "1-5,", "-1-5", "²-1"]
        # What Python takes for a number, and no other reader.
        wrong += ["1- 5", "+1-5", "1_0-5"]
        wrong += [
            f"{LARGEST + 1}-0",
            f"1-{1 << 63}",
            ",".join(f"{n}-0" for n in range(1, MOST_STARTS + 2)),
        ]
        for text in wrong:
            self.assertRaises(ValueError, parse, text)


class FileTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())

    def test_kept(self) -> None:
        """It is read as it was written, and nothing is said; a store without one has epoch 0."""
        without = EpochJournal.read(self.root)
        self.assertEqual((without, without.number, without.reset), (EpochJournal(), 0, 0))
        full = journal(*((number + 1, number) for number in range(MOST_STARTS)))
        elected = EpochStart(3, 12, writer=2, label=1)
        for one in (
            journal((1, 5), (2, 9)),
            journal((1, 5), number=9).met(OTHER),
            journal(),
            journal((1, 5), number=LARGEST),
            EpochJournal(number=3, starts=(EpochStart(1, 5), elected), reset=2),
            # What so many promotions have made is read by the next start.
            full,
            full.raised(MOST_STARTS),
        ):
            one.write(self.root)
            with capturedLogs() as told:
                self.assertEqual(EpochJournal.read(self.root), one)
            self.assertEqual(list(told), [])

    def test_damaged(self) -> None:
        """The generation before stands in for a damaged one: the epoch may be lower, it says."""
        for one in (journal((1, 5)), journal((1, 5), (2, 9))):
            one.write(self.root)
        path_of(self.root).write_bytes(b"{")
        with capturedLogs() as told:
            self.assertEqual(EpochJournal.read(self.root), journal((1, 5)))
        self.assertIn("may be lower than it was", formatEvent(told[0]))

    def test_nonsense(self) -> None:
        """A file that makes no sense is no epoch 0: the store may be the newer one."""
        path_of(self.root).parent.mkdir(parents=True)
        for content in (
            b"{",
            b"{}",
            b'{"number": 1}',
            b'{"number": -1, "starts": []}',
            b'{"number": true, "starts": []}',
            b'{"number": 1, "starts": [{"epoch": 1}]}',
            b'{"number": 1, "starts": [], "higher": {"epoch": "4"}}',
            b'{"number": 2, "starts": [{"epoch":2,"start":5},{"epoch":1,"start":9}]}',
        ):
            path_of(self.root).write_bytes(content)
            error = self.assertRaises(TableUnreadable, EpochJournal.read, self.root)
            self.assertIn("epochs.json", str(error))


class NodeTests(SynchronousTestCase):
    """The journal of a node that runs."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp())

    def test_loaded(self) -> None:
        """What a crash took off the log's end has no entry any more."""
        journal((1, 5), (2, 9)).write(self.root)
        epochs = MasterEpochs(self.root, now)
        epochs.load(8)
        self.assertEqual(epochs.journal, journal((1, 5), number=2))
        self.assertEqual(
            epochs.status(), {"masterEpoch": 2, "epochStarts": [[1, 5]], "fencedBy": None}
        )

    def test_written(self) -> None:
        """A change counts at once and is durable when it is said to be, the last of several too."""
        threads: list[tuple[Deferred[None], Any]] = []

        def later(function: Any, *args: Any) -> Deferred[None]:
            waiting: Deferred[None] = Deferred()
            threads.append((waiting, lambda: function(*args)))
            return waiting

        epochs = MasterEpochs(self.root, later)
        first = epochs.become(journal((1, 5)))
        second = epochs.become(epochs.journal.met(OTHER))
        self.assertEqual(epochs.number, 1)
        self.assertNoResult(first)
        for _ in range(2):
            waiting, work = threads.pop()
            work()
            waiting.callback(None)
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(EpochJournal.read(self.root), epochs.journal)
        self.assertEqual(
            epochs.status()["fencedBy"],
            {"epoch": 4, "address": OTHER.address, "toldBy": OTHER.told_by},
        )
        self.successResultOf(epochs.become(epochs.journal))
        self.assertEqual(threads, [])

    def test_disk_full(self) -> None:
        """What cannot be written counts all the same, and is tried again with the next change."""
        full = True

        def write(function: Any, *args: Any) -> Deferred[None]:
            if full:
                return fail(DiskFull("epochs.json", 5))
            return now(function, *args)

        epochs = MasterEpochs(self.root, write)
        self.successResultOf(epochs.become(journal((1, 5))))
        self.assertEqual(epochs.number, 1)
        self.assertEqual(EpochJournal.read(self.root), EpochJournal())
        full = False
        self.successResultOf(epochs.become(epochs.journal.met(OTHER)))
        self.assertEqual(EpochJournal.read(self.root), epochs.journal)

    def test_tried_again(self) -> None:
        """What could not be written is written later; a write under way is waited for."""
        thread = Held()
        epochs = MasterEpochs(self.root, thread)
        epochs.try_again()
        self.assertEqual(thread.calls, [])
        epochs.become(journal((1, 5)))
        epochs.try_again()

        def full(one: EpochJournal, root: Path) -> None:
            raise DiskFull("epochs.json", 5)

        patched = self.patch(EpochJournal, "write", full)
        thread.work()
        patched.restore()
        self.assertEqual(thread.calls, [])
        self.assertIsNot(epochs.durable, epochs.journal)
        epochs.try_again()
        thread.work()
        self.assertEqual(EpochJournal.read(self.root), epochs.journal)
        self.assertIs(epochs.durable, epochs.journal)
        epochs.try_again()
        self.assertEqual(thread.calls, [])
