"""The sending side: frames out, reports in."""

from __future__ import annotations

import gzip
import json
import random
from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.config.ha_settings import FirstSync, HASettings, ReplicaIdentity
from rmqha.ha.master import master as master_module
from rmqha.ha.master.connection import MasterProtocol
from rmqha.ha.master.master import GATHERING, TURN
from rmqha.ha.master.replicas import ReplicaState
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.states import Standing
from rmqha.net.door import host_of
from rmqha.store.files.mapped import OutOfDescriptors
from rmqha.wire.ha_frame import BodyPart, TransferDecoder, encode_report
from tests.support.health import unhealthy
from tests.support.log_lines import log_events
from tests.support.masters import feeding
from tests.support.sending_log import MemoryLog

FILE = 100_000


class NarrowTransport(StringTransport):
    """A transport that takes only so many bytes before it pauses its producer."""

    room = 65536

    def write(self, data: bytes) -> None:
        """Take it all, and say when that was enough."""
        super().write(data)
        if len(self.value()) > self.room:
            self.producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def drain(self) -> bytes:
        """All was sent: let the producer go on."""
        data = self.value()
        self.clear()
        self.producer.resumeProducing()
        return data


class Received:
    """What a slave would make of a stream."""

    def __init__(self, stream: bytes) -> None:
        self.frames: list[tuple[int, int]] = []
        self.heartbeats: list[int] = []
        self.body = bytearray()
        for event in TransferDecoder().receive(stream):
            if isinstance(event, BodyPart):
                self.frames.append((event.offset, event.frame))
                self.body += event.data
            else:
                self.heartbeats.append(event.offset)


class MasterCase(SynchronousTestCase):
    """A master with a log of 250 000 bytes in files of 100 000, and no connection yet."""

    def setUp(self) -> None:
        self.build()

    def build(
        self, end: int = 250_000, needed: int = 1, start: bool = True, **settings: Any
    ) -> None:
        self.clock = Clock()
        self.log = MemoryLog(file_size=FILE)
        self.log.put(random.Random(end).randbytes(end))
        self.log.flush()
        self.settings = HASettings(**settings)
        self.factory = feeding(self.log, self.clock, self.settings, needed=needed)
        self.ledger, self.transfer = self.factory.ledger, self.factory.transfer
        if start:
            self.factory.start()
        self.port = 40000

    def connect(
        self, host: str = "10.0.0.1", transport: StringTransport | None = None
    ) -> tuple[MasterProtocol, Any]:
        self.port += 1
        address = IPv4Address("TCP", host, self.port)
        protocol = self.factory.buildProtocol(address)
        assert protocol is not None, "it was refused"
        transport = transport or StringTransport()
        transport.peerAddr = address
        protocol.makeConnection(transport)
        return protocol, transport

    def fed(self, offset: int = 250_000, host: str = "10.0.0.1") -> tuple[MasterProtocol, Any]:
        """A peer connects, reports, and takes what it is sent."""
        protocol, transport = self.connect(host)
        protocol.dataReceived(encode_report(offset))
        return protocol, transport

    def lose(self, protocol: MasterProtocol) -> None:
        protocol.connectionLost(Failure(ConnectionDone()))

    def put(self, size: int = 300) -> Deferred[PutStatus]:
        return self.transfer.wait(*self.log.put(random.Random(size).randbytes(size)))


class FrameTests(MasterCase):
    def test_nothing_before_the_first_report(self) -> None:
        """A silent socket gets no byte, not even a heartbeat."""
        _, transport = self.connect()
        self.put()
        self.clock.pump([1.0] * 19)
        self.assertEqual(transport.value(), b"")
        self.assertFalse(transport.disconnecting)

    def test_empty_slave(self) -> None:
        """It gets everything, in frames that end at file ends, then a heartbeat at our end."""
        _, transport = self.fed(0)
        received = Received(transport.value())
        self.assertEqual(received.body, self.log.content(0, 250_000))
        self.assertEqual(received.heartbeats, [250_000])
        position = 0
        for offset, size in received.frames:
            self.assertEqual(offset, position)
            self.assertLessEqual(size, 32768)
            self.assertEqual(offset // FILE, (offset + size - 1) // FILE)
            position += size
        self.assertEqual(len(received.frames), 10)

    def test_last_file(self) -> None:
        """C{haFirstSync=last-file} sends what a stock master would."""
        self.build(first_sync=FirstSync.LAST_FILE)
        _, transport = self.fed(0)
        self.assertEqual(Received(transport.value()).body, self.log.content(200_000, 250_000))

    def test_from_the_middle(self) -> None:
        """A slave goes on where it reports."""
        _, transport = self.fed(123_457)
        self.assertEqual(Received(transport.value()).body, self.log.content(123_457, 250_000))

    def test_live(self) -> None:
        """An append that may wait for replicas is sent before it returns."""
        _, transport = self.fed()
        transport.clear()
        self.put(300)
        received = Received(transport.value())
        self.assertEqual((received.frames, received.heartbeats), ([(250_000, 300)], []))

    def test_before_the_others(self) -> None:
        """A frame is sent before other followers of the log do their part: slaves work then."""
        sent: list[int] = []
        self.factory.stop()
        self.log.appended.append(lambda: sent.append(len(transport.value())))
        self.factory = feeding(self.log, self.clock, self.settings)
        self.ledger, self.transfer = self.factory.ledger, self.factory.transfer
        self.factory.start()
        _, transport = self.fed()
        transport.clear()
        self.put(300)
        self.assertEqual(sent, [12 + 300])

    def test_behind_the_answers(self) -> None:
        """Where no write waits for replicas, some milliseconds make one frame, after answers."""
        self.build(needed=0)
        _, transport = self.fed()
        transport.clear()
        self.put(300)
        self.clock.advance(GATHERING / 2)
        self.put(200)
        self.assertEqual(transport.value(), b"")
        self.clock.advance(GATHERING / 2)
        self.assertEqual(Received(transport.value()).frames, [(250_000, 500)])
        transport.clear()
        self.put(100)
        self.clock.advance(GATHERING)
        self.assertEqual(Received(transport.value()).frames, [(250_500, 100)])

    def test_nobody_to_feed(self) -> None:
        """Bytes that go to no one make no timer: a slave's next read would pay for it."""
        self.build(needed=0)
        timers = len(self.clock.getDelayedCalls())
        self.put(300)
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        _, transport = self.fed()
        self.assertEqual(Received(transport.value()).frames, [(250_000, 300)])

    def test_behind_the_answers_at_a_stop(self) -> None:
        """A stop meanwhile comes behind what was put before it."""
        self.build(needed=0)
        _, transport = self.fed()
        transport.clear()
        self.put(300)
        self.factory.stop()
        self.clock.advance(GATHERING)
        self.assertEqual(Received(transport.value()).frames, [(250_000, 300)])

    def test_behind_the_answers_at_a_cut(self) -> None:
        """A stop that is not gentle, before the log is cut, sends nothing more."""
        self.build(needed=0)
        _, transport = self.fed()
        transport.clear()
        self.put(300)
        self.factory.stop(gently=False)
        self.clock.advance(GATHERING)
        self.assertEqual(transport.value(), b"")

    def sent_at_the_disks_answers(self, needed: int) -> list[tuple[int, int]]:
        """Which frames were sent when a C{SYNC_FLUSH} write was told that it is on the disk."""
        self.build(needed=needed, start=False, send_flushed_only=True)
        answers: list[list[tuple[int, int]]] = []
        # As the flusher, which is there before the store is served.
        self.log.flush_listeners.insert(
            0, lambda: answers.append(Received(transport.value()).frames)
        )
        self.factory.start()
        _, transport = self.fed()
        transport.clear()
        self.put(300)
        self.log.flush()
        self.clock.advance(GATHERING)
        self.assertEqual(Received(transport.value()).frames, [(250_000, 300)])
        (sent,) = answers
        return sent

    def test_before_the_disks_answers(self) -> None:
        """Where writes wait for replicas, these get the disk's bytes first; else the answers go."""
        self.assertEqual(self.sent_at_the_disks_answers(1), [(250_000, 300)])
        self.assertEqual(self.sent_at_the_disks_answers(0), [])

    def test_batch(self) -> None:
        """C{haTransferBatchSize} bounds a frame, and what a slave can take bounds it."""
        self.build(batch=1000)
        _, transport = self.fed(249_000)
        self.put(1500)
        sizes = [size for _, size in Received(transport.value()).frames]
        self.assertEqual(sizes, [1000, 1000, 500])
        self.build(batch=1 << 30)
        self.assertEqual(self.factory.batch, (4 << 20) - 12)

    def test_turns(self) -> None:
        """One connection gets a MiB at a time; the rest follows by itself."""
        self.build(end=2 * TURN + 5)
        _, transport = self.fed(0)
        self.assertIn(len(Received(transport.value()).body), range(TURN - 32768, TURN + 1))
        self.clock.advance(0)
        received = Received(transport.value())
        # A short frame that does not end a file says to a slave that it has everything.
        short = [offset + size for offset, size in received.frames if size < 32768]
        self.assertEqual([end for end in short if end % FILE], [self.log.end])
        self.assertEqual(received.body, self.log.content(0, self.log.end))
        self.assertEqual(received.heartbeats, [self.log.end])

    def test_pause(self) -> None:
        """A slow slave makes us stop, not queue; it gets all of it in the end."""
        protocol, transport = self.connect(transport=NarrowTransport())
        protocol.dataReceived(encode_report(0))
        self.assertEqual(Received(transport.value()).frames[-1], (32768, 32768))
        self.put(500)
        self.clock.advance(5)
        stream = transport.drain()
        self.assertEqual(len(Received(stream).body), 65536)
        while transport.value():
            stream += transport.drain()
        received = Received(stream)
        self.assertEqual(received.body, self.log.content(0, self.log.end))
        self.assertEqual(received.heartbeats, [self.log.end])

    def test_rate(self) -> None:
        """C{haMaxSendBytesPerSecond} holds on average, and in small steps."""
        self.build(max_send_rate=100_000)
        _, transport = self.fed(0)
        self.assertLessEqual(len(transport.value()), 100_000)
        seconds = 0.0
        while len(Received(transport.value()).body) < 250_000:
            self.clock.advance(0.01)
            seconds += 0.01
        self.assertTrue(1.4 <= seconds <= 2.6, seconds)

    def test_rate_is_no_end(self) -> None:
        """While the rate holds bytes back no heartbeat tells a slave that our log ends there."""
        self.build(max_send_rate=3000, heartbeat=5.0)
        protocol, transport = self.fed(1)
        for _ in range(200):
            self.clock.advance(0.5)
            protocol.dataReceived(encode_report(1))
        received = Received(transport.value())
        self.assertEqual(received.body, self.log.content(1, self.log.end))
        self.assertEqual(set(received.heartbeats), {self.log.end})

    def test_flushed_only(self) -> None:
        """With C{haSendFlushedOnly} a slave never gets what a power cut could take from us."""
        self.build(send_flushed_only=True)
        protocol, transport = self.fed()
        transport.clear()
        write = self.put(300)
        self.assertEqual(transport.value(), b"")
        self.log.flush()
        self.assertEqual(Received(transport.value()).frames, [(250_000, 300)])
        protocol.dataReceived(encode_report(250_300))
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)

    def test_confirmed_only(self) -> None:
        """What a slave has not checked it does not serve on."""
        self.log.confirmed = 249_000
        _, transport = self.fed(248_000)
        self.assertEqual(Received(transport.value()).frames, [(248_000, 1000)])
        self.log.confirmed = 250_000
        for listener in self.log.appended:
            listener()
        self.assertEqual(Received(transport.value()).frames[1:], [(249_000, 1000)])

    def test_failure_of_ours(self) -> None:
        """If feeding a slave fails, the write that woke us does not."""
        protocol, transport = self.fed()
        good, _ = self.fed(host="10.0.0.2")
        self.patch(protocol, "pump", lambda limit: 1 / 0)
        write = self.put()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.factory.closed["internal"], 1)
        good.dataReceived(encode_report(self.log.end))
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)

    def test_no_descriptor(self) -> None:
        """A log file that cannot be opened now is sent later, on the same connection."""
        none = True
        read = self.log.read

        def reading(offset: int, size: int) -> memoryview:
            if none:
                raise OutOfDescriptors("commitlog/0", size)
            return read(offset, size)

        self.patch(self.log, "read", reading)
        peer, transport = self.fed(200_000)
        self.log.put(bytes(100))
        self.clock.pump([1.0] * 3)
        self.assertEqual((transport.value(), self.factory.closed), (b"", {}))
        none = False
        self.clock.pump([1.0] * 3)
        self.assertEqual(len(Received(transport.value()).body), 50_100)
        self.assertIsNotNone(peer.claim)

    def test_no_mark_above_what_was_sent(self) -> None:
        """The ledger knows what was given to the transport, no more."""
        protocol, _ = self.connect(transport=NarrowTransport())
        protocol.dataReceived(encode_report(0))
        self.assertEqual(self.ledger.mark("10.0.0.1"), 65536)


class HeartbeatTests(MasterCase):
    def test_at_least_every_interval(self) -> None:
        """Between two bytes to a slave there are never more than C{haSendHeartbeatInterval}."""
        protocol, transport = self.fed()
        transport.clear()
        self.clock.advance(0.4)
        silence = 0.0
        for step in range(600):
            self.clock.advance(0.1)
            silence += 0.1
            if step % 40 == 0:
                protocol.dataReceived(encode_report(250_000))
            if step == 300:
                self.put(10)
            if transport.value():
                if step != 300:
                    self.assertGreater(silence, 3.5)
                silence = 0.0
                transport.clear()
            self.assertLess(silence, 5.01)

    def test_offset(self) -> None:
        """It carries the offset that comes next."""
        _, transport = self.fed()
        self.put(10)
        transport.clear()
        self.clock.advance(5)
        self.assertEqual(Received(transport.value()).heartbeats, [250_010])

    def test_not_to_a_full_transport(self) -> None:
        """Who does not read gets nothing more to read."""
        protocol, transport = self.connect(transport=NarrowTransport())
        protocol.dataReceived(encode_report(0))
        before = transport.value()
        self.clock.pump([1.0] * 10)
        self.assertEqual(transport.value(), before)

    def test_no_first_report(self) -> None:
        """Seven bytes and silence are closed in time; a stock slave silent for six s is not."""
        protocol, transport = self.connect()
        self.clock.advance(6)
        protocol.dataReceived(bytes(7))
        self.clock.pump([1.0] * 13)
        self.assertFalse(transport.disconnected)
        self.clock.advance(1)
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.factory.closed, {"no-report": 1})

    def test_silence(self) -> None:
        """A slave that stops reporting is closed; single bytes are no sign of life."""
        protocol, transport = self.fed()
        self.clock.pump([1.0] * 10)
        protocol.dataReceived(encode_report(250_000))
        self.clock.pump([1.0] * 12)
        protocol.dataReceived(b"\0")
        self.clock.pump([1.0] * 7)
        self.assertFalse(transport.disconnected)
        self.clock.advance(1)
        self.assertTrue(transport.disconnected)
        self.assertEqual((self.factory.closed, list(self.ledger)), ({"silent": 1}, []))

    def test_sweep_survives(self) -> None:
        """One connection that cannot be looked after does not end the sweep."""
        protocol, _ = self.fed()
        _, transport = self.fed(host="10.0.0.2")
        self.patch(protocol, "look", lambda now, after: 1 / 0)
        transport.clear()
        self.clock.pump([1.0] * 5)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(Received(transport.value()).heartbeats, [250_000])

    def test_goes_on_after_an_error(self) -> None:
        """A sweep that fails once is not the last: heartbeats go on."""
        _, transport = self.fed()
        transport.clear()

        def once() -> Standing:
            self.factory.standing = lambda: Standing.WHOLE
            raise OSError("once")

        self.factory.standing = once
        for _ in range(12):
            self.clock.advance(1)
        self.assertGreater(len(Received(transport.value()).heartbeats), 1)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_stops_after_an_error(self) -> None:
        """An error leaves nobody at the log when it stops."""
        self.patch(self.factory, "standing", lambda: 1 / 0)
        self.clock.advance(1)
        self.successResultOf(self.factory.stop())
        self.assertEqual(self.log.appended, [])
        self.flushLoggedErrors(ZeroDivisionError)


class ReportTests(MasterCase):
    def test_acknowledges(self) -> None:
        """A report resolves the write it covers, in the same call."""
        protocol, _ = self.fed()
        write = self.put(300)
        protocol.dataReceived(encode_report(250_299))
        self.assertNoResult(write)
        protocol.dataReceived(encode_report(250_300))
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)

    @given(st.lists(st.integers(0, 3000), max_size=30), st.data())
    def test_any_chunking(self, steps: list[int], data: st.DataObject) -> None:
        """Reports count the same in any pieces."""
        self.build(end=50_000)
        protocol, transport = self.connect()
        reports, offset = [encode_report(10_000)], 10_000
        for step in steps:
            offset = min(offset + step, 50_000)
            reports.append(encode_report(offset))
        stream = b"".join(reports)
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            protocol.dataReceived(stream[:size])
            stream = stream[size:]
        self.assertFalse(transport.disconnected)
        self.assertEqual(self.ledger.quorum(1), offset)

    def test_wrong_reports(self) -> None:
        """Each is closed with its reason, gets nothing more, and resolves nothing."""
        cases = {
            "negative": [-2],
            "ahead": [1 << 40],
            "above-max": [250_000, 1 << 40],
            "decreasing": [240_000, 239_999],
        }
        good, _ = self.fed(host="10.0.0.9")
        write = self.put(300)
        for reason, reports in cases.items():
            protocol, transport = self.connect("10.0.0.66")
            for report in reports:
                protocol.dataReceived(encode_report(report))
            self.assertTrue(transport.disconnected, reason)
            self.assertIsNone(transport.producer)
            self.assertEqual(self.factory.closed[reason], 1)
            sent = transport.value()
            protocol.dataReceived(encode_report(self.log.end))
            self.put(10)
            self.assertEqual(transport.value(), sent)
            self.lose(protocol)
        self.assertNoResult(write)
        good.dataReceived(encode_report(250_300))
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)

    def test_above_sent(self) -> None:
        """A slave cannot have what is still with us."""
        protocol, transport = self.connect(transport=NarrowTransport())
        protocol.dataReceived(encode_report(0))
        protocol.dataReceived(encode_report(65537))
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.factory.closed, {"above-sent": 1})

    def test_together(self) -> None:
        """Reports that come together with a wrong one do not count either."""
        protocol, _ = self.fed()
        write = self.put(300)
        protocol.dataReceived(encode_report(250_300) + encode_report(-1))
        self.assertNoResult(write)

    def test_garbage(self) -> None:
        """Whatever was meant for another port acknowledges nothing, nor disturbs the replica."""
        source = random.Random(25)
        garbage = [
            b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            bytes.fromhex("16030100c8010000c40303") + source.randbytes(200),
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"2026-11-21 10:00:00",
            source.randbytes(1 << 20),
            bytes(1 << 16),
            b"\xff" * 64,
            bytes(7),
            b"\0" * 8 + b"GET / HTTP/1.1\r\n\r\n",
        ]
        good, transport = self.fed(host="10.0.0.9")
        write = self.put(300)
        for data in garbage:
            for size in (1, 7, 8, 9, 4096, len(data)):
                some = data[: 5000 * size]
                protocol, _ = self.connect("10.0.0.66")
                for at in range(0, len(some), size):
                    protocol.dataReceived(some[at : at + size])
                self.lose(protocol)
        self.assertNoResult(write)
        self.assertEqual(self.transfer.pending, 1)
        self.assertEqual([claim.host for claim in self.ledger], ["10.0.0.9"])
        self.assertEqual(self.ledger.mark("10.0.0.66") >= 0, True)
        self.assertEqual(self.factory.connections, 1)
        self.assertFalse(transport.disconnected)
        self.assertEqual(Received(transport.value()).frames, [(250_000, 300)])
        self.assertGreater(self.factory.closed["flood"], 0)
        good.dataReceived(encode_report(250_300))
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)

    def test_log_lines_are_limited(self) -> None:
        """Ten thousand bad connections in a second are a handful of lines."""
        lines = log_events(self)
        for _ in range(10_000):
            protocol, _ = self.connect("10.0.0.66")
            protocol.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
            self.lose(protocol)
        self.clock.advance(2)
        self.assertEqual(self.factory.closed, {"ahead": 10_000})
        self.assertEqual(self.factory.connections, 0)
        self.assertLessEqual(len(lines), 3)


class ConnectionTests(MasterCase):
    """Who may connect, and how it ends."""

    def test_host(self) -> None:
        """An IPv4 peer of an IPv6 socket is the same host."""
        self.assertEqual(host_of(IPv6Address("TCP", "::ffff:10.0.0.1", 1)), "10.0.0.1")
        self.assertEqual(host_of(IPv6Address("TCP", "fe80::1", 1)), "fe80::1")

    def test_limit(self) -> None:
        """Beyond C{haMaxConnections} replicas are refused, until one has left."""
        self.build(max_connections=2)
        first, second = (self.fed(249_000, host)[0] for host in ("10.0.0.1", "10.0.0.2"))
        for replica in (first, second):
            replica.dataReceived(encode_report(249_500))
        address = IPv4Address("TCP", "10.0.0.3", 1)
        self.assertIsNone(self.factory.buildProtocol(address))
        self.assertEqual(self.factory.closed, {"too-many": 1})
        self.lose(first)
        self.assertIsNotNone(self.factory.buildProtocol(address))

    def test_strangers(self) -> None:
        """Of one address beyond so many the oldest connection that has acknowledged nothing it was
        sent goes, whatever it repeats; one that has acknowledged a byte stays.
        """
        self.patch(master_module, "STRANGERS", 3)
        self.build()
        good, _ = self.fed(249_000)
        good.dataReceived(encode_report(249_001))
        strangers: list[MasterProtocol] = []
        for _ in range(10):
            stranger, _ = self.fed(0)
            stranger.dataReceived(encode_report(0))
            strangers.append(stranger)
            if len(strangers) > 3:
                oldest = strangers.pop(0)
                self.assertIsNone(oldest.claim)
                self.lose(oldest)
            self.assertTrue(all(each.claim is not None for each in strangers))
        self.assertIsNotNone(good.claim)
        self.assertEqual(self.factory.closed, {"crowded-out": 7})

    def test_strangers_when_full(self) -> None:
        """Strangers from anywhere keep no slave out."""
        self.build(max_connections=4)
        strangers = [self.fed(0, f"10.0.1.{number}")[0] for number in range(4)]
        self.fed(250_000, "10.0.0.1")
        self.assertEqual([each.claim is None for each in strangers], [True, False, False, False])

    def test_mute_strangers(self) -> None:
        """A write does not wait for who has acknowledged nothing for seconds."""
        self.fed(0)
        first = self.transfer.wait(*self.log.put(bytes(100)))
        self.clock.pump([1.0] * 4)
        self.assertEqual(self.successResultOf(first), PutStatus.FLUSH_SLAVE_TIMEOUT)
        second = self.transfer.wait(*self.log.put(bytes(100)))
        self.assertEqual(self.successResultOf(second), PutStatus.SLAVE_NOT_AVAILABLE)

    def test_allowed(self) -> None:
        """C{haAllowedPeers} refuses the others."""
        self.build(allowed_peers=(ip_network("10.0.0.0/24"),))
        self.assertIsNone(self.factory.buildProtocol(IPv4Address("TCP", "10.0.1.1", 1)))
        self.assertIsNotNone(self.factory.buildProtocol(IPv4Address("TCP", "10.0.0.7", 1)))
        self.assertEqual(self.factory.closed, {"not-allowed": 1})

    def test_acknowledgement_dies(self) -> None:
        """When the replica has left, nobody is there."""
        protocol, _ = self.fed()
        self.lose(protocol)
        self.assertEqual(self.successResultOf(self.put()), PutStatus.SLAVE_NOT_AVAILABLE)
        self.assertEqual(self.factory.closed, {"peer": 1})

    def test_reconnect(self) -> None:
        """A slave that comes back with what it was just sent resolves the writes that wait."""
        protocol, _ = self.fed()
        write = self.put(300)
        self.lose(protocol)
        self.fed(250_300)
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)

    def test_was_ahead(self) -> None:
        """A slave that was ahead is neither fed nor counted once our log is longer."""
        _, transport = self.fed(260_000)
        self.assertTrue(transport.disconnected)
        self.log.put(bytes(20_000))
        for _ in range(3):
            protocol, transport = self.fed(260_000)
            self.assertTrue(transport.disconnected)
            self.assertEqual(transport.value(), b"")
            self.lose(protocol)
        self.assertEqual(self.factory.closed["unproven"], 3)
        self.assertEqual(self.successResultOf(self.put()), PutStatus.SLAVE_NOT_AVAILABLE)

    def test_lost(self) -> None:
        """Retention went past a slave: it is closed, and told how much is gone."""
        protocol, transport = self.connect(transport=NarrowTransport())
        protocol.dataReceived(encode_report(0))
        self.assertEqual(self.factory.held_from(), 0)
        self.log.min_offset = 100_000
        self.clock.advance(1)
        self.assertTrue(transport.disconnected)
        (row,) = self.factory.replicas()
        self.assertEqual(row.state, ReplicaState.LOST)
        self.assertIn("34464 bytes", row.detail)
        self.assertIsNone(self.factory.held_from())

    def test_lost_while_sending(self) -> None:
        """The same when it reads again before anybody looked."""
        protocol, transport = self.connect(transport=NarrowTransport())
        protocol.dataReceived(encode_report(0))
        self.log.min_offset = 200_000
        transport.drain()
        self.assertEqual(self.factory.closed, {"lost": 1})

    def test_by_connection(self) -> None:
        """C{haReplicaIdentity=connection} counts each."""
        self.build(needed=2, replica_identity=ReplicaIdentity.CONNECTION)
        one, _ = self.fed()
        other, _ = self.fed()
        write = self.put(300)
        one.dataReceived(encode_report(250_300))
        self.assertNoResult(write)
        other.dataReceived(encode_report(250_300))
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)
        self.assertEqual(len(self.factory.replicas()), 2)

    def test_stop(self) -> None:
        """A stop answers waiting writes, closes gently, and tells when all are gone."""
        one, transport = self.fed()
        other, waiting = self.connect()
        write = self.put()
        stopped = self.factory.stop()
        again = self.factory.stop()
        self.assertEqual(self.successResultOf(write), PutStatus.SERVICE_NOT_AVAILABLE)
        for each in (transport, waiting):
            self.assertTrue(each.disconnecting)
            self.assertFalse(each.disconnected)
        self.assertIsNone(self.factory.buildProtocol(IPv4Address("TCP", "10.0.0.1", 1)))
        self.lose(one)
        self.assertNoResult(stopped)
        self.lose(other)
        self.successResultOf(stopped)
        self.successResultOf(again)
        self.assertEqual((self.clock.getDelayedCalls(), self.log.appended), ([], []))
        self.successResultOf(self.factory.stop())

    def test_stop_with_a_stuck_peer(self) -> None:
        """Who does not let go in time is cut off."""
        _, transport = self.fed()
        self.factory.stop()
        self.clock.advance(1)
        self.assertTrue(transport.disconnected)


class StatusTests(MasterCase):
    def states(self) -> list[tuple[str, str]]:
        rows = self.factory.replicas()
        return [(row.address.partition(":")[0], str(row.state)) for row in rows]

    def test_states(self) -> None:
        """From waiting over feeding to in-sync; one row for each replica."""
        protocol, _ = self.connect()
        self.assertEqual(self.states(), [("10.0.0.1", "waiting")])
        protocol.dataReceived(encode_report(0))
        self.assertEqual(self.states(), [("10.0.0.1", "feeding")])
        protocol.dataReceived(encode_report(100_000))
        self.assertEqual(self.states(), [("10.0.0.1", "feeding")])
        protocol.dataReceived(encode_report(250_000))
        self.assertEqual(self.states(), [("10.0.0.1", "in-sync")])
        self.connect()
        (row,) = self.factory.replicas()
        self.assertEqual((row.state, row.connections), (ReplicaState.IN_SYNC, 2))

    def test_too_few_replicas(self) -> None:
        """A SYNC master is well once a replica holds its log, and not when one is late or gone."""
        self.assertIn("too-few-replicas: 0 of 1 replicas", unhealthy(self.factory))
        protocol, _ = self.connect()
        self.assertIn("too-few-replicas", unhealthy(self.factory))
        protocol.dataReceived(encode_report(100_000))
        self.assertIn("too-few-replicas", unhealthy(self.factory))
        protocol.dataReceived(encode_report(250_000))
        self.assertEqual(unhealthy(self.factory), "")
        self.clock.pump([1.0] * 10)
        self.put(300)
        self.clock.advance(self.transfer.timeout)
        self.assertEqual(unhealthy(self.factory), "")
        self.clock.advance(0.1)
        self.assertIn("as it was 3 s ago", unhealthy(self.factory))
        protocol.dataReceived(encode_report(250_300))
        self.assertEqual(unhealthy(self.factory), "")
        self.lose(protocol)
        self.assertIn("0 of 1", unhealthy(self.factory))

    def test_enough_replicas(self) -> None:
        """Connections of one address are one replica, and without SYNC writes none is missed."""
        self.build(needed=2)
        for host, found in (("10.0.0.1", 1), ("10.0.0.1", 1), ("10.0.0.2", 2)):
            protocol, _ = self.connect(host)
            protocol.dataReceived(encode_report(250_000))
            said = f"too-few-replicas: {found} of 2" if found < 2 else ""
            self.assertIn(said, unhealthy(self.factory))
        self.assertEqual(unhealthy(self.factory), "")
        self.build(needed=0)
        self.assertEqual(unhealthy(self.factory), "")

    def test_speed(self) -> None:
        """Speed is what a slave was sent in the last second."""
        self.fed()
        self.clock.advance(10)
        self.put(300)
        self.put(200)
        self.clock.advance(1)
        (row,) = self.factory.replicas()
        self.assertEqual(row.speed, 500)
        self.clock.advance(1)
        (row,) = self.factory.replicas()
        self.assertEqual(row.speed, 0)

    def test_sent(self) -> None:
        """What all slaves were sent is counted, of those gone too: bytes of the log alone."""
        protocol, _ = self.fed(offset=249_000)
        self.fed(offset=250_000, host="10.0.0.2")
        self.assertEqual(self.factory.sent, 1000)
        self.put(300)
        self.assertEqual(self.factory.sent, 1600)
        self.lose(protocol)
        self.put(200)
        self.assertEqual(self.factory.sent, 1800)

    def test_lag(self) -> None:
        """Lag is what is not acknowledged, and since when."""
        protocol, _ = self.fed()
        self.clock.pump([1.0] * 10)
        self.put(300)
        self.clock.advance(0.5)
        (row,) = self.factory.replicas()
        self.assertEqual((row.lag_bytes, row.lag_seconds), (300, 0.5))
        self.assertEqual(row.state, ReplicaState.IN_SYNC)
        self.clock.advance(2.0)
        self.put(100)
        protocol.dataReceived(encode_report(250_200))
        (row,) = self.factory.replicas()
        self.assertEqual((row.lag_bytes, row.lag_seconds), (200, 2.5))
        self.assertEqual(row.state, ReplicaState.FEEDING)
        protocol.dataReceived(encode_report(250_300))
        self.clock.advance(0.25)
        (row,) = self.factory.replicas()
        self.assertEqual((row.lag_bytes, row.lag_seconds), (100, 0.25))
        protocol.dataReceived(encode_report(250_400))
        self.assertEqual(
            self.factory.replicas()[0].as_json(),
            {
                "address": f"10.0.0.1:{self.port}",
                "state": "in-sync",
                "sent": 250_400,
                "acked": 250_400,
                "lagBytes": 0,
                "lagSeconds": 0.0,
                "connections": 1,
                "detail": "",
            },
        )

    def test_verdicts(self) -> None:
        """Who was refused is shown with the reason for a minute, unless it is fed by now."""
        for offset, host in ((1 << 40, "10.0.0.1"), (1 << 40, "10.0.0.2")):
            protocol, _ = self.fed(offset, host)
            self.lose(protocol)
        self.log.min_offset = 100_000
        self.lose(self.fed(5, "10.0.0.3")[0])
        self.lose(self.fed(-5, "10.0.0.4")[0])
        self.assertEqual(
            self.states(), [("10.0.0.1", "ahead"), ("10.0.0.2", "ahead"), ("10.0.0.3", "below-min")]
        )
        self.assertIn(str(1 << 40), self.factory.replicas()[0].detail)
        self.fed(host="10.0.0.1")
        self.assertIn(("10.0.0.1", "in-sync"), self.states())
        self.assertEqual(len(self.states()), 3)
        self.clock.pump([5.0] * 3)
        self.clock.advance(50)
        self.assertEqual([state for _, state in self.states() if state == "ahead"], [])

    def test_verdicts_are_bounded(self) -> None:
        """Garbage from everywhere does not fill the status."""
        for number in range(200):
            self.lose(self.fed(1 << 40, f"10.0.1.{number}")[0])
        self.assertEqual(len(self.factory.replicas()), 64)


class CaptureTests(MasterCase):
    def replay(self, name: str, connection: dict[str, Any], seed: int) -> None:
        """Feed one connection's reports, in random pieces."""
        folder = golden.DATA / "captures" / "ha"
        told = json.loads((folder / f"{name}.json").read_text())
        reports = gzip.decompress((folder / f"{name}.s2m.bin.gz").read_bytes())
        reports = reports[slice(*connection["s2m"])]
        frames = gzip.decompress((folder / f"{name}.m2s.bin.gz").read_bytes())
        frames = frames[slice(*connection["m2s"])]
        first = int.from_bytes(reports[:8], "big")
        begin = first or Received(frames).frames[0][0]
        self.clock = Clock()
        self.log = MemoryLog(end=begin, file_size=golden.LOG_FILE_SIZE)
        self.factory = feeding(self.log, self.clock, HASettings(first_sync=FirstSync.LAST_FILE))
        self.ledger, self.transfer = self.factory.ledger, self.factory.transfer
        self.factory.start()
        protocol, transport = self.connect()
        source = random.Random(seed)
        pieces = [reports[:3], reports[3:8]]
        at = 8
        while at < len(reports):
            size = source.choice((1, 5, 8, 16, 100))
            pieces.append(reports[at : at + size])
            at += size
        for number, piece in enumerate(pieces):
            protocol.dataReceived(piece)
            if number == 1:
                self.log.put(bytes(told["stores"]["master"]["end"] - begin))
        self.assertFalse(transport.disconnected, f"{name}, seed {seed}: {self.factory.closed}")
        last = int.from_bytes(reports[-8:], "big")
        self.assertEqual(self.ledger.quorum(1), last)
        if last > begin:
            self.assertEqual(self.ledger.covers(begin, last), 1)

    def test_replay(self) -> None:
        """They are taken in any pieces, and count in the end."""
        names = sorted((golden.DATA / "captures" / "ha").glob("*.json"))
        self.assertEqual(len(names), 8)
        for path in names:
            connections = json.loads(path.read_text())["conns"]
            for connection in [each for each in connections if each["reports"]]:
                for seed in range(5):
                    self.replay(path.name.removesuffix(".json"), connection, seed)
