"""Comparing a log on the disk with a running master."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock

from rmqha.errors import FrameOffsetMismatch, MasterLeft
from rmqha.ha import compare_with_master, observer
from rmqha.ha.compare_with_master import MasterComparison, NothingCommon
from rmqha.ha.slave import probe
from rmqha.ha.slave.master_bounds import MasterBounds, MasterClientPort
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.offline.compare import LogComparison
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, LogTestCase, content, encoded
from tests.support.scripted_master import Connection, PuppetEndpoint

#: A log of three files and a bit, with a blank at each end.
SIZES = ((700, 1500, 900, 600) * 3) + (700,)


class AgainstTestCase(LogTestCase):
    """A store's log and a master played by hand."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = PuppetEndpoint(self.clock)
        self.patch(probe, "PROBE_WINDOW", 500)
        self.place = self.folder()
        self.ours = self.filled(*SIZES, folder=self.place)
        self.theirs = self.copied(self.ours)

    def copied(self, log: CommitLog, end: int | None = None) -> CommitLog:
        """A master's log with the same bytes."""
        copy = self.log()
        copy.begin(0)
        append_frame(copy, 0, content(log, 0, end))
        copy.verify()
        return copy

    def put(self, log: CommitLog, *sizes: int, topic: str = "TopicA") -> None:
        for size in sizes:
            log.put([encoded(size, topic=topic)], [0], 0)

    def change(self, at: int) -> None:
        """Change one byte of ours."""
        file = self.ours.folder.at(at)
        file.view[at - file.start] ^= 0xFF

    def look(self, bounds: MasterBounds | None = None, **more: Any) -> Deferred[LogComparison]:
        """Begin to compare; the master's client port may tell bounds."""
        raw = RawLog.open(self.place)
        self.addCleanup(raw.close)
        self.against = MasterComparison(
            ours=OfflineLog.of(raw, data_end(raw, 0)),
            port=MasterClientPort(
                more.pop("ask", None if bounds is None else lambda: succeed(bounds)),
                self.clock,
                "10.0.0.1:10912",
                self.endpoint,
            ),
            folder=self.folder(),
            **more,
        )
        self.looking = ensureDeferred(self.against.parting())
        self.addCleanup(self.assertEqual, self.endpoint.waiting, [])
        self.addCleanup(self.gone)
        return self.looking

    def gone(self) -> None:
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [], "calls are left")

    def told(self) -> MasterBounds:
        """What an honest master says."""
        return MasterBounds(self.theirs.min_offset, self.theirs.end, 1)

    def answered(self) -> Connection:
        """The next question, and the master's log from there."""
        connection = self.endpoint.accept()
        connection.feed(self.theirs, connection.reports()[0])
        return connection

    def found(self) -> LogComparison:
        return self.successResultOf(self.looking)


class AnswerTests(AgainstTestCase):
    def test_equal(self) -> None:
        """The last file is compared, and the connection is closed at once."""
        self.look(self.told())
        connection = self.answered()
        found = self.found()
        self.assertIsNone(found.difference)
        start = self.ours.end - self.ours.end % FILE_SIZE
        self.assertEqual((found.start, found.stop, found.at), (start, *[self.ours.end] * 2))
        self.assertEqual((found.first.bytes, found.second.bytes), (0, 0))
        self.assertFalse(connection.open)
        self.assertEqual(connection.reports(), [start])

    def test_behind(self) -> None:
        """What the master has more is counted by topic."""
        at = self.theirs.end
        self.put(self.theirs, 700, 900, 700, topic="More")
        self.look(self.told())
        self.answered()
        found = self.found()
        self.assertIsNone(found.difference)
        self.assertEqual((found.at, found.second.topics), (at, {"More": 3}))
        self.assertEqual((found.second.end, found.second.unread), (self.theirs.end, 0))
        self.assertEqual(found.first.records, 0)

    def test_ahead(self) -> None:
        """What we have more is counted, and nothing was asked above the master's end."""
        self.put(self.ours, 700, 900, topic="More")
        self.look(self.told())
        connection = self.answered()
        found = self.found()
        self.assertIsNone(found.difference)
        self.assertEqual((found.at, found.stop), (self.theirs.end, self.theirs.end))
        self.assertEqual(found.first.topics, {"More": 2})
        self.assertEqual((found.second.end, found.second.records), (self.theirs.end, 0))
        self.assertLess(connection.reports()[0], self.theirs.end)

    def test_parted(self) -> None:
        """Two histories: the place, the record, and what each side has for itself."""
        at = self.ours.end
        self.put(self.ours, 700, 900, topic="Ours")
        self.put(self.theirs, 700, 1500, 900, topic="Their")
        self.look(self.told())
        self.answered()
        found = self.found()
        assert found.difference is not None
        self.assertTrue(at < found.difference.offset < at + 700)
        self.assertEqual(found.difference.other_path, "10.0.0.1:10912")
        self.assertNotEqual(found.difference.value, found.difference.other_value)
        self.assertEqual((found.at, found.first.topics), (at, {"Ours": 2}))
        self.assertEqual(found.second.topics, {"Their": 3})

    def test_flipped(self) -> None:
        """A flipped bit in the last file is found, and whose records follow it."""
        for log in (self.ours, self.theirs):
            self.put(log, 900)
        at = self.ours.end - 900 + 200
        self.change(at)
        self.look(self.told())
        self.answered()
        found = self.found()
        assert found.difference is not None
        self.assertEqual((found.difference.offset, found.at), (at, self.ours.end - 900))
        self.assertEqual((found.first.records, found.second.records), (0, 1))

    def test_limit(self) -> None:
        """Of a master that has far more, only so much is fetched."""
        self.patch(compare_with_master, "MOST_KEPT", 2000)
        at = self.theirs.end
        self.put(self.theirs, *[700] * 10, topic="More")
        self.look(self.told())
        connection = self.answered()
        found = self.found()
        self.assertFalse(connection.open)
        own = found.second
        self.assertEqual((own.end, own.tail), (at + own.bytes, 0))
        assert own.unread is not None
        self.assertEqual(own.end + own.unread, self.theirs.end)
        self.assertTrue(2 <= own.records < 5)


class QuestionTests(AgainstTestCase):
    def test_further_back(self) -> None:
        """If not even the first record compared is common, it asks further back."""
        at = FILE_SIZE + 20
        self.change(at)
        start = self.ours.end - self.ours.end % FILE_SIZE
        for place in range(start, self.ours.end, 100):
            self.change(place)
        self.look(self.told())
        first = self.answered()
        self.clock.advance(1)
        second = self.answered()
        self.assertEqual(first.reports(), [start])
        self.assertLess(second.reports()[0], start)
        self.assertFalse(first.open)
        while not self.looking.called:
            self.clock.advance(1)
            self.answered()
        found = self.found()
        assert found.difference is not None
        self.assertIn(found.difference.offset, (at, start))

    def test_all(self) -> None:
        """All of it, or from an offset: byte 1 is the lowest that can be asked."""
        for earliest, asked in ((0, 1), (700, 700), (self.ours.end, 3 * FILE_SIZE)):
            self.look(self.told(), earliest=earliest)
            self.assertEqual((self.answered().reports(), self.found().start), ([asked], asked))

    def test_blind(self) -> None:
        """A master that tells no end is asked far below ours; then a heartbeat tells it."""
        self.put(self.ours, 900)
        for told in (True, False):
            self.look()
            connection = self.endpoint.accept()
            start = connection.reports()[0]
            self.assertLessEqual(start, self.ours.end - probe.PROBE_WINDOW)
            connection.heartbeat(start)
            self.assertNoResult(self.looking)
            if told:
                connection.feed(self.theirs, start, batch=self.theirs.end - start)
                connection.heartbeat(self.theirs.end)
            else:
                connection.feed(self.theirs, start, batch=500)
            self.assertEqual(self.found().at, self.theirs.end)

    def test_no_client_port(self) -> None:
        """A client port that does not answer leaves it blind, and is told."""
        self.look(ask=lambda: fail(ConnectionRefusedError()))
        self.answered().heartbeat(self.theirs.end)
        self.assertIsNone(self.found().difference)
        self.assertIn("refused", self.against.port.state)

    def test_repeats(self) -> None:
        """On a long connection the first report is repeated, and never raised."""
        self.look(self.told(), earliest=0)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, 1, FILE_SIZE)
        self.clock.pump([1.0] * 16)
        self.assertEqual(connection.reports(), [1] * 4)
        connection.feed(self.theirs, FILE_SIZE)
        self.assertIsNone(self.found().difference)

    def test_empty_store(self) -> None:
        """A log without a byte has nothing to compare."""
        for path in self.place.iterdir():
            path.write_bytes(bytes(FILE_SIZE))
        self.look(self.told())
        self.assertRefused()
        self.failureResultOf(self.looking, NothingCommon)

    def assertRefused(self) -> None:
        """The connection is made, asked about, and left without a word."""
        factory, done = self.endpoint.waiting.pop(0)
        protocol: Any = factory.buildProtocol(None)  # type: ignore[arg-type]
        connection = Connection(protocol, self.clock)
        done.callback(protocol)
        self.assertEqual(connection.reports(), [])
        self.assertFalse(connection.open)

    def test_deleted(self) -> None:
        """A master whose log begins behind our end is not asked for a byte."""
        self.look(MasterBounds(100 * FILE_SIZE, 101 * FILE_SIZE, 1))
        self.assertRefused()
        said = str(self.failureResultOf(self.looking, NothingCommon).value)
        self.assertIn(f"[{100 * FILE_SIZE}, {101 * FILE_SIZE})", said)
        self.assertIn(f"our log holds [0, {self.ours.end})", said)

    def test_refused(self) -> None:
        """A master of ours closes where a stock one is silent: further back, to the end."""
        self.look()
        asked = []
        while self.endpoint.waiting and len(asked) < 20:
            if asked and asked[-1] == 1:
                self.assertRefused()
                break
            connection = self.endpoint.accept()
            asked.append(connection.reports()[0])
            if len(asked) % 2:
                connection.close()
            else:
                self.clock.advance(observer.PROBE_SILENCE)
            self.clock.advance(1)
        self.assertEqual(asked, sorted(asked, reverse=True))
        self.assertEqual(asked[-1], 1)
        self.failureResultOf(self.looking, NothingCommon)


class FaultTests(AgainstTestCase):
    def test_unreachable(self) -> None:
        """Nobody listens."""
        self.look()
        self.endpoint.refuse()
        self.failureResultOf(self.looking, ConnectionRefusedError)

    def test_leaves(self) -> None:
        """A master that leaves in the middle has proven nothing."""
        self.look(self.told(), earliest=0)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, 1, FILE_SIZE)
        connection.close()
        error = self.failureResultOf(self.looking, MasterLeft).value
        self.assertEqual(error.offset, FILE_SIZE)

    def test_stalls(self) -> None:
        """Neither has one that sends no more."""
        self.look(self.told(), earliest=0)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, 1, FILE_SIZE)
        self.clock.pump([1.0] * 20)
        self.assertIn("silent", str(self.failureResultOf(self.looking, MasterLeft).value))
        self.assertFalse(connection.open)

    def test_gap(self) -> None:
        """A stream that does not begin where it was asked, or has a gap, is refused."""
        self.look(self.told(), earliest=0)
        self.endpoint.accept().frame(2, b"x")
        self.failureResultOf(self.looking, FrameOffsetMismatch)
        self.look(self.told(), earliest=0)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, 1, 500)
        connection.heartbeat(499)
        self.failureResultOf(self.looking, FrameOffsetMismatch)

    def test_files_missing(self) -> None:
        """Behind a missing file of ours the rest is compared."""
        sorted(self.place.iterdir())[1].unlink()
        self.look(self.told(), earliest=0)
        self.assertEqual(self.answered().reports(), [2 * FILE_SIZE])
        self.assertIsNone(self.found().difference)
