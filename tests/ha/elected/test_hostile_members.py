"""Peers of an elected master that are no members: the set and its writes know nothing."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from rmqha.ha.master.connection import MasterProtocol
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.ha_frame import encode_report as classic_report
from rmqha.wire.ha_v2 import EpochLabel, Report, SlaveHandshake, encode_handshake, encode_report
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, THIRD, SetCase, Told
from tests.support.effort import tries
from tests.wire.test_ha_frame import pieces

END = 25_000
"""Where the log ends that all had before."""

LAST = END + 300
"""Just past the write that waits."""

GARBAGE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a request": bytes.fromhex("000000650000005f") + b'{"code":105,"language":"JAVA"}',
    "a classic slave": classic_report(0),
    "a classic slave of this log": classic_report(END) * 3,
    "a classic observer": classic_report(-1) + classic_report(0),
    "ones": b"\xff" * 64,
    "zeros": bytes(64),
    "a state of nobody's": struct.pack(">ihhq", 3, 0, 0, THIRD),
    "a handshake, little-endian": struct.pack("<ihhq", 1, 0, 0, THIRD),
}
"""What comes from those that have mistaken the port."""

Word = SlaveHandshake | Report

HANDSHAKES = st.builds(
    SlaveHandshake,
    id=st.sampled_from([THIRD, THIRD, THIRD, OWN, SLAVE, -1, 0, 9, (1 << 63) - 1]),
    learner=st.sampled_from([False, False, True]),
    from_last_file=st.sampled_from([False, False, False, True]),
)
REPORTS = st.builds(
    Report,
    st.one_of(
        st.integers(0, LAST),
        st.sampled_from([0, END, LAST, LAST + 1, -1, -(1 << 62), (1 << 63) - 1]),
    ),
)
WORDS = st.lists(st.one_of(HANDSHAKES, REPORTS, REPORTS), max_size=8)


def encoded(word: Word) -> bytes:
    """As it is on the wire."""
    return encode_report(word.offset) if isinstance(word, Report) else encode_handshake(word)


def honest(words: list[Word]) -> bool:
    """Whether the third member may have said so: who it is, then what it holds, which grows."""
    offsets = [word.offset for word in words if isinstance(word, Report)]
    shakes = len(words) - len(offsets)
    return (
        words[:1] == [SlaveHandshake(id=THIRD)]
        and all(isinstance(word, SlaveHandshake) for word in words[:shakes])
        and offsets == sorted(offsets)
        and all(0 <= offset <= LAST for offset in offsets)
    )


class HostileMemberTests(SetCase):
    """A set of two, whose master has a waiting write, and a third member's host."""

    def begin(self) -> None:
        self.build()
        self.has(THIRD, LAST, EpochLabel(1, 0), EpochLabel(EPOCH, END))
        self.good, _ = self.caught_up(SLAVE)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        self.coordinator.asked.clear()
        self.waiting: Deferred[PutStatus] = self.put(LAST - END)

    def stranger(self) -> tuple[MasterProtocol, Any]:
        return self.connect(THIRD)

    def say(self, protocol: MasterProtocol, transport: Any, data: bytes) -> None:
        """Its bytes arrive, unless it was closed."""
        if data and not transport.disconnecting:
            protocol.dataReceived(data)

    def assertNothingCounted(self) -> None:
        """Nobody counts but who was there before, nor ever did, and the write waits for it."""
        self.assertEqual(self.coordinator.asked, [])
        self.assertDoesNotCount()

    def assertDoesNotCount(self) -> None:
        self.assertEqual(set(self.in_sync.claims), {SLAVE})
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        self.assertNoResult(self.waiting)
        self.assertEqual(self.master.confirm, END)

    def assertWorks(self) -> None:
        """The member that was there does not notice."""
        self.ack(self.good)
        self.assertIs(self.successResultOf(self.waiting), PutStatus.PUT_OK)

    def test_garbage(self) -> None:
        """Each is closed by its reason and told nothing, also if it comes byte by byte."""
        for name, data in GARBAGE.items():
            for cuts in ([], list(range(len(data)))):
                with self.subTest(name=name, pieces=len(cuts)):
                    self.begin()
                    protocol, transport = self.stranger()
                    for piece in pieces(data, cuts):
                        self.say(protocol, transport, piece)
                    tls = name == "TLS"
                    self.assertClosed(transport, "tls-disabled" if tls else "other-protocol")
                    self.assertEqual(transport.value(), b"")
                    self.assertNothingCounted()
                    self.assertWorks()

    def test_garbage_for_a_report(self) -> None:
        """So is one that shakes hands first."""
        for name, data in GARBAGE.items():
            if data.startswith(b"\0\0\0\1"):
                continue
            with self.subTest(name=name):
                self.begin()
                protocol, transport = self.greeted(THIRD)
                self.say(protocol, transport, data)
                self.assertClosed(transport, "other-protocol")
                self.assertEqual(Told(transport.value()).headers, [])
                self.assertNothingCounted()
                self.assertWorks()

    @settings(max_examples=tries(200))
    @given(st.binary(max_size=100), st.lists(st.integers(0, 100), max_size=10))
    def test_any_bytes(self, data: bytes, cuts: list[int]) -> None:
        """Whatever bytes come, in any pieces: nothing counts, and soon they are gone, with why."""
        self.begin()
        protocol, transport = self.stranger()
        for piece in pieces(data, cuts):
            self.say(protocol, transport, piece)
        self.assertNothingCounted()
        self.ack(self.good)
        for _ in range(21):
            self.clock.advance(1.0)
            self.ack(self.good)
        self.assertTrue(transport.disconnecting)
        self.assertEqual(sum(self.factory.closed.values()), 1)

    @settings(max_examples=tries(300))
    @given(WORDS, st.booleans())
    def test_any_words(self, words: list[Word], apart: bool) -> None:
        """Messages that are well made, in any order: only what a member may say counts, and no more
        than it said; any other order of them ends the connection, or counts for nothing.
        """
        self.begin()
        protocol, transport = self.stranger()
        said = [encoded(word) for word in words]
        # What comes together with the handshake is no answer to our answer.
        for data in said if apart else [*said[:1], b"".join(said[1:])]:
            self.say(protocol, transport, data)
        offsets = [word.offset for word in words if isinstance(word, Report)]
        if honest(words):
            self.assertFalse(transport.disconnecting)
            if offsets:
                self.assertEqual(self.in_sync.claims[THIRD].acked, offsets[-1])
        else:
            self.assertDoesNotCount()
            fed = Told(transport.value()).answers
            self.assertTrue(transport.disconnecting or not words or fed)
        self.assertEqual(sum(self.factory.closed.values()), int(transport.disconnecting))

    def test_above_what_was_sent(self) -> None:
        """A member that counts and then reports more than it was sent does not count any more."""
        self.begin()
        protocol, transport = self.caught_up(THIRD)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE, THIRD})
        self.ack(protocol, self.log.end + 1)
        self.assertClosed(transport, "above-max")
        self.assertEqual(set(self.in_sync.claims), {SLAVE})
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        self.assertWorks()

    def test_in_the_name_of_another(self) -> None:
        """From another host nobody takes a member's place, whatever it acknowledges, nor ours."""
        for number, reason in ((SLAVE, "not-its-address"), (OWN, "own-id")):
            self.begin()
            protocol, transport = self.greeted(number, host="10.0.0.3")
            self.say(protocol, transport, encode_report(self.log.end))
            self.assertClosed(transport, reason)
            self.assertNothingCounted()
            self.assertWorks()
