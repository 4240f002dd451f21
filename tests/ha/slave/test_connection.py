"""One connection of a slave: bytes in, log and reports out."""

from __future__ import annotations

import random
import struct
from typing import Any
from unittest.mock import patch

from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from lab.harness import golden
from rmqha.config.ha_settings import HASettings
from rmqha.errors import DiskFull, FrameOffsetMismatch, FrameSizeOutOfRange, RecordCorrupt
from rmqha.ha.slave.connection import SlaveProtocol
from rmqha.ha.slave.probe import Probe, ProbeKind
from rmqha.ha.slave.reportable import Reportable, accepted_end, flushed_end
from rmqha.net.rate_limit import TokenBucket
from rmqha.store.files.allocate import Allocator
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_dialect import SetSlaveDialect
from rmqha.wire.ha_frame import MAX_BODY
from rmqha.wire.ha_v2 import (
    EpochLabel,
    HandshakeAnswer,
    TransferHeader,
    encode_answer,
    encode_report,
    encode_transfer_header,
)
from tests.net.test_zero_copy_receive import Pair
from tests.support.effort import tries
from tests.support.ha_frames import encode_header
from tests.support.logs import FILE_SIZE, Disk, LogTestCase, content, encoded
from tests.support.scripted_master import Connection, frame, frames


class Recorder:
    """An owner that only writes down what it is told."""

    def __init__(self, go_on: bool = True) -> None:
        self.go_on = go_on
        self.told: list[tuple[str, Any]] = []

    def first_bytes(self, connection: SlaveProtocol, offset: int) -> bool:
        self.told.append(("first", offset))
        return self.go_on

    def silence(self, connection: SlaveProtocol) -> None:
        self.told.append(("silence", None))
        connection.drop()

    def differs(self, connection: SlaveProtocol, offset: int) -> bool:
        self.told.append(("differs", offset))
        connection.drop()
        return False

    def on_difference(self, connection: SlaveProtocol, theirs: bytes) -> None:
        self.told.append(("parted", len(theirs)))

    def master_ends(self, connection: SlaveProtocol, offset: int) -> None:
        self.told.append(("ends", offset))

    def on_progress(self, connection: SlaveProtocol) -> None:
        self.told.append(("moved", connection.cursor))

    def bad_record(self, connection: SlaveProtocol, error: RecordCorrupt) -> bool:
        return False

    def on_error(self, connection: SlaveProtocol, error: Exception) -> None:
        self.told.append(("broken", error))

    def on_connection_end(self, connection: SlaveProtocol, reason: Failure) -> None:
        self.told.append(("lost", connection.by_peer))

    @property
    def error(self) -> Any:
        return next(what for name, what in self.told if name == "broken")


class SlaveCase(LogTestCase):
    """A protocol with a real log, a transport in memory and an owner that writes down."""

    def setUp(self) -> None:
        self.clock = Clock()

    def unchecked(self) -> None:
        """Take whatever comes for records."""
        self.patch(CommitLog, "verify", lambda log: setattr(log, "confirmed", log.end))

    def connect(
        self,
        log: CommitLog,
        ask: ProbeKind = ProbeKind.EMPTY,
        report: int = 0,
        *,
        reportable: Reportable = accepted_end,
        owner: Recorder | None = None,
        **keys: Any,
    ) -> Connection:
        self.owner = owner or Recorder()
        self.settings = HASettings(**keys)
        rate = self.settings.max_receive_rate
        self.slave = SlaveProtocol(
            log=log,
            question=Probe(ask, report),
            settings=self.settings,
            clock=self.clock,
            follower=self.owner,
            reportable=reportable,
            bucket=TokenBucket(rate, self.clock) if rate else None,
        )
        connection = Connection(self.slave, self.clock)
        self.addCleanup(connection.close)
        return connection

    def tearDown(self) -> None:
        """Nothing is left of the connections."""
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])


def chunks(data: bytes, seed: int, most: int) -> list[bytes]:
    """Data in pieces of random sizes."""
    choose = random.Random(seed)
    pieces = []
    while data:
        size = choose.randint(1, most)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def bodies(stream: bytes) -> tuple[int, bytes]:
    """Where a stream starts, and all its bytes: decoded here, not by the code under test."""
    position, start, parts = 0, None, []
    while position < len(stream):
        offset, size = struct.unpack_from(">qi", stream, position)
        position += 12
        if size and start is None:
            start = offset
        parts.append(stream[position : position + size])
        position += size
    assert start is not None, "there are bytes in it"
    return start, b"".join(parts)


class CaptureTests(SlaveCase):
    def prefilled(self, start: int, *, empty: bool) -> CommitLog:
        """A log that ends where a conversation starts."""
        size = golden.LOG_FILE_SIZE
        folder = self.folder()
        if not empty:
            first = start - start % size
            (folder / f"{first:020d}").write_bytes(b"\1" * (start - first) + bytes(size))
            with open(folder / f"{first:020d}", "r+b") as file:
                file.truncate(size)
        made = LogFolder.load(folder, size)
        self.addCleanup(made.close)
        return CommitLog(folder=made, end=0 if empty else start, allocator=Allocator())

    def replay(self, stream: bytes, first: int, pieces: list[bytes]) -> None:
        """Receive one conversation, after what the stock slave reported first."""
        start, expected = bodies(stream)
        log = self.prefilled(start, empty=first == 0)
        ask = ProbeKind.EMPTY if first == 0 else ProbeKind.OVERLAP
        # In the middle of a record there is nothing to check a record against.
        if first:
            self.unchecked()
        connection = self.connect(log, ask, first)
        for piece in pieces:
            connection.send(piece)
        self.assertTrue(connection.open, str(self.owner.told[-3:]))
        self.assertEqual(content(log, start), expected)
        reports = connection.reports()
        self.assertEqual(reports[0], first)
        self.assertEqual(reports, sorted(reports))
        self.assertEqual(reports[-1], log.confirmed if first == 0 else log.end)
        self.assertEqual(log.end, start + len(expected))

    def test_all(self) -> None:
        """Every conversation of every capture gives exactly its bytes, in any pieces."""
        count = 0
        for name in golden.CAPTURES:
            for master, slave in golden.capture(name).connections():
                if len(master) <= 12 or not any(master):
                    continue
                first = int.from_bytes(slave[:8], "big")
                for seed, most in ((1, 1 << 20), (2, 65536), (3, 1500), (4, 40)):
                    with self.subTest(capture=name, seed=seed):
                        self.replay(master, first, chunks(master, seed, most))
                        count += 1
        self.assertGreater(count, 40)

    def test_byte_by_byte(self) -> None:
        """The smallest of them a byte at a time."""
        master, slave = next(golden.capture("4.9.7-master-restart").connections())
        first = int.from_bytes(slave[:8], "big")
        self.replay(master, first, [master[i : i + 1] for i in range(len(master))])


class ReportTests(SlaveCase):
    def setUp(self) -> None:
        super().setUp()
        self.theirs = self.filled(700, 1500, 900, 600, 700, 300)

    def test_at_once(self) -> None:
        """The question is the first thing sent, before anything came."""
        for report in (0, 17, 1 << 40):
            self.assertEqual(self.connect(self.log(), ProbeKind.START, report).reports(), [report])

    def test_repeated(self) -> None:
        """The same report is repeated at least every five seconds."""
        connection = self.connect(self.log(), heartbeat=60.0, housekeeping=1000.0)
        times = []
        for step in range(400):
            before = len(connection.reports())
            self.clock.advance(0.1)
            if len(connection.reports()) > before:
                times.append(step / 10)
        gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
        self.assertTrue(all(3.8 < gap <= 5.01 for gap in gaps), gaps)
        self.assertEqual(set(connection.reports()), {0})

    def test_shorter_heartbeat(self) -> None:
        """A shorter haSendHeartbeatInterval is kept too."""
        connection = self.connect(self.log(), heartbeat=0.5)
        self.clock.pump([0.125] * 80)
        self.assertGreaterEqual(len(connection.reports()), 20)

    def test_once_a_turn(self) -> None:
        """All frames of one read turn are answered with one report."""
        connection = self.connect(self.log())
        connection.send(b"".join(frames(self.theirs, 0, batch=100)))
        self.assertEqual(connection.reports(), [0, self.theirs.end])

    def test_whole_records_only(self) -> None:
        """Half a record is not reported, whole ones before it are."""
        connection = self.connect(self.log())
        for end, reported in ((500, 0), (700, 700), (2199, 700), (2200, 2200), (2210, 2200)):
            done = self.slave.cursor or 0
            connection.frame(done, content(self.theirs, done, end))
            self.assertEqual(connection.reports()[-1], reported)
        self.assertEqual(self.slave.log.end, 2210)

    def test_unfinished_frame(self) -> None:
        """Whole records in an unfinished frame are not accepted yet."""
        connection = self.connect(self.log())
        connection.send(encode_header(0, 2300) + content(self.theirs, 0, 2299))
        self.assertEqual((connection.reports(), self.slave.log.end), ([0], 0))

    def test_only_what_is_flushed(self) -> None:
        """A SYNC_FLUSH slave reports when the disk has it, without being asked."""
        log = self.log()
        connection = self.connect(log, reportable=flushed_end)
        connection.frame(0, content(self.theirs, 0, 2200))
        self.assertEqual(connection.reports(), [0])
        log.now_flushed(700)
        self.assertEqual(connection.reports(), [0, 700])
        log.now_flushed(2200)
        self.assertEqual(connection.reports(), [0, 700, 2200])
        connection.frame(2200, content(self.theirs, 2200, 2300))
        log.now_flushed(2300)
        self.assertEqual(connection.reports()[-1], 2200)

    def test_only_what_was_compared(self) -> None:
        """Our own log's end says nothing before the master's bytes reach it."""
        mine = self.filled(700, 1500, 900, 600, 700, 300)
        connection = self.connect(mine, ProbeKind.OVERLAP, 1)
        connection.frame(1, content(self.theirs, 1, 1000))
        self.assertEqual(connection.reports()[-1], 1000)
        self.clock.advance(5)
        self.assertEqual(connection.reports()[-1], 1000)

    def test_never_lower(self) -> None:
        """A report never falls, whatever happens to the log."""
        log = self.log()
        connection = self.connect(log)
        connection.frame(0, content(self.theirs, 0, 2200))
        log.confirmed = 700
        self.clock.advance(6)
        self.assertEqual(connection.reports()[-1], 2200)

    def test_after_the_end(self) -> None:
        """A connection that is over reports nothing."""
        log = self.log()
        connection = self.connect(log, reportable=flushed_end)
        connection.frame(0, content(self.theirs, 0, 2200))
        connection.close()
        before = connection.reports()
        log.now_flushed(2200)
        self.clock.advance(100)
        self.assertEqual((connection.reports(), log.flush_listeners), (before, []))


class StreamTests(SlaveCase):
    def setUp(self) -> None:
        """A master's log of three files."""
        super().setUp()
        self.theirs = self.filled(*((700, 1500, 900, 600) * 3))

    @settings(max_examples=tries(25), deadline=None)
    @given(st.integers(0, 1 << 30), st.integers(1, 5000), st.integers(1, 3000))
    def test_any_frames_in_any_pieces(self, seed: int, batch: int, most: int) -> None:
        """The log is the same however it is framed and cut."""
        log = self.log()
        connection = self.connect(log)
        stream = b"".join(frames(self.theirs, 0, batch=batch))
        for piece in chunks(stream, seed, most):
            connection.send(piece)
        self.assertEqual(content(log), content(self.theirs))
        self.assertEqual(connection.reports()[-1], self.theirs.end)
        self.assertEqual(connection.reports(), sorted(connection.reports()))

    def test_frames_over_our_files(self) -> None:
        """One frame may span all our files."""
        log = self.log()
        self.connect(log).frame(0, content(self.theirs))
        self.assertEqual(content(log), content(self.theirs))
        self.assertEqual(len(log.folder.files), 3)

    def test_cut_in_a_frame(self) -> None:
        """A connection that is lost in the middle of one leaves zeros behind the end."""
        log = self.log()
        connection = self.connect(log)
        data = content(self.theirs)
        connection.frame(0, data[:700])
        connection.send(encode_header(700, 8000) + data[700:6000])
        self.assertEqual((log.end, len(log.folder.files)), (700, 2))
        connection.close()
        self.assertEqual(len(log.folder.files), 1)
        self.assertFalse(any(log.folder.files[0].view[700:]))
        self.assertEqual(self.owner.told[-1], ("lost", True))

    def test_bad_size(self) -> None:
        """Nothing is taken of an impossible frame, nor behind it."""
        for size in (-1, -(2**31), MAX_BODY + 1, 2**31 - 1):
            log = self.log()
            connection = self.connect(log)
            good = frame(0, content(self.theirs, 0, 700))
            connection.send(good + struct.pack(">qi", 700, size) + bytes(100))
            self.assertIsInstance(self.owner.error, FrameSizeOutOfRange)
            self.assertFalse(connection.open)
            self.assertEqual(log.end, 700)
            self.assertEqual(self.slave.why, str(self.owner.error))

    def test_largest_frame(self) -> None:
        """A frame of exactly the limit is taken."""
        log = self.log(file_size=8 << 20)
        self.unchecked()
        self.connect(log).frame(0, bytes(MAX_BODY))
        self.assertEqual(log.end, MAX_BODY)

    def test_gap_and_overlap(self) -> None:
        """Neither is taken, and the numbers are told."""
        for offset in (699, 701, 0, 5000, -1):
            log = self.log()
            connection = self.connect(log)
            connection.frame(0, content(self.theirs, 0, 700))
            connection.frame(offset, b"x" * 50)
            self.assertIsInstance(self.owner.error, FrameOffsetMismatch)
            self.assertEqual((self.owner.error.expected, self.owner.error.received), (700, offset))
            self.assertEqual(log.end, 700)
            self.assertFalse(connection.open)

    def test_nothing_after_the_end(self) -> None:
        """What arrives after we left is not looked at."""
        connection = self.connect(self.log())
        self.slave.drop("enough")
        self.slave.dataReceived(frame(0, b"x" * 50))
        self.assertEqual((self.slave.log.end, self.owner.told), (0, []))
        self.clock.advance(0)
        self.assertEqual(self.owner.told, [("lost", False)])
        self.assertFalse(connection.open)

    def test_owner_does_not_go_on(self) -> None:
        """If the owner does not want an answer nothing of it is stored."""
        self.connect(self.log(), owner=Recorder(go_on=False)).frame(0, b"x" * 50)
        self.assertEqual(self.slave.log.end, 0)
        self.assertTrue(self.slave.finished)

    def test_bad_record(self) -> None:
        """A fault is told with its place."""
        connection = self.connect(self.log())
        connection.frame(0, content(self.theirs, 0, 700) + b"\1" * 500)
        error = self.owner.error
        self.assertIsInstance(error, RecordCorrupt)
        self.assertEqual((error.offset, connection.reports()), (700, [0]))

    def test_disk_full(self) -> None:
        """So is a full disk."""
        disk = Disk().install(self)
        connection = self.connect(self.log())
        disk.full = True
        connection.frame(0, content(self.theirs, 0, 700))
        self.assertIsInstance(self.owner.error, DiskFull)
        self.assertFalse(connection.open)

    def test_head_in_small_frames(self) -> None:
        """Byte 0 is computed from frames however small."""
        log = self.log()
        connection = self.connect(log, ProbeKind.START, 1)
        for offset in range(1, 200):
            connection.frame(offset, content(self.theirs, offset, offset + 1))
        self.assertEqual(content(log), content(self.theirs, 0, 200))
        self.assertEqual(connection.reports()[-1], 1)
        connection.frame(200, content(self.theirs, 200))
        self.assertEqual(connection.reports()[-1], self.theirs.end)
        self.assertEqual(content(log), content(self.theirs))

    def test_gap_in_the_head(self) -> None:
        """The stream's offsets are checked there too."""
        connection = self.connect(self.log(), ProbeKind.START, 1)
        connection.frame(1, content(self.theirs, 1, 50))
        connection.frame(51, content(self.theirs, 51, 200))
        self.assertEqual((self.owner.error.expected, self.owner.error.received), (50, 51))

    def test_nonsense_in_the_head(self) -> None:
        """Bytes that are no record are a fault, not an exception."""
        connection = self.connect(self.log(), ProbeKind.START, 1)
        connection.frame(1, b"\xff" * 500)
        self.assertFalse(connection.open)
        self.assertIsInstance(self.owner.error, Exception)
        self.assertEqual(self.slave.log.confirmed, 0)


class TimeTests(SlaveCase):
    def test_silence(self) -> None:
        """Only received bytes count: our own reports do not keep a dead master alive."""
        connection = self.connect(self.log(), housekeeping=20.0)
        self.clock.pump([0.5] * 20)
        connection.heartbeat(0)
        self.clock.pump([0.5] * 39)
        self.assertTrue(connection.open)
        self.clock.pump([0.5] * 3)
        self.assertFalse(connection.open)
        self.assertIn("silent for 20 s", self.slave.why)

    def test_a_second_late_at_most(self) -> None:
        """A dead master is noticed within a second after haHousekeepingInterval, always."""
        for last in (0.1, 3.7, 4.9):
            connection = self.connect(self.log(), housekeeping=20.0)
            self.clock.advance(last)
            connection.send(encode_header(0, 0)[:5])
            waited = 0.0
            while connection.open:
                self.clock.advance(0.1)
                waited += 0.1
            self.assertTrue(19.9 < waited < 21.1, waited)
            self.clock.advance(0)

    def test_rate(self) -> None:
        """Above haMaxReceiveBytesPerSecond reading pauses until it is due again."""
        log = self.log(file_size=1 << 20)
        self.unchecked()
        connection = self.connect(log, max_receive_rate=100_000)
        transport = connection.transport
        connection.frame(0, bytes(40_000))
        self.assertEqual(transport.producerState, "producing")
        connection.frame(40_000, bytes(60_000))
        self.assertEqual(transport.producerState, "paused")
        self.clock.advance(0.3)
        self.assertEqual(transport.producerState, "paused")
        self.clock.advance(0.1)
        self.assertEqual(transport.producerState, "producing")

    def test_pause_is_no_silence(self) -> None:
        """While we do not read it is not the master that is silent."""
        log = self.log(file_size=4 << 20)
        self.unchecked()
        connection = self.connect(log, max_receive_rate=20_000)
        connection.frame(0, bytes(2_000_000))
        self.clock.pump([0.5] * 160)
        self.assertTrue(connection.open)
        self.assertEqual(connection.transport.producerState, "paused")
        self.assertGreater(len(connection.reports()), 15)
        self.clock.pump([0.5] * 50)
        self.assertEqual(connection.transport.producerState, "producing")
        self.assertTrue(connection.open)

    def test_lost_while_paused(self) -> None:
        """A connection that ends during a pause is not resumed."""
        log = self.log(file_size=4 << 20)
        self.unchecked()
        connection = self.connect(log, max_receive_rate=20_000)
        connection.frame(0, bytes(2_000_000))
        connection.close()
        self.clock.advance(200)
        self.assertEqual(connection.transport.producerState, "paused")


class SinkTests(SlaveCase):
    """The same protocol as the sink of the scatter path."""

    def test_same_as_portable(self) -> None:
        """Frames through the sink give the same log and the same reports."""
        theirs = self.filled(*((700, 1500, 900, 600) * 3))
        log = self.log()
        connection = self.connect(log)
        connection.frame(0, content(theirs, 0, 700))
        slave = self.slave
        slave.frame_starts(700, 8000)
        data, position = content(theirs), 700
        while position < 8700:
            room = slave.room(position, 8700 - position)
            count = min(len(room), 999)
            room[:count] = data[position : position + count]
            slave.body_received(count)
            position += count
        slave.frame_ends()
        slave.turn_ends()
        self.assertEqual((content(log), connection.reports()[-1]), (data[:8700], log.confirmed))
        slave.frame_starts(8700, len(data) - 8700)
        room = slave.room(8700, len(data) - 8700)
        room[:] = data[8700 : 8700 + len(room)]
        slave.body_received(len(room))
        slave.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(log.end, 8700)
        file = log.folder.at(8699)
        self.assertFalse(any(file.view[8700 - file.start :]))

    def test_header_alone(self) -> None:
        """A header that comes before its body, as from a stock master, is no news; its body is."""
        log, data = self.log(), content(self.filled(700, 700))
        connection = self.connect(log)
        connection.frame(0, data[:800])
        told, ends = list[int](), len(self.owner.told)
        log.appended.append(lambda: told.append(log.end))
        self.slave.frame_starts(800, 600)
        self.slave.turn_ends()
        self.assertEqual((told, self.owner.told[ends:]), ([], []))
        room = self.slave.room(800, 600)
        room[:] = data[800:]
        self.slave.body_received(600)
        self.slave.frame_ends()
        self.slave.turn_ends()
        self.assertEqual((told, len(self.owner.told)), ([1400], ends + 1))

    def test_refuses(self) -> None:
        """A frame elsewhere is refused before any of it is read."""
        log = self.log()
        self.connect(log).frame(0, bytes(encoded(700)))
        self.assertRaises(FrameOffsetMismatch, self.slave.frame_starts, 701, 10)

    def test_full_disk(self) -> None:
        """No room is a store's error, told as a violation."""
        disk = Disk().install(self)
        theirs = self.filled(700, 1500, 900, 600)
        log = self.log()
        connection = self.connect(log)
        connection.frame(0, content(theirs))
        disk.full = True
        self.slave.frame_starts(log.end, FILE_SIZE)
        room = self.slave.room(log.end, FILE_SIZE)
        self.slave.body_received(len(room))
        error = self.assertRaises(DiskFull, self.slave.room, FILE_SIZE, 10)
        self.slave.violation(error)
        self.slave.violation(error)
        self.assertEqual([name for name, _ in self.owner.told].count("broken"), 1)
        self.assertFalse(connection.open)

    def test_bad_record(self) -> None:
        """A fault found at the end of a turn ends the connection."""
        connection = self.connect(self.log())
        connection.frame(0, bytes(encoded(700)))
        self.slave.frame_starts(700, 300)
        room = self.slave.room(700, 300)
        room[:] = b"\1" * 300
        self.slave.body_received(300)
        self.slave.frame_ends()
        self.slave.turn_ends()
        self.assertIsInstance(self.owner.error, RecordCorrupt)
        self.assertFalse(connection.open)


@frozen
class Heard:
    """What an elected master said beside bytes."""

    answers: list[HandshakeAnswer] = field(factory=list)
    transfers: list[TransferHeader] = field(factory=list)

    def on_handshake(self, answer: HandshakeAnswer) -> None:
        self.answers.append(answer)

    def transfer(self, header: TransferHeader) -> None:
        self.transfers.append(header)


class ElectedTests(SlaveCase):
    """Behind an elected master, on a socket that can read into the log."""

    def follow(self, log: CommitLog) -> Pair:
        """An empty slave that was sent its first transfer, of 700 bytes."""
        self.heard, pair = Heard(), Pair()
        self.addCleanup(pair.close)
        self.slave = SlaveProtocol(
            log=log,
            question=Probe(ProbeKind.EMPTY, 0),
            settings=HASettings(),
            clock=self.clock,
            follower=Recorder(),
            dialect=SetSlaveDialect(listener=self.heard),
        )
        # What a socket pair does not know.
        for name in ("setTcpNoDelay", "setTcpKeepAlive"):
            setattr(pair.client, name, bool)
        pair.client.protocol = self.slave
        self.slave.makeConnection(pair.client)
        pair.feed(encode_answer(0, [EpochLabel(3, 0)]))
        pair.feed(self.transfer(0, 700, 0))
        return pair

    def transfer(self, begin: int, end: int, confirm: int, *, offset: int | None = None) -> bytes:
        """A part of the master's log."""
        body = content(self.theirs, begin, end)
        at = begin if offset is None else offset
        return encode_transfer_header(TransferHeader(len(body), at, 3, 0, confirm)) + body

    def test_no_copies(self) -> None:
        """Once it only appends, no bytes go through the decoder, as with a classic master; all
        headers are heard, and what came together is reported once.
        """
        self.theirs = self.filled(*((700, 1500, 900, 600) * 3))
        log = self.log()
        pair = self.follow(log)
        pair.peer.recv(1000)
        with patch.object(self.slave, "_decode", side_effect=AssertionError("it was copied")):
            pair.feed(
                self.transfer(700, 2200, 700)
                + self.transfer(2200, 3100, 700)
                + self.transfer(3100, 3100, 2200)
            )
            self.assertEqual(pair.peer.recv(1000), encode_report(3100))
            pair.feed(self.transfer(3100, self.theirs.end, 3100))
        self.assertEqual(content(log), content(self.theirs))
        self.assertEqual([each.confirm for each in self.heard.transfers], [0, 700, 700, 2200, 3100])
        self.assertEqual(pair.peer.recv(1000), encode_report(self.theirs.end))

    def test_gap(self) -> None:
        """What does not continue the log ends the connection before its label is believed."""
        self.theirs = self.filled(700, 1500)
        log = self.log()
        self.follow(log).feed(self.transfer(700, 2200, 2200, offset=701))
        self.assertEqual(([each.confirm for each in self.heard.transfers], log.end), ([0], 700))
        self.assertTrue(self.slave.finished)
