"""What a member says to an elected master, and what it is told."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail

from rmqha.config.controller_settings import ControllerSettings
from rmqha.errors import NoController
from rmqha.wire.ha_frame import encode_report as classic_report
from rmqha.wire.ha_v2 import (
    LEARNER_ID,
    EpochLabel,
    HandshakeAnswer,
    SlaveHandshake,
    TransferHeader,
    encode_handshake,
    encode_report,
)
from tests.ha.elected.cases import EPOCH, FILE, OWN, SLAVE, THIRD, SetCase, Told
from tests.support.controller_captures import HA, chunks
from tests.support.effort import tries
from tests.wire.test_ha_frame import pieces

HELLO = encode_handshake(SlaveHandshake(id=SLAVE))


class HandshakeTests(SetCase):
    def test_answer(self) -> None:
        """It is told where our log ends, and its labels."""
        _, transport = self.greeted()
        self.assertEqual(
            Told(transport.value()).answers, [HandshakeAnswer(25_000, self.labels, EPOCH)]
        )

    def test_half(self) -> None:
        """Half a handshake waits: nothing is taken for the bytes that have not come."""
        protocol, transport = self.connect()
        for place in range(len(HELLO)):
            self.assertEqual(transport.value(), b"")
            protocol.dataReceived(HELLO[place : place + 1])
        self.assertEqual(len(Told(transport.value()).answers), 1)
        self.assertEqual(self.master.status()["members"][0]["id"], SLAVE)

    def test_silence(self) -> None:
        """Who says half of it, or does not go on after the answer, is closed after a while."""
        for sent in (HELLO[:15], HELLO):
            self.build()
            protocol, transport = self.connect()
            protocol.dataReceived(sent)
            self.pass_time(21, 1.0)
            self.assertClosed(transport, "no-report")

    def test_doubled(self) -> None:
        """The first handshake is answered, a second before the first report passed over."""
        protocol, transport = self.greeted()
        protocol.dataReceived(HELLO)
        protocol.dataReceived(HELLO + encode_report(0))
        told = Told(transport.value())
        self.assertEqual(len(told.answers), 1)
        self.assertEqual(told.body, self.log.content(0, 25_000))

    def test_late(self) -> None:
        """One after the first report ends the connection, also in one piece with it."""
        for said in ((encode_report(0), HELLO), (encode_report(0) + HELLO,)):
            self.build()
            protocol, transport = self.greeted()
            for each in said:
                protocol.dataReceived(each)
            self.assertClosed(transport, "late-handshake")

    def test_report_without_handshake(self) -> None:
        """A report of nobody is not taken."""
        protocol, transport = self.connect()
        protocol.dataReceived(encode_report(0))
        self.assertClosed(transport, "no-handshake")
        self.assertEqual(transport.value(), b"")

    def test_report_before_the_answer(self) -> None:
        """A report that was sent before our answer is none to it."""
        protocol, transport = self.connect()
        protocol.dataReceived(HELLO + encode_report(0))
        self.assertClosed(transport, "early-report")
        self.assertEqual(self.in_sync.claims, {})

    def test_other_protocols(self) -> None:
        """A classic slave, an HTTP client and other states are closed, and told nothing."""
        for said in (
            classic_report(0),
            classic_report(25_000),
            b"GET / HTTP/1.1\r\n",
            b"\0\0\0\4" + HELLO[4:],
        ):
            self.build()
            protocol, transport = self.connect()
            protocol.dataReceived(said)
            self.assertClosed(transport, "other-protocol")
            self.assertEqual(transport.value(), b"")

    def test_own_id(self) -> None:
        """Nobody else has our id."""
        _, transport = self.greeted(OWN, host="10.0.0.2")
        self.assertClosed(transport, "own-id")

    def test_unknown(self) -> None:
        """An unlisted id is not fed; controllers are asked about it once a second at most."""
        del self.known[SLAVE]
        _, transport = self.greeted()
        self.assertClosed(transport, "unknown-member")
        self.assertEqual(transport.value(), b"")
        self.greeted()
        self.assertEqual(self.lookups, 1)
        self.known[SLAVE] = "10.0.0.2:10911"
        self.pass_time(1.5)
        _, transport = self.greeted()
        self.assertEqual((len(Told(transport.value()).answers), self.lookups), (1, 2))

    def test_asked_meanwhile(self) -> None:
        """While the controllers are asked nothing is said, and whoever leaves is forgotten."""
        asked: Deferred[Any] = Deferred()
        self.master.proofs.roster.ask = lambda: asked
        gone, _ = self.greeted()
        waiting, transport = self.greeted(THIRD)
        self.assertEqual(transport.value(), b"")
        self.lose(gone)
        asked.callback(self.known)
        self.assertEqual(len(Told(transport.value()).answers), 1)
        self.ack(waiting, 0)
        self.assertEqual(set(self.in_sync.claims), {THIRD})

    def test_nobody_tells(self) -> None:
        """With no controller to ask, known members are fed, and others are told why not."""
        self.greeted()
        self.master.proofs.roster.ask = lambda: fail(NoController(("c:1",), "connection refused"))
        self.pass_time(1.5)
        self.greeted(SLAVE)
        _, transport = self.greeted(9, host="10.0.0.9")
        self.assertTrue(transport.disconnecting)
        self.assertEqual(self.factory.closed["no-controller"], 1)
        self.assertEqual(self.factory.closed["replaced"], 1)

    def test_other_host(self) -> None:
        """A member comes from where it is registered, unless C{haAllowedPeers} says who comes."""
        _, transport = self.greeted(SLAVE, host="10.0.0.66")
        self.assertClosed(transport, "not-its-address")
        self.build(allowed_peers=(ip_network("10.0.0.0/24"),))
        _, transport = self.greeted(SLAVE, host="10.0.0.66")
        self.assertFalse(transport.disconnecting)

    def test_moved(self) -> None:
        """A member that has registered anew somewhere else is found there."""
        self.greeted()
        self.known[SLAVE] = "10.0.0.66:10911"
        self.pass_time(1.5)
        _, transport = self.greeted(SLAVE, host="10.0.0.66")
        self.assertTrue(transport.disconnecting, "its old connection is open")
        self.assertEqual(self.factory.closed["other-address"], 1)

    def test_again(self) -> None:
        """A member that comes again from its address has one connection, the new one."""
        old, old_transport = self.caught_up()
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        new, transport = self.greeted()
        self.assertClosed(old_transport, "replaced")
        self.assertFalse(transport.disconnecting)
        self.assertEqual(self.in_sync.claims, {})
        self.lose(old)
        self.ack(new, 0)
        self.assertEqual(set(self.in_sync.claims), {SLAVE})

    def test_last_file(self) -> None:
        """A slave that wants the last file only is refused; where allowed, it never counts."""
        _, transport = self.greeted(from_last_file=True)
        self.assertClosed(transport, "last-file")
        self.build(rules=ControllerSettings(allow_last_file=True))
        protocol, transport = self.fed(from_last_file=True)
        self.ack(protocol)
        self.assertEqual(Told(transport.value()).body, self.log.content(2 * FILE, 25_000))
        self.assertEqual((self.in_sync.state.in_sync, self.in_sync.claims), ({OWN}, {}))

    def test_learner(self) -> None:
        """A learner needs no id and is fed from members' hosts, and never counts."""
        protocol, transport = self.fed(LEARNER_ID, host="10.0.0.2", learner=True)
        self.ack(protocol)
        self.assertEqual(Told(transport.value()).body, self.log.content(0, 25_000))
        self.assertEqual((self.coordinator.asked, self.in_sync.claims), ([], {}))
        (row,) = self.master.status()["members"]
        self.assertEqual((row["learner"], row["counts"], row["acked"]), (True, False, 25_000))
        _, other = self.fed(LEARNER_ID, host="10.0.0.2", learner=True)
        self.assertFalse(transport.disconnecting or other.disconnecting)
        _, stranger = self.greeted(LEARNER_ID, host="10.0.0.99", learner=True)
        self.assertClosed(stranger, "not-its-address")


class ReportTests(SetCase):
    def test_wrong(self) -> None:
        """Each ends the connection by its reason, and nothing counts."""
        for first, then, reason in (
            (-1, None, "negative"),
            (25_001, None, "ahead"),
            (0, 25_001, "above-max"),
            (0, -5, "negative"),
        ):
            self.build()
            protocol, transport = self.fed(report=first)
            if then is not None:
                self.ack(protocol, then)
            self.assertClosed(transport, reason)
            self.assertEqual(self.in_sync.claims, {})

    def test_decreasing(self) -> None:
        """What was acknowledged stays so."""
        protocol, transport = self.caught_up()
        self.ack(protocol, 100)
        self.assertClosed(transport, "decreasing")

    def test_below_the_first_byte(self) -> None:
        """What was deleted is not sent."""
        self.build(end=45_000, min_offset=20_000)
        _, transport = self.fed(report=19_999)
        self.assertClosed(transport, "below-min")

    def test_garbage_behind(self) -> None:
        """Other states after a first report end the connection too."""
        protocol, transport = self.caught_up()
        protocol.dataReceived(bytes(12))
        self.assertClosed(transport, "other-protocol")
        self.assertEqual(self.in_sync.claims, {})

    @given(st.lists(st.integers(0, 60), max_size=20), st.lists(st.integers(0, 400), max_size=6))
    def test_any_chunking(self, cuts: list[int], steps: list[int]) -> None:
        """It says the same however its bytes are cut, if the answer came before the report."""
        self.build(end=2000)
        reports = [0]
        for step in steps:
            reports.append(min(2000, reports[-1] + step))
        protocol, transport = self.greeted()
        for piece in pieces(b"".join(map(encode_report, reports)), cuts):
            protocol.dataReceived(piece)
        self.assertFalse(transport.disconnecting)
        self.assertEqual(self.in_sync.claims[SLAVE].acked, reports[-1])
        self.assertEqual(Told(transport.value()).body, self.log.content(0, 2000))


class FrameTests(SetCase):
    def test_files_and_labels(self) -> None:
        """A transfer spans neither two files nor two labels, and has the label it lies under."""
        labels = (
            EpochLabel(1, 0),
            EpochLabel(3, 4000),
            EpochLabel(4, 12_345),
            EpochLabel(7, 25_000),
        )
        self.build(labels=labels)
        _, transport = self.fed()
        told = Told(transport.value())
        self.assertEqual(told.body, self.log.content(0, 25_000))
        self.assertEqual(
            [(each.offset, each.size, each.label, each.start) for each in told.transfers],
            [
                (0, 4000, 1, 0),
                (4000, 6000, 3, 4000),
                (10_000, 2345, 3, 4000),
                (12_345, 7655, 4, 12_345),
                (20_000, 5000, 4, 12_345),
            ],
        )

    def test_label_comes_with_its_first_byte(self) -> None:
        """A label with no byte yet is told by no frame: a stock slave would lose it."""
        protocol, transport = self.fed()
        self.pass_time(11, 1.0)
        self.ack(protocol)
        self.pass_time(11, 1.0)
        told = Told(transport.value())
        self.assertEqual({each.label for each in told.headers}, {1})
        self.assertGreater(len(told.heartbeats), 2)
        transport.clear()
        self.put(300)
        self.pass_time(11, 1.0)
        told = Told(transport.value())
        (sent,) = told.transfers
        self.assertEqual((sent.offset, sent.label, sent.start), (25_000, EPOCH, 25_000))
        self.assertEqual({each.label for each in told.headers}, {EPOCH})

    def test_empty_log(self) -> None:
        """The only label of an empty log is told with its first byte, as a stock slave that
        connects again before that would lose it for good; the offset says that there is no file.
        """
        self.build(end=0)
        _, transport = self.fed()
        self.assertEqual(Told(transport.value()).headers, [TransferHeader(0, -1, -1, 0, 0)])
        self.put(100)
        sent = Told(transport.value()).transfers
        self.assertEqual([(each.offset, each.label) for each in sent], [(0, EPOCH)])

    def test_unlabelled_bytes(self) -> None:
        """Bytes from before the set are told with no label, not one that starts behind them."""
        self.build(labels=(EpochLabel(EPOCH, 25_000),))
        _, transport = self.fed()
        self.put(100)
        told = Told(transport.value())
        self.assertTrue(all(each.start <= each.offset for each in told.headers))
        self.assertEqual([each.label for each in told.transfers], [-1, -1, -1, EPOCH])

    def test_heartbeat_at_last(self) -> None:
        """One comes when nothing was sent for C{haSendHeartbeatInterval}."""
        _, transport = self.caught_up()
        self.pass_time(1.0)
        transport.clear()
        self.pass_time(6.0)
        (beat,) = Told(transport.value()).headers
        self.assertEqual((beat.size, beat.offset, beat.confirm), (0, 25_000, 25_000))

    def test_confirm_is_told(self) -> None:
        """When confirm has moved and nothing was sent since, that is told after 100 ms."""
        protocol, transport = self.caught_up()
        self.pass_time(1.0)
        self.put(300)
        transport.clear()
        self.ack(protocol)
        self.assertEqual(self.master.confirm, 25_300)
        self.clock.advance(0.09)
        self.assertEqual(transport.value(), b"")
        self.clock.advance(0.02)
        (beat,) = Told(transport.value()).headers
        self.assertEqual((beat.size, beat.offset, beat.confirm), (0, 25_300, 25_300))
        self.pass_time(1.0)
        self.assertEqual(len(Told(transport.value()).headers), 1)

    def test_confirm_rides_on_frames(self) -> None:
        """While the log grows, frames tell it and no heartbeat does."""
        protocol, transport = self.caught_up()
        self.pass_time(1.0)
        transport.clear()
        for _ in range(20):
            self.put(300)
            self.ack(protocol)
            self.clock.advance(0.05)
        told = Told(transport.value())
        self.assertEqual(told.heartbeats, [])
        confirms = sorted({each.confirm for each in told.transfers})
        self.assertEqual(confirms, [25_000 + 300 * number for number in range(20)])

    def test_batch(self) -> None:
        """A frame with its header fits a stock slave's buffer, for any C{haTransferBatchSize}."""
        self.build(batch=(4 << 20) - 12)
        self.assertEqual(self.factory.batch, (4 << 20) - 36)

    @given(
        st.lists(st.integers(0, 25_000), min_size=1, max_size=6, unique=True).map(sorted),
        st.integers(0, 25_000),
        st.integers(1, 5000),
    )
    def test_any_labels(self, starts: list[int], report: int, batch: int) -> None:
        """Whatever the labels: all bytes come, each under its own, in order, none too early."""
        self.build(
            labels=tuple(EpochLabel(number + 1, start) for number, start in enumerate(starts)),
            batch=batch,
            accept_unproven=True,
        )
        _, transport = self.fed(report=report)
        told = Told(transport.value())
        self.assertEqual(told.body, self.log.content(report, 25_000))
        newest = -1
        for each in told.headers:
            self.assertGreaterEqual(each.label, newest)
            newest = each.label
            last = each.offset + max(each.size, 0) - 1
            if each.size:
                for offset in (each.offset, last):
                    under = [label for label in self.labels if label.start <= offset]
                    self.assertEqual(each.label, under[-1].label if under else -1)
            self.assertLessEqual(each.start, max(last, 0))


class CaptureTests(SetCase):
    def test_first_writes(self) -> None:
        """A set that begins empty: answer, heartbeat and transfers are a stock master's, byte for
        byte, for what a stock slave said, but that the heartbeat tells no label.
        """
        theirs, said = (chunks("ha-run1-0-to35101", who) for who in ("master", "slave"))
        recorded = Told(b"".join(theirs))
        self.build(end=0, labels=(EpochLabel(1, 0),), ids=(OWN, SLAVE))
        protocol, transport = self.connect()
        stream = b"".join(said)
        protocol.dataReceived(stream[:16])
        protocol.dataReceived(stream[16:28])
        expected = b"".join(theirs)
        self.assertEqual(transport.value()[:32], expected[:32])
        (heartbeat,) = Told(transport.value()).heartbeats
        self.assertEqual(heartbeat, evolve(recorded.heartbeats[0], label=-1))
        at = 28
        for each in recorded.transfers[:2]:
            self.log.put(bytes(recorded.body[each.offset : each.offset + each.size]))
            protocol.dataReceived(stream[at : at + 12])
            at += 12
        ours = Told(transport.value())
        self.assertEqual(ours.transfers, recorded.transfers[:2])
        self.assertEqual(bytes(ours.body), bytes(recorded.body[: ours.transfers[-1].offset + 307]))
        self.assertEqual(transport.value()[68 : 68 + 343], expected[68 : 68 + 343])

    def test_return(self) -> None:
        """A stock set's old master behind a new one gets the same answers, bytes and labels."""
        recorded = Told(b"".join(chunks("ha-run1-1-to35201", "master")))
        (answer,) = recorded.answers
        said = b"".join(chunks("ha-run1-1-to35201", "slave"))
        self.build(end=answer.end, labels=answer.labels)
        self.has(SLAVE, 66_215, EpochLabel(1, 0))
        self.known[SLAVE] = "10.0.0.2:10911"
        protocol, transport = self.connect()
        protocol.dataReceived(encode_handshake(SlaveHandshake(id=SLAVE)))
        protocol.dataReceived(said[16:28])
        ours = Told(transport.value())
        self.assertEqual(ours.answers, [answer])
        self.assertEqual(ours.transfers[0].offset, recorded.transfers[0].offset)
        below = [each for each in recorded.transfers if each.offset < answer.end]
        self.assertEqual({each.label for each in ours.transfers}, {each.label for each in below})
        self.assertEqual({each.start for each in ours.transfers}, {each.start for each in below})
        self.assertTrue(self.master.status()["members"][0]["counts"])

    def test_all_slaves(self) -> None:
        """Whatever a recorded slave said, nothing breaks and only a proven report counts."""
        for name in HA[: tries(len(HA))]:
            self.build(end=0)
            protocol, transport = self.connect()
            for chunk in chunks(name, "slave"):
                if not transport.disconnecting:
                    protocol.dataReceived(chunk)
            for claim in self.in_sync.claims.values():
                self.assertEqual(claim.acked, 0)
