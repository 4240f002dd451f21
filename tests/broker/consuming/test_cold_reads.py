"""Pulls of what is not in memory wait for a thread, and nobody waits for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from errno import EIO, EOPNOTSUPP
from pathlib import Path

from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from rmqha.broker.consuming import cold_reads, queue_reader
from rmqha.broker.consuming.cold_reads import SPAN, absent, bring, places_of
from rmqha.store.files.one_thread import ThreadNotStarted
from rmqha.wire.columnar.queue_units import BLANK_UNIT, UNIT
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.consumer_side import ConsumingTestCase, bodies, pull
from tests.broker.consuming.test_pull_lane import LaneCase, asked
from tests.net.remoting.support import Peer


class ColdTests(ConsumingTestCase):
    def setUp(self) -> None:
        """Two messages, of which none is new, and those in C{cold} are on the disk alone."""
        self.broker = self.consuming()
        for body in (b"one", b"two"):
            self.broker.put(body)
        self.broker.dispatch()
        self.patch(queue_reader, "RECENT", 0)
        self.cold = True
        self.patch(queue_reader, "absent", lambda fd, place: self.cold)

    def answers(self, peer: Peer) -> list[Command]:
        self.broker.flush()
        return [sent for sent in peer.sent() if sent.is_response]

    def test_waits(self) -> None:
        """It is answered when it was read; who asks for what is in memory is answered before."""
        peer, other = self.broker.peer(), self.broker.peer()
        peer.send(pull())
        self.assertEqual(self.answers(peer), [])
        ((work, path, places),) = self.broker.cold.asked
        self.assertIs(work, bring)
        log = self.broker.store.log
        self.assertEqual((Path(path), places), (log.folder.files[0].path, [(0, log.end)]))
        self.cold = False
        self.assertEqual(bodies(self.ask(other, pull(1))), [b"two"])
        self.cold = True
        self.broker.cold.done[0].callback(None)
        (answer,) = self.answers(peer)
        self.assertEqual((answer.code, bodies(answer)), (ResponseCode.SUCCESS, [b"one", b"two"]))

    def test_read_failed(self) -> None:
        """What goes wrong there is found again by the reading, which tells it."""
        for error in (OSError(5, "I/O error"), ThreadNotStarted("cold pulls", "none left")):
            peer = self.broker.peer()
            peer.send(pull())
            self.broker.cold.done[-1].errback(Failure(error))
            self.assertEqual(len(self.answers(peer)), 1)

    def test_gone(self) -> None:
        """Who leaves meanwhile is not counted as one that got something."""
        peer = self.broker.peer()
        peer.send(pull())
        peer.connection.connectionLost()
        self.assertEqual(self.broker.state.counts.pulls.total, 0)
        self.assertTrue(self.broker.cold.done[0].called)

    def test_cannot_tell(self) -> None:
        """A file system that cannot tell is asked once a file, and what it has is served."""
        self.assertEqual(self.asked_after(EOPNOTSUPP), 1)

    def test_error(self) -> None:
        """What failed once is asked anew."""
        self.assertEqual(self.asked_after(EIO), 2)

    def asked_after(self, code: int) -> int:
        """How often two pulls ask what is in memory, and get such an error."""
        asked: list[int] = []

        def absent(fd: int, place: object) -> bool:
            asked.append(fd)
            raise OSError(code, "no answer")

        self.patch(queue_reader, "absent", absent)
        for _ in range(2):
            self.assertEqual(len(bodies(self.ask(self.broker.peer(), pull()))), 2)
        return len(asked)

    def test_recent(self) -> None:
        """Nobody looks for what is new."""
        self.patch(queue_reader, "RECENT", self.broker.store.log.end)
        self.assertEqual(len(bodies(self.ask(self.broker.peer(), pull()))), 2)
        self.assertEqual(self.broker.cold.asked, [])


class ShortWayTests(LaneCase):
    def test_left(self) -> None:
        """The short way leaves to the usual one what has to be read."""
        self.put(b"one", b"two")
        self.both(asked(0))
        self.both(asked(0), 1)
        self.patch(queue_reader, "RECENT", 0)
        self.patch(queue_reader, "absent", lambda fd, place: True)
        self.assertEqual(self.both(asked(0)), [])
        for broker in self.brokers:
            self.assertEqual(len(broker.cold.asked), 1)


def units(*places: tuple[int, int]) -> bytes:
    """Units of records at such places, of such sizes."""
    return b"".join(UNIT.pack(start, size, 0) for start, size in places)


class PlacesTests(SynchronousTestCase):
    def places(self, raw: bytes, most: int = 9) -> Sequence[tuple[int, int]]:
        return places_of(raw, most, 1000, 10 * SPAN)

    def test_together(self) -> None:
        """What lies together is one place, up to the last that is wanted."""
        raw = units((1100, 50), (1200, 60), (1300, 70))
        self.assertEqual(self.places(raw), [(100, 270)])
        self.assertEqual(self.places(raw, 2), [(100, 160)])

    def test_apart(self) -> None:
        """Of what lies apart each has its own; blanks, and those of another file, have none."""
        far = 1000 + 9 * SPAN
        raw = units((1100, 50)) + BLANK_UNIT + units((far, 60), (far + SPAN - 10, 60))
        self.assertEqual(self.places(raw), [(100, 50), (9 * SPAN, 60)])


class FileTests(SynchronousTestCase):
    def test_dropped(self) -> None:
        """What the cache has dropped is absent until it was brought, where the kernel can tell."""
        path = Path(self.mktemp())
        path.write_bytes(bytes(1 << 20))
        fd = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        place = (500_000, 5000)
        try:
            self.assertFalse(absent(fd, place))
        except OSError:
            raise SkipTest("a file system that cannot tell") from None
        os.sync()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(fd, [bytearray(10)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            self.assertTrue(absent(fd, place))
        bring(str(path), [place])
        self.assertFalse(absent(fd, place))

    def test_a_part(self) -> None:
        """What is there in part is absent."""
        self.patch(cold_reads.os, "preadv", lambda *args: 3)
        self.assertTrue(absent(0, (0, 10)))
