"""A master that lost its log's tail, and the replicas that have it: L{rmqha.ha.tail_fetch}."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.logger import capturedLogs, formatEvent
from zope.interface import implementer

from rmqha.config.ha_settings import HASettings
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.states import Standing
from rmqha.ha.tail_fetch import TailFetch
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_frame import OBSERVER, encode_report
from rmqha.wire.log.record import Fault, check
from tests.ha.test_pair import Pair, Wire
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, content
from tests.support.masters import feeding
from tests.support.scripted_master import Connection, PuppetEndpoint, frames

RUBBISH = bytes(range(40))

A, B = ("10.0.0.2", 10912), ("10.0.0.3", 10912)


@implementer(IStreamClientEndpoint)
class Nobody:
    """A host that is down."""

    def __init__(self) -> None:
        self.asked = 0

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        self.asked += 1
        return fail(ConnectionRefusedError())


class FetchCase(Pair):
    """A log that lacks the end of C{theirs}; one replica or more that have it."""

    def setUp(self) -> None:
        super().setUp()
        self.wires: dict[tuple[str, int], Any] = {A: self.wire}
        self.factories: list[MasterFactory] = []
        self.pieces = list(frames(self.theirs, 1))
        self.addCleanup(self.stop_all)

    def cut_log(self, end: int) -> CommitLog:
        """The master's log: what it still has of C{theirs}."""
        log = self.log()
        append_frame(log, 0, content(self.theirs, 0, end))
        log.verify()
        log.rewind()
        return log

    def replica(
        self, log: CommitLog, address: tuple[str, int] = A, *, start: int | None = None, **keys: Any
    ) -> MasterFactory:
        """A slave whose master is away serves its log, all of which it got in this epoch."""
        settings = HASettings(**({"batch": 1000} | keys))
        factory = feeding(
            log, self.clock, settings, start=start or 0, standing=lambda: Standing.PART
        )
        factory.start()
        wire = self.wires.setdefault(address, Wire(self.clock))
        wire.master = factory
        self.factories.append(factory)
        return factory

    def stop_all(self) -> None:
        for factory in self.factories:
            factory.stop()
        self.clock.advance(2)
        self.settle()

    def settle(self) -> None:
        for _ in range(6):
            for wire in self.wires.values():
                if isinstance(wire, Wire):
                    wire.pump()
            self.clock.advance(0)

    def fetch(self, log: CommitLog, *addresses: tuple[str, int], timeout: float = 5.0) -> TailFetch:
        self.mine = log
        found = TailFetch(
            log=log,
            settings=HASettings(batch=1000),
            clock=self.clock,
            timeout=timeout,
            judge=lambda log, at, theirs: succeed("judged"),
        )
        self.over = found.run(addresses or (A,), lambda host, port: self.wires[host, port])
        self.settle()
        return found

    def asked(self, log: CommitLog, timeout: float = 5.0) -> tuple[TailFetch, Connection]:
        """Ask one that is played by hand."""
        self.endpoint = self.wires[A] = PuppetEndpoint(self.clock)
        return self.fetch(log, timeout=timeout), self.endpoint.accept()

    def assert_whole(self, found: TailFetch) -> None:
        """It is over, and the logs are equal."""
        self.successResultOf(self.over)
        status = found.status()
        self.assertEqual((status["state"], self.mine.end), ("done", self.theirs.end), status)
        self.assertEqual(content(self.mine), content(self.theirs))
        self.assertEqual(self.mine.confirmed, self.mine.end)


class OneReplicaTests(FetchCase):
    def test_wherever_it_was_cut(self) -> None:
        """The tail comes back to its last byte at once, though the replica does not know whether
        it has the whole log, and proof of a real slave would lie far back.
        """
        ends = [0]
        for size in (700, 1500, 900, 600) * 5:
            at = ends[-1]
            if at % FILE_SIZE + size + 8 > FILE_SIZE:
                at += FILE_SIZE - at % FILE_SIZE
            ends.append(at + size)
        self.assertEqual(ends[-1], self.theirs.end)
        for end in ends[1:]:
            log = self.cut_log(end)
            self.replica(self.theirs)
            found = self.fetch(log)
            self.assert_whole(found)
            self.assertEqual(found.status()["bytes"], self.theirs.end - end)
            self.assertEqual(found.status()["from"], end)

    def test_any_frames(self) -> None:
        """Whatever the size of its frames."""
        for batch in (1, 7, 333, 4096, 1 << 20):
            self.replica(self.theirs, batch=batch)
            found = self.fetch(self.cut_log(700))
            self.passes(1)
            self.assert_whole(found)

    def test_nothing_missing(self) -> None:
        """A replica with the same log says so, and the fetch is over; nothing is told as lost."""
        self.replica(self.theirs)
        with capturedLogs() as events:
            found = self.fetch(self.cut_log(self.theirs.end))
        self.assert_whole(found)
        self.assertEqual((found.status()["bytes"], found.status()["source"]), (0, None))
        self.assertEqual([], [e for e in events if e["log_level"].name not in ("info", "debug")])

    def test_replica_has_less(self) -> None:
        """Nor is one that ends before us."""
        self.replica(self.cut_log(700))
        found = self.fetch(self.cut_log(2200))
        self.successResultOf(self.over)
        (row,) = found.status()["sources"]
        self.assertEqual((row["state"], row["reason"]), ("complete", "its log ends at byte 700"))
        self.assertEqual(self.mine.end, 2200)

    def test_differs(self) -> None:
        """One that has other bytes is named, and nothing is taken from it."""
        self.replica(self.part(600, 800, end=2200))
        log = self.cut_log(2200)
        log.rewind()
        append_frame(log, 2200, content(self.theirs, 2200, 3100))
        log.verify()
        with capturedLogs() as events:
            found = self.fetch(log)
        self.successResultOf(self.over)
        (row,) = found.status()["sources"]
        self.assertEqual(row["state"], "differs")
        self.assertIn("byte 2202 differs, our log ends at 3100; judged", row["reason"])
        self.assertEqual((found.status()["state"], self.mine.end), ("incomplete", 3100))
        errors = [formatEvent(e) for e in events if e["log_level"].name == "error"]
        self.assertIn("has another log than this master", errors[0])

    def test_bad_record(self) -> None:
        """A replica whose own disk changed a byte gives what is before it, and no more."""
        other = self.part(end=self.theirs.end)
        file = other.folder.at(5000)
        file.view[5000 - file.start + 20] ^= 1
        file.view[5000 - file.start + 700] ^= 1
        self.replica(other)
        found = self.fetch(self.cut_log(700))
        self.successResultOf(self.over)
        (row,) = found.status()["sources"]
        self.assertEqual(row["state"], "failed")
        self.assertIn("crc", row["reason"])
        self.assertGreater(self.mine.end, 700)
        self.assertLess(self.mine.end, 5720)
        self.assertEqual(self.mine.confirmed, self.mine.end)
        self.assertEqual(content(self.mine), content(self.theirs, 0, self.mine.end))

    def test_cut_connection(self) -> None:
        """A connection broken while bytes come is made again, and goes on at whole records."""
        found, first = self.asked(self.cut_log(700))
        for piece in self.pieces[:8]:
            first.send(piece)
        self.settle()
        first.close()
        self.passes(1)
        self.assertEqual(found.status()["sources"][0]["state"], "waiting")
        got = self.mine.end
        self.assertLess(got, 8000)
        self.assertGreater(got, 4096)
        self.endpoint.accept().feed(self.theirs, 1)
        self.settle()
        self.assert_whole(found)
        self.assertEqual(found.status()["bytes"], self.theirs.end - 700)

    def test_one_that_is_slow(self) -> None:
        """As long as bytes come it is waited for, and no longer."""
        for stops in (False, True):
            found, slow = self.asked(self.cut_log(700), timeout=2.0)
            for piece in self.pieces[:-3]:
                slow.send(piece)
                self.passes(1.5)
                self.assertNoResult(self.over)
                self.assertEqual(found.status()["state"], "fetching")
            if stops:
                self.passes(1)
                self.successResultOf(self.over)
                self.assertEqual(found.status()["state"], "incomplete")
                self.assertGreater(self.mine.end, 15000)
            else:
                for piece in self.pieces[-3:]:
                    slow.send(piece)
                self.settle()
                self.assert_whole(found)

    def test_one_that_comes_late(self) -> None:
        """A replica that is starting too is asked until it can answer."""
        found = self.fetch(self.cut_log(700))
        self.passes(1)
        self.wire.master = "closing"
        self.passes(1)
        self.assertNoResult(self.over)
        self.replica(self.theirs)
        self.passes(1)
        self.assert_whole(found)

    def test_nobody(self) -> None:
        """Without an answer it is over in time, and the log is as it was."""
        log = self.cut_log(700)
        with capturedLogs() as events:
            found = self.fetch(log)
            self.passes(4.9)
            self.assertNoResult(self.over)
            self.passes(0.2)
        self.successResultOf(self.over)
        self.assertEqual((found.status()["state"], log.end), ("incomplete", 700))
        warnings = [formatEvent(e) or "" for e in events if e["log_level"].name == "warn"]
        self.assertIn("did not say whether it has more", warnings[0])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """A node that is stopped meanwhile asks no more, and touches nothing."""
        found, slow = self.asked(self.cut_log(700))
        for piece in self.pieces[:6]:
            slow.send(piece)
        self.passes(1)
        stopped = found.stop()
        self.settle()
        self.successResultOf(stopped)
        self.successResultOf(self.over)
        self.assertEqual(self.mine.end, self.mine.confirmed)
        self.assertFalse(slow.open)
        self.successResultOf(found.stop())


class ReplicasTests(FetchCase):
    def test_longest(self) -> None:
        """Whoever answers first, in the end the log is that of the one that has most."""
        for order in ((A, B), (B, A)):
            self.replica(self.cut_log(6000), A)
            self.replica(self.theirs, B)
            self.assert_whole(self.fetch(self.cut_log(700), *order))

    def test_all_are_waited_for(self) -> None:
        """What was acknowledged may be on the one that is away."""
        self.replica(self.cut_log(6000), A)
        self.wires[B] = Wire(self.clock)
        found = self.fetch(self.cut_log(700), A, B)
        self.passes(3)
        self.assertNoResult(self.over)
        self.replica(self.theirs, B)
        self.passes(1)
        self.assert_whole(found)

    def test_one_is_away(self) -> None:
        """One that never answers costs its time, and keeps nothing back."""
        self.replica(self.theirs, A)
        self.wires[B] = nobody = Nobody()
        found = self.fetch(self.cut_log(700), A, B)
        self.passes(5.2)
        self.successResultOf(self.over)
        self.assertEqual(content(self.mine), content(self.theirs))
        self.assertEqual(found.status()["state"], "incomplete")
        self.assertGreater(nobody.asked, 5)
        self.assertLess(nobody.asked, 15)

    def test_two_that_differ(self) -> None:
        """Of two that go on differently one is followed, and the other is named."""
        self.replica(self.theirs, A)
        self.replica(self.part(600, 800, 700, end=2200), B)
        found = self.fetch(self.cut_log(2200), A, B)
        self.successResultOf(self.over)
        self.assertEqual(
            [row["state"] for row in found.status()["sources"]], ["complete", "differs"]
        )
        self.assertEqual(content(self.mine), content(self.theirs))


class StockTests(FetchCase):
    """A stock slave that listens: no proof; it tells its end by short frames or heartbeats."""

    def test_what_is_said(self) -> None:
        """That it is an observer, which stock brokers ignore, in one piece with the question."""
        _, stock = self.asked(self.cut_log(2200))
        self.assertEqual(stock.transport.value(), encode_report(OBSERVER) + encode_report(1))

    def test_short_frame(self) -> None:
        """A frame shorter than the others is all it has."""
        found, stock = self.asked(self.cut_log(2200))
        stock.heartbeat(1)
        stock.feed(self.theirs, 1)
        self.settle()
        self.assertFalse(stock.open)
        self.assert_whole(found)

    def test_heartbeat(self) -> None:
        """If its last frame is as long as the others, the heartbeat behind it says so."""
        found, stock = self.asked(self.cut_log(2200))
        stock.feed(self.theirs, 1, batch=self.theirs.end % FILE_SIZE)
        self.settle()
        self.assertTrue(stock.open)
        self.assertEqual(self.mine.end, self.theirs.end)
        stock.heartbeat(self.theirs.end)
        self.settle()
        self.assert_whole(found)

    def test_no_end_is_told(self) -> None:
        """Without one its time ends, and what came is kept."""
        found, stock = self.asked(self.cut_log(2200))
        stock.feed(self.theirs, 1, batch=self.theirs.end % FILE_SIZE)
        self.passes(5.2)
        self.successResultOf(self.over)
        self.assertEqual(content(self.mine), content(self.theirs))
        (row,) = found.status()["sources"]
        self.assertEqual(row["bytes"], self.theirs.end - 2200)


class StrangerTests(FetchCase):
    """Whoever answers in a replica's place, whatever it sends."""

    @given(st.data())
    def test_anything(self, data: st.DataObject) -> None:
        """What the log had stays, what came is whole records at their places, and the start is over
        in time: bytes changed, left out, sent twice or made up, in pieces, as slowly as it likes.
        """
        log = self.cut_log(2200)
        _, stranger = self.asked(log)
        stream = bytearray(b"".join(frames(self.theirs, 1))[:9000])
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(stream) - 1))
            size = data.draw(st.integers(1, 40))
            other = data.draw(st.sampled_from((b"", bytes(stream[at : at + size]) * 2, RUBBISH)))
            stream[at : at + size] = other
        for size in data.draw(st.lists(st.integers(1, 4000), min_size=1, max_size=12)):
            if stranger.open:
                stranger.send(bytes(stream[:size]))
                self.passes(data.draw(st.sampled_from((0.0, 0.5, 4.0))))
            del stream[:size]
        self.passes(6)
        self.successResultOf(self.over)
        self.assertEqual(content(log, 0, 2200), content(self.theirs, 0, 2200))
        self.assertEqual(log.confirmed, log.end)
        place = 0
        while place < log.end:
            buf, file_end = log.read(place, log.end - place), log.file_end(place)
            verdict = check(buf, 0, len(buf), place, file_end, max_size=FILE_SIZE)
            self.assertNotIsInstance(verdict, Fault)
            place += abs(int(verdict))
        self.assertEqual(place, log.end)
