"""How much of its log a slave says that it holds."""

from __future__ import annotations

from twisted.internet.task import Clock

from rmqha.ha.slave.reportable import ReportLate, accepted_end, flushed_end
from tests.support.logs import STORED, LogTestCase, encoded


class ReportableTests(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.held = self.log(file_size=1 << 20)

    def grow(self, *, flushed: bool = True) -> int:
        """One record more: the log's end."""
        self.held.put([encoded(300)], [0], STORED)
        if flushed:
            self.held.now_flushed(self.held.end)
        return self.held.end

    def test_at_once(self) -> None:
        """A slave reports what it has accepted, or what is on its disk."""
        first = self.grow()
        end = self.grow(flushed=False)
        self.assertEqual((accepted_end(self.held), flushed_end(self.held)), (end, first))

    def test_late(self) -> None:
        """What has been held for so long is reported, and nothing that came since."""
        late = ReportLate(self.clock, 10.0)
        ends = []
        for second in range(30):
            ends.append(self.grow())
            wanted = 0 if second < 10 else ends[second - 10]
            self.assertEqual(late(self.held), wanted, second)
            self.clock.advance(1.0)
        self.clock.advance(10.0)
        self.assertEqual(late(self.held), ends[-1])

    def test_rarely_asked(self) -> None:
        """What nobody looked at when it came counts from when somebody did."""
        late = ReportLate(self.clock, 10.0)
        end = self.grow()
        self.clock.advance(60.0)
        self.assertEqual(late(self.held), 0)
        self.clock.advance(10.0)
        self.assertEqual(late(self.held), end)

    def test_asked_often(self) -> None:
        """Each report asks: what is remembered stays little, and is never too much."""
        late = ReportLate(self.clock, 3.0)
        ends = {}
        for step in range(1000):
            ends[step] = self.grow()
            told = late(self.held)
            self.assertLessEqual(told, ends[max(0, step - 300)] if step >= 300 else 0)
            self.clock.advance(0.01)
        self.assertLess(len(late._seen), 5)
        self.assertGreater(told, ends[1000 - 450])

    def test_on_the_disk(self) -> None:
        """What is not on the disk has not settled, however old it is."""
        late = ReportLate(self.clock, 10.0, settled=7)
        self.grow(flushed=False)
        late(self.held)
        self.clock.advance(60.0)
        self.assertEqual(late(self.held), 7)
