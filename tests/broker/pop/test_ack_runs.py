"""Acks that are read as a run become what they become one by one: the same bytes into both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import skipUnless

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from rmqha.errors import NotWritable
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import ONEWAY
from rmqha.wire.remoting.frame import encode
from tests.broker.pop.support import PopTestCase, handles
from tests.support.effort import tries

FIELDS: tuple[Mapping[str, object], ...] = (
    {"consumerGroup": "H"},
    {"topic": "X"},
    {"topic": "%RETRY%G_T"},
    {"queueId": 7},
    {"queueId": -1},
    {"queueId": "0x"},
    {"offset": -1},
    {"offset": 6},
    {"offset": 7},
    {"offset": 1 << 40},
    {"offset": "1e3"},
    {"extraInfo": ""},
    {"extraInfo": "0 1 2 3 0"},
    {"extraInfo": "0 1 2 3 0 broker-a"},
    {"extraInfo": "a 1 2 3 0 broker-a 0 0"},
    {"extraInfo": "0 1 2 9 0 broker-a 0 0"},
    {"extraInfo": "0 1 2 999 0 broker-a 0 0"},
    {"extraInfo": f"{'9' * 5000} 1 2 3 0 broker-a 0 0"},
    {"extraInfo": None},
    {"topic": None},
    {"consumerGroup": None},
    {"bname": "broker-a"},
    {"lo": "x"},
    {"consumerGroup": "ä"},
)
"""What a usual ack has instead; a field that is C{None} it lacks."""

GOOD = st.tuples(st.integers(0, 8), st.just(0), st.just(0))
ODD = st.tuples(st.integers(0, 8), st.integers(0, len(FIELDS)), st.integers(0, 7))
STEPS = st.lists(
    st.tuples(
        st.lists(st.one_of(GOOD, GOOD, GOOD, ODD), min_size=1, max_size=12), st.integers(0, 7)
    ),
    min_size=1,
    max_size=6,
)

OUTCOMES = (
    PutStatus.PUT_OK,
    PutStatus.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SERVICE_NOT_AVAILABLE,
    NotWritable("test", "no room"),
)


def written(fields: dict[str, Any], number: int, odd: int) -> bytes:
    """The frame of an ack, or of something like it."""
    told = {name: value for name, value in fields.items() if value is not None}
    command = PopTestCase.acking(told, number)
    if odd == 1:
        command.flag = ONEWAY
    elif odd == 2:
        command.body = b"{}"
    elif odd == 3:
        command.code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        command.ext["invisibleTime"] = "20000"
    elif odd == 4:
        command.version = 9999
    elif odd == 5:
        command.code = RequestCode.GET_MAX_OFFSET
    frame = encode(command)
    if odd == 6:
        frame = frame.replace(b'"T"', b'"\\u0054"')
        frame = (
            (len(frame) - 4).to_bytes(4, "big") + (len(frame) - 8).to_bytes(4, "big") + frame[8:]
        )
    elif odd == 7:
        frame = frame.replace(b"9 ", b"8 ")
    return frame


@skipUnless(COMPILED, "the lane is not compiled here")
class BothWaysTests(PopTestCase):
    """Two brokers: one reads runs, one does not."""

    taken = 0

    def counted(self, connection: RemotingProtocol, acked: list[Any]) -> int:
        """Take acks of a run, and count them."""
        count = self.serving.pop.acks.take(connection, acked)
        self.taken += count
        return count

    def outcome(self, steps: list[Any], *, lane: bool, outcome: Any) -> tuple[list[bytes], bytes]:
        """What is answered, in some order, and the log."""
        self.clock, self.number = Clock(), 0
        self.root = self.folder() / "store"
        self.serve()
        if lane:
            assert self.serving.lane is not None, "a lane"
            self.serving.lane.acked = self.counted
        else:
            self.serving.registry.lanes.clear()
        self.put(*(b"%d" % number for number in range(6)))
        self.put(*(b"%d" % number for number in range(3)), queue_id=1)
        named = [*handles(self.pop(maxMsgNums=4)), *handles(self.pop())]
        named += handles(self.pop(queueId=1))
        answers: list[bytes] = []
        number = 0
        for requests, gap in steps:
            data = b""
            for which, change, odd in requests:
                number += 1
                fields = named[which] | (FIELDS[change - 1] if change else {})
                data += written(fields, number, odd)
            if gap == 7:
                self.writer.outcome = outcome
            with self.serving.registry.together():
                self.who.connection.dataReceived(data)
            self.passes(gap / 1000)
            answers += map(encode, self.who.heard())
        self.passes(0.1)
        answers += map(encode, self.who.heard())
        self.assertEqual(self.who.connection.in_runs, 0)
        log = self.serving.store.log
        self.stop()
        return sorted(answers), bytes(log.read(0, log.end))

    def same(self, steps: list[Any], *, outcome: Any = PutStatus.PUT_OK) -> list[bytes]:
        """Both say and store the same."""
        answers, log = self.outcome(steps, lane=True, outcome=outcome)
        plainly, plain = self.outcome(steps, lane=False, outcome=outcome)
        self.assertEqual(answers, plainly)
        self.assertEqual(log, plain)
        return answers

    @settings(max_examples=tries(60))
    @given(steps=STEPS, outcome=st.sampled_from(OUTCOMES))
    def test_acks(self, steps: list[Any], outcome: Any) -> None:
        """Usual ones, unusual ones, and what stands between them."""
        self.same(steps, outcome=outcome)

    def test_done_already(self) -> None:
        """One that is done with does not bring its check point's acks before others."""
        self.same([([(1, 0, 0)], 0), ([(1, 0, 0), (4, 0, 0), (0, 0, 0)], 0)])

    def test_each_oddity(self) -> None:
        """Each of them between usual ones."""
        for change in range(len(FIELDS) + 1):
            self.same([([(0, 0, 0), (1, change, 0), (2, 0, 0)], 6)])
        for odd in range(8):
            self.same([([(0, 0, 0), (0, 0, 0), (1, 0, odd), (2, 0, 0)], 6)])
        self.assertGreater(self.taken, len(FIELDS) + 2 * 8)
