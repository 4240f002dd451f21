"""The short way of a message gives what the usual way gives, whatever comes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import skipUnless

import orjson
from attrs import evolve
from attrs import fields as fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from rmqha.broker.broker import Broker
from rmqha.errors import DiskFull
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connection import SLICE
from rmqha.store.files.allocate import Allocator
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.fields import wire_name
from rmqha.wire.remoting.frame import encode
from rmqha.wire.remoting.headers.send import SendMessageRequest, SendMessageV2Request
from tests.broker.sending.test_captured_sends import sends
from tests.broker.support import BrokerTestCase, Client, batch, long_names, properties, sending
from tests.support.effort import tries
from tests.support.frames import RECORDINGS

TOPICS = ("Orders", "Payments", "x", "%RETRY%group", "DoesNotExistYet")

PAIRS = st.lists(
    st.tuples(
        st.sampled_from(
            ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "CLUSTER", "DELAY", "TRAN_MSG", "T", "", "na\nme")
        )
        | st.text('abcXYZ é"\\/\n', max_size=4),
        st.sampled_from(("true", "false", "3", "", "v\x01w", "a b", 'quo"te', "é", "\\")),
    ),
    max_size=5,
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs))

USUAL = st.just(properties(UNIQ_KEY="7F0001", WAIT="true", TAGS="TagA")) | st.just(
    properties(KEYS="order 17", UNIQ_KEY="7F0001", WAIT="true")
)

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "e": st.sampled_from(("0", "3", "4", "99", "007", "+1", "1.5", "", "99999999999")),
        "f": st.sampled_from(("0", "1", "-1", "255", "2147483648")),
        "g": st.sampled_from(("0", "-5", "1795191257642", "9223372036854775807", "true")),
        "h": st.sampled_from(("0", "7", "-2147483648")),
        "j": st.sampled_from(("0", "2", "x")),
        "k": st.sampled_from(("true", "false", "TRUE", "0")),
        "l": st.sampled_from(("16", "")),
        "m": st.sampled_from(("true", "false", "False")),
        "n": st.sampled_from(("broker-a", "é")),
        "z": st.just("1"),
        "zone": st.just("1"),
    },
)

LONG = {
    wire_name(short): wire_name(long)
    for short, long in zip(
        fields_of(SendMessageV2Request), fields_of(SendMessageRequest), strict=True
    )
}

COMMANDS = st.builds(
    lambda topic, usual, fields, missing, long, **more: Command(
        ext={
            LONG[name] if long and name in LONG else name: value
            for name, value in {**sending(topic, properties=usual), **fields}.items()
            if name not in missing
        },
        **more,
    ),
    long=st.integers(0, 3).map(lambda number: number == 3),
    topic=st.sampled_from(TOPICS),
    usual=USUAL | USUAL | PAIRS,
    fields=st.just({}) | st.just({}) | FIELDS,
    missing=st.just(()) | st.just(()) | st.sets(st.sampled_from("abcdefghi"), max_size=1),
    code=st.sampled_from((310, 310, 310, 310, 10, 10, 320, 999)),
    opaque=st.integers(0, 2**31 - 1) | st.just(-5),
    flag=st.sampled_from((0, 0, 0, 0, 2)),
    version=st.integers(0, 500),
    remark=st.none() | st.just("why"),
    body=st.binary(max_size=200) | st.just(bytes(3000)) | st.just(bytes(100_001)),
    serialize=st.sampled_from(SerializeType),
)


def written(command: Command, style: int) -> bytes:
    """A frame as one of several clients would write it."""
    if not style or command.serialize is not SerializeType.JSON:
        return encode(command)
    ext: dict[str, Any] = dict(command.ext)
    if style == 1:  # numbers and booleans without quotes, a new line behind
        for name, value in ext.items():
            if value.isdecimal() and str(int(value)) == value and len(value) < 16:
                ext[name] = int(value)
            elif value in ("true", "false"):
                ext[name] = value == "true"
    members = {
        "extFields": ext,
        "code": command.code,
        "opaque": command.opaque,
        "flag": command.flag,
        "version": command.version,
        "language": "CPP",
        "remark": command.remark,
        "serializeTypeCurrentRPC": "JSON",
    }
    header = orjson.dumps(members)
    if style == 1:
        header += b"\n"
    elif style == 3:
        header = header.replace(b'"code"', b'"code":310,"code"')
    elif style == 4:
        header = header.replace(b",", b" ,", 1)
    size = len(header)
    return (
        (size + len(command.body) + 4).to_bytes(4, "big")
        + size.to_bytes(4, "big")
        + (header + command.body)
    )


@skipUnless(COMPILED, "the write lane is not compiled here")
class LaneTestCase(BrokerTestCase):
    """Tests with two brokers: one has the lane, one has not."""

    def pair(self, **sizes: Any) -> tuple[tuple[Broker, Client], tuple[Broker, Client]]:
        """Both, with the same topics, and a client each."""
        made = []
        for lane in (True, False):
            self.root = self.folder() / "store"
            broker = self.broker(sizes=sizes)
            for topic in ("Orders", "Payments", "x"):
                broker.topics.ensure(topic, 4)
            if not lane:
                broker.registry.lane = None
                broker.store.compiled = False
            made.append((broker, self.client()))
        return made[0], made[1]

    def log(self, broker: Broker) -> bytes:
        """All that was written."""
        log, parts = broker.store.log, []
        at = log.min_offset
        while at < log.end:
            parts.append(bytes(log.read(at, log.end - at)))
            at += len(parts[-1])
        return b"".join(parts)

    def taken(self, broker: Broker) -> int:
        """How many messages went the short way."""
        assert broker.lane is not None, "a lane"
        return broker.lane.messages

    def same(self, one: tuple[Broker, Client], other: tuple[Broker, Client]) -> None:
        """Both have the same log, and said the same."""
        self.assertEqual(one[1].transport.value(), other[1].transport.value())
        self.assertEqual(self.log(one[0]), self.log(other[0]))
        self.assertEqual(
            one[1].connections.closed, other[1].connections.closed, "ended for the same reason"
        )


class BothWaysTests(LaneTestCase):
    """The same bytes into both."""

    def drive(self, data: bytes, cuts: list[int], **sizes: Any) -> int:
        """Compare both ways of a stream.

        @return: How many messages took the short one.
        """
        seed = random.getrandbits(32)
        both = self.pair(**sizes)
        for _, client in both:
            random.seed(seed)  # for messages that may go to any queue
            last = 0
            for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
                if client.connection.opened:
                    client.connection.dataReceived(data[last:cut])
                last = cut
                while client.connection._held:
                    self.clock.advance(0.01)
            if client.connection.opened:
                client.connection._outbox.flush()
        self.same(*both)
        return self.taken(both[0][0])

    @given(
        requests=st.lists(st.tuples(COMMANDS, st.integers(0, 4)), min_size=1, max_size=8),
        cuts=st.lists(st.integers(0, 1 << 20), max_size=3),
    )
    def test_requests(self, requests: list[tuple[Command, int]], cuts: list[int]) -> None:
        """Usual requests and unusual ones, however the stream is cut."""
        self.drive(b"".join(written(*request) for request in requests), cuts)

    @given(
        command=COMMANDS.filter(lambda command: len(command.body) <= 200),
        style=st.integers(0, 4),
        at=st.integers(0, 1 << 16),
        byte=st.integers(0, 255),
    )
    def test_damaged(self, command: Command, style: int, at: int, byte: int) -> None:
        """A byte of a header is another one, between two frames that are whole.  The first is so
        long that the usual way looks at it alone: frames before a broken one may be lost with it.
        """
        whole = encode(Command(code=310, opaque=1, ext=sending("Orders"), body=bytes(SLICE)))
        frame = bytearray(written(command, style))
        size = 8 + int.from_bytes(frame[5:8], "big")
        frame[at % size] = byte
        self.drive(whole + bytes(frame) + whole, [])

    def test_rolls(self) -> None:
        """Runs that go on in the next file of the log, and one that would fill it to the last
        byte.
        """
        frames = [
            encode(Command(code=310, opaque=n, ext=sending("Orders"), body=bytes(900 + n % 97)))
            for n in range(400)
        ]
        self.assertGreater(self.drive(b"".join(frames), [], file_size=128 << 10), 300)

    def test_long_names(self) -> None:
        """What older clients and Go's send: request 10, with names that are words."""
        frames = [
            encode(
                Command(
                    code=10,
                    opaque=n,
                    ext=long_names(sending("Orders")),
                    serialize=SerializeType(n // 10 % 2),
                )
            )
            for n in range(40)
        ]
        self.assertEqual(self.drive(b"".join(frames), []), 40)

    def test_many_queues(self) -> None:
        """Each queue counts by itself."""
        frames = [
            encode(
                Command(
                    code=310,
                    opaque=n,
                    ext=sending(("Orders", "Payments")[n % 2], queue_id=n % 4),
                    serialize=SerializeType(n % 2),
                )
            )
            for n in range(200)
        ]
        self.assertGreater(self.drive(b"".join(frames), []), 190)

    @settings(max_examples=tries(30))
    @given(
        items=st.lists(
            st.tuples(
                st.binary(max_size=2000),
                USUAL | st.sampled_from(("", "UNIQ_KEY\x01A", "A\x01b\x02")) | PAIRS,
            ),
            max_size=8,
        ),
        usual=USUAL | PAIRS,
        code=st.sampled_from((310, 320)),
        kind=st.sampled_from(SerializeType),
        damage=st.none() | st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)),
        cuts=st.lists(st.integers(0, 1 << 20), max_size=4),
    )
    def test_batches(
        self,
        items: list[tuple[bytes, str]],
        usual: str,
        code: int,
        kind: SerializeType,
        damage: tuple[int, int] | None,
        cuts: list[int],
    ) -> None:
        """Batches between single messages, however they are cut, and with a byte that is another
        one.
        """
        body = bytearray(batch(*items))
        if damage is not None and body:
            body[damage[0] % len(body)] = damage[1]
        ext = sending("Orders", batch=True, properties=usual)
        single = Command(code=310, opaque=1, ext=sending("Orders"), body=b"single")
        many = Command(code=code, opaque=2, ext=ext, body=bytes(body), serialize=kind)
        self.drive(b"".join(map(encode, (single, many, single))), cuts)

    def test_captures(self) -> None:
        """What real clients sent.  Most of it goes the short way."""
        short = count = 0
        for recording in RECORDINGS:
            requests = [request for request, _ in sends(recording)]
            if not requests:
                continue
            both = self.pair()
            for broker, client in both:
                for request in requests:
                    for topic in (request.ext.get("b") or request.ext.get("topic") or "x",):
                        if broker.topics.get(topic) is None:
                            broker.topics.auto_create(topic, "TBW102", 4, unit=False)
                    client.connection.dataReceived(request.raw)
            self.same(*both)
            short += self.taken(both[0][0])
            count += sum(request.request_code == 310 for request in requests)
        self.assertGreater(short, count / 2)


class ShortWayTests(LaneTestCase):
    """What becomes of a run."""

    def setUp(self) -> None:
        """A broker with a topic."""
        super().setUp()
        self.broker()
        self.serving.topics.ensure("Orders", 4)
        self.asking = self.client()

    def run_of(self, count: int, *more: Command) -> None:
        """Let a run arrive, and other requests behind it."""
        frames = [Command(code=310, opaque=n, ext=sending("Orders")) for n in range(count)]
        self.asking.send(*frames, *more)

    def statuses(self, status: PutStatus) -> set[int]:
        """What a run is answered that ends so."""
        self.writer.outcome = status
        self.run_of(3)
        answers = self.asking.heard()
        self.assertEqual([0, 1, 2], [answer.opaque for answer in answers])
        return {answer.code for answer in answers}

    def test_statuses(self) -> None:
        """Each message is told what the run came to."""
        self.assertEqual({ResponseCode.SUCCESS}, self.statuses(PutStatus.PUT_OK))
        self.assertEqual(
            {ResponseCode.SLAVE_NOT_AVAILABLE}, self.statuses(PutStatus.SLAVE_NOT_AVAILABLE)
        )
        self.assertEqual(
            {ResponseCode.FLUSH_SLAVE_TIMEOUT}, self.statuses(PutStatus.FLUSH_SLAVE_TIMEOUT)
        )
        self.assertEqual(
            {ResponseCode.SERVICE_NOT_AVAILABLE}, self.statuses(PutStatus.SERVICE_NOT_AVAILABLE)
        )
        self.assertEqual(12, self.taken(self.serving))

    def test_waits(self) -> None:
        """Nothing is answered before what was promised is so; other requests are."""
        self.writer.outcome = waiting = Deferred()
        self.run_of(2, Command(code=RequestCode.GET_MAX_OFFSET, opaque=9, ext={"topic": "Orders"}))
        self.assertEqual([9], [answer.opaque for answer in self.asking.heard()])
        self.assertEqual(2, self.asking.connection.in_runs)
        waiting.callback(PutStatus.PUT_OK)
        self.assertEqual([0, 1], [answer.opaque for answer in self.asking.heard()])
        self.assertEqual(0, self.asking.connection.in_runs)

    def test_gone(self) -> None:
        """Whoever left is told nothing."""
        self.writer.outcome = waiting = Deferred()
        self.run_of(2)
        self.asking.connection.close("peer")
        waiting.callback(PutStatus.PUT_OK)
        self.assertEqual([], self.asking.heard())

    def test_too_many(self) -> None:
        """Requests that wait count, on whichever way they came."""
        limits = self.asking.connection._all.limits
        self.writer.outcome = Deferred()
        self.asking.connection.in_runs = limits.requests - 1
        self.run_of(2)
        self.assertEqual(0, self.taken(self.serving))
        self.assertEqual(
            [ResponseCode.SYSTEM_BUSY], [answer.code for answer in self.asking.heard()]
        )

    def test_behind_a_broken_frame(self) -> None:
        """Nothing behind a frame that ends the connection is stored; what was before it is."""
        good = encode(Command(code=310, opaque=1, ext=sending("Orders")))
        self.asking.connection.dataReceived(good + bytes(8) + good)
        self.assertEqual(1, self.taken(self.serving))
        self.assertFalse(self.asking.connection.opened)
        self.assertIsNone(self.serving.lookup.by_queue_offset("Orders", 0, 1))

    def test_disk_full(self) -> None:
        """Without room nothing of a run is stored, and each message is told so."""
        self.refused(self.full)
        self.assertEqual("disk-full", self.serving.store.state)

    def full(self) -> None:
        """There is no room for the next bytes."""

        def ensure(*_: object) -> None:
            raise DiskFull(Path("log"), 1)

        self.patch(Allocator, "ensure", ensure)

    def test_fenced(self) -> None:
        """A master that takes no writes takes none on this way."""
        self.refused(lambda: self.serving.store.fence("another is master"))

    def refused(self, because: Callable[[], None]) -> None:
        """After this nothing is stored."""
        self.run_of(1)
        self.asking.heard()
        end = self.serving.store.log.end
        because()
        self.run_of(3)
        codes = [answer.code for answer in self.asking.heard()]
        self.assertEqual([ResponseCode.SERVICE_NOT_AVAILABLE] * 3, codes)
        self.assertEqual(end, self.serving.store.log.end)

    def test_topic_changed(self) -> None:
        """What a topic permits counts for the next run."""
        self.run_of(1)
        topic = self.serving.topics.get("Orders")
        assert topic is not None, "a topic"
        self.serving.topics.put(evolve(topic, perm=4))
        self.asking.heard()
        self.run_of(1)
        self.assertEqual(
            [ResponseCode.NO_PERMISSION], [answer.code for answer in self.asking.heard()]
        )
        self.serving.topics.delete("Orders")
        self.serving.topics.ensure("Orders", 8)
        self.run_of(2)
        self.assertEqual(3, self.taken(self.serving))
