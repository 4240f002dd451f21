"""What a member makes of a master that says what no master says: the connection ends with a reason,
the log and what is known of it stay, and the next master is followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqha.controller.member_state import MemberState
from rmqha.wire import ha_v2
from rmqha.wire.ha_frame import encode_report as classic_report
from rmqha.wire.ha_v2 import EpochLabel, TransferHeader
from tests.roles.test_learner import SetMaster
from tests.roles.test_member_changes import FIRST_LABEL, MemberChangeCase
from tests.support.logs import content

HUGE = 1 << 62

ANSWER = ha_v2.encode_answer(0, [FIRST_LABEL])


def transfer(offset: int, size: int, label: int, start: int, body: bytes = b"") -> bytes:
    """A transfer, of whatever sizes; its confirm offset is above everything."""
    return ha_v2.encode_transfer_header(TransferHeader(size, offset, label, start, HUGE)) + body


NO_ANSWERS: dict[str, bytes] = {
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a classic master": classic_report(0) + bytes(4),
    "a transfer before the answer": transfer(0, 4, 1, 0, b"abcd"),
    "half a label": b"\0\0\0\1" + (13).to_bytes(4) + bytes(30),
    "more labels than there can be": b"\0\0\0\1" + b"\x7f\xff\xff\xff" + bytes(30),
    "fewer labels than none": b"\0\0\0\1" + b"\xff\xff\xff\xf4" + bytes(30),
    "labels that go back": ha_v2.encode_answer(0, [EpochLabel(3, 0), EpochLabel(2, 10)]),
    "starts that go back": ha_v2.encode_answer(0, [EpochLabel(1, 10), EpochLabel(2, 5)]),
    "a label twice": ha_v2.encode_answer(0, [FIRST_LABEL, FIRST_LABEL]),
    "a start below the first byte": ha_v2.encode_answer(0, [EpochLabel(1, -5)]),
}
"""What is no answer to a handshake."""

IN_STREAM: dict[str, Callable[[int], bytes]] = {
    "HTTP": lambda end: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "another answer": lambda end: ANSWER,
    "a size below nothing": lambda end: transfer(end, -1, 1, 0),
    "a size above the buffer": lambda end: transfer(end, ha_v2.MAX_BODY + 1, 1, 0),
    "bytes behind a gap": lambda end: transfer(end + 1, 9, 2, end, b"x" * 9),
    "bytes far away": lambda end: transfer(HUGE, 9, 9, HUGE, b"x" * 9),
    "bytes that were sent": lambda end: transfer(end - 9, 9, 2, end - 9, b"x" * 9),
    "a sign of life elsewhere": lambda end: transfer(HUGE, 0, 9, HUGE),
    "a label that goes back": lambda end: transfer(end, 0, 0, 0),
    "a start that goes back": lambda end: transfer(end, 0, 2, -1),
    "a label that moves": lambda end: transfer(end, 0, 1, 7),
    "a label behind its bytes": lambda end: transfer(end, 9, 2, end + 10, b"x" * 9),
}
"""What cannot follow in a stream, by where our log ends."""


class HostileSetMasterTests(MemberChangeCase):
    """A member that is in sync with a master played by hand."""

    def kept(self) -> tuple[Any, ...]:
        """What a master must not spoil."""
        node, root = self.node, self.root
        return (
            content(node.store.log),
            node.epochs.journal.text(),
            (root / "epochFileCheckpoint").read_bytes(),
            node.status()["dispatchedOffset"],
            node.store.readable,
            list((root / "rmqha").glob("quarantine/*")),
        )

    def again(self) -> SetMaster:
        """It connects once more, after the pause of the state it is in, and is in sync."""
        master = SetMaster(self.accept(within=60.0))
        master.answer(self.theirs, FIRST_LABEL)
        (asked,) = master.reports()
        master.feed(self.theirs, asked, self.theirs.end)
        self.turn()
        self.assertEqual(self.upstream["state"], "in-sync")
        return master

    def refused(self, master: SetMaster, before: tuple[Any, ...], name: str) -> None:
        """The connection ended, it is said why, and nothing came of it."""
        self.assertFalse(master.connection.open, name)
        self.turn()
        self.assertNotEqual(self.upstream["state"], "in-sync", name)
        self.assertTrue(self.upstream["reason"], name)
        self.assertEqual(self.kept(), before, name)
        self.assert_state(MemberState.FOLLOWING)

    def test_no_answer(self) -> None:
        """What is no answer to our handshake ends the connection unreported, in any pieces."""
        good = self.follow()
        before = self.kept()
        for name, said in NO_ANSWERS.items():
            for size in (len(said), 1):
                good.connection.close()
                self.pass_time(2.0)
                master = SetMaster(self.accept(within=5.0))
                for at in range(0, len(said), size):
                    master.connection.send(said[at : at + size])
                self.assertEqual(master.reports(), [], name)
                self.refused(master, before, name)
                good = self.again()

    def test_in_the_stream(self) -> None:
        """So does what cannot follow: no byte is kept, no label filed; readers see no more."""
        good = self.follow()
        before = self.kept()
        for name, made in IN_STREAM.items():
            said = made(self.node.store.log.end)
            for size in (len(said), 1):
                for at in range(0, len(said), size):
                    good.connection.send(said[at : at + size])
                self.assertLessEqual(max(good.reports(), default=0), self.theirs.end, name)
                self.refused(good, before, name)
                good = self.again()
        self.assertGreaterEqual(self.upstream["reconnects"], 2 * len(IN_STREAM))
