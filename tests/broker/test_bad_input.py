"""Every request a broker answers, with what should not be in it."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any

from twisted.internet.defer import Deferred

from rmqha.broker.broker import Broker
from rmqha.broker.tables import table
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode as Answered
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.frame import encode
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from tests.broker.consumer_side import GROUP, TOPIC, heartbeat, wants
from tests.broker.support import (
    SEND_BATCH,
    SEND_V2,
    BrokerTestCase,
    Client,
    FakeWriter,
    batch,
    sending,
)
from tests.support.bad_input import BODIES, Complaints, assert_told, bad_fields, good_fields, shown
from tests.support.logs import now
from tests.support.request_headers import REQUESTS

WAITS = ("pollTime", "bornTime")
"""Of pops: whatever number is there, it is a time to wait."""

GOOD: dict[str, Any] = {
    "topic": TOPIC,
    "group": GROUP,
    "group_name": GROUP,
    "consumer_group": GROUP,
    "producer_group": "pg",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "read_queue_nums": 4,
    "write_queue_nums": 4,
    "perm": 6,
    "topic_filter_type": "SINGLE_TAG",
    "subscription": "*",
    "expression_type": "TAG",
    "client_id": "c1",
    "key": "k",
    "max_num": 32,
    "max_msg_nums": 32,
    "suspend_timeout_millis": 100,
    "poll_time": 0,
    "born_time": 0,
    "boundary_type": "lower",
    "properties": "TAGS\x01A\x02",
    "batch": False,
    "max_reconsume_times": None,
    "max_msg_bytes": None,
    "stats_name": "TOPIC_PUT_NUMS",
    "stats_key": TOPIC,
    "count": 10,
    "is_order": False,
    "is_force": True,
    "commit_or_rollback": 8,
}
"""What an attribute of a header should be."""


REPLIES = (Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2)
"""Stored also when whoever waits for the reply cannot be reached."""


NOTHING = (19, 20, 21)
"""A pull that finds nothing there is not refused: the offset that came with it counts."""


class AllRequestsTests(BrokerTestCase):
    """Whatever is asked has one answer, and what is refused leaves no trace."""

    def begin(self, *, slave: bool) -> None:
        self.serve = self.broker(slave=slave)
        self.complaints = Complaints.of(self)

    def connect(self) -> Client:
        """What every request is about, a consumer that answers nothing, and who asks."""
        serve = self.serve
        if serve.topics.get(TOPIC) is None:
            serve.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        if serve.groups.get(GROUP) is None:
            serve.groups.put(GroupConfig(group_name=GROUP))
        consumer = heartbeat("c1", wants(), producer="pg")
        consumer.version = 407
        self.client().send(consumer)
        return self.client()

    def ask(self, client: Client, code: int, ext: dict[str, str], body: bytes) -> Command:
        """Ask, and let whoever has to think about it have its time."""
        self.asked += 1
        request = Command(code=code, opaque=self.asked, version=407, ext=ext, body=body)
        before = self.state()
        known = {*self.serve.topics.names(), *self.serve.groups.names()}
        client.send(request)
        answers = [command for command in client.heard() if command.is_response]
        for _ in range(20):
            if answers:
                break
            self.clock.advance(1)
            answers = [command for command in client.heard() if command.is_response]
        (answer,) = answers
        self.assertEqual(answer.opaque, self.asked)
        if answer.code and answer.code not in NOTHING and code not in REPLIES:
            self.assertEqual(self.state(), before, request)
            # A name that is good may be made, as stock brokers do.
            named = {f"{prefix}{text}" for text in ext.values() for prefix in ("", "%RETRY%")}
            self.assertLessEqual(
                {*self.serve.topics.names(), *self.serve.groups.names()}, known | named
            )
        return answer

    asked = 0

    def state(self) -> object:
        """What no refused request may change."""
        serve = self.serve
        return (
            serve.store.log.end,
            serve.offsets.table(),
            serve.topics.get(TOPIC),
            serve.groups.get(GROUP),
        )

    def each(self) -> None:
        for code in sorted(self.serve.registry.codes()):
            header = REQUESTS[code].request
            good = good_fields(header, GOOD)
            client = self.connect()
            for name, text, ext, refused in bad_fields(header, good):
                if name in WAITS and not refused:
                    continue
                said = shown(code, name, text)
                answer = self.ask(client, code, ext, b"body")
                # A slave refuses before it reads.
                wrong = name if refused and answer.code == 1 else None
                assert_told(self, answer, said, field=None if self.serve.writer is None else wrong)
                self.assertEqual(self.complaints.events, [], said)
            client = self.connect()
            for body in BODIES:
                said = shown(code, "body", body)
                assert_told(self, self.ask(client, code, good, body), said)
                self.assertEqual(self.complaints.events, [], said)
            self.assertTrue(client.connection.opened)

    def test_master(self) -> None:
        """A master answers all of them, and then goes on as before."""
        self.begin(slave=False)
        self.each()
        self.assertEqual(self.connect().ask(SEND_V2, sending(TOPIC), b"good").code, 0)
        self.clock.advance(1)
        self.saved(self.serve)

    def test_slave(self) -> None:
        """So does a slave."""
        self.begin(slave=True)
        self.each()
        self.saved(self.serve)

    def saved(self, broker: Broker) -> None:
        """All tables can be told, written, and read by the next start."""
        client = self.client()
        for code in (Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            self.assertEqual(client.ask(code).code, 0)
        self.successResultOf(broker.stop())
        again = Broker(broker.settings, broker.store, broker.writer, self.clock, now)
        self.assertEqual(again.topics.names(), broker.topics.names())
        self.assertEqual(again.groups.names(), broker.groups.names())
        self.assertEqual(again.offsets.table(), broker.offsets.table())
        self.assertEqual(self.complaints.events, [])


class BadMessagesTests(BrokerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve = self.broker()
        self.complaints = Complaints.of(self)

    def refused(self, code: int, ext: dict[str, str], body: bytes, part: str) -> None:
        """It is illegal, and nothing is stored."""
        end = self.serve.store.log.end
        answer = self.client().ask(code, ext, body)
        self.assertEqual(answer.code, Answered.MESSAGE_ILLEGAL, answer.remark)
        self.assertIn(part, answer.remark)
        self.assertEqual(self.serve.store.log.end, end)

    def test_properties(self) -> None:
        """Properties have 32,767 bytes, however few characters, and with those of a batch."""
        room = 32_767 - len(f"FILL\x01\x02CLUSTER\x01{self.serve.messages.cluster}\x02")
        ext = sending(TOPIC, properties={"FILL": "x" * room})
        self.assertEqual(self.client().ask(SEND_V2, ext, b"x").code, 0)
        for fill in ("x" * (room + 1), "\u4e2d" * 11_000):
            ext = sending(TOPIC, properties={"FILL": fill})
            self.refused(SEND_V2, ext, b"x", "properties")
        one = (b"x", f"FILL\x01{'x' * 20_000}\x02")
        ext = sending(TOPIC, batch=True, properties={"MORE": "y" * 20_000})
        self.refused(SEND_BATCH, ext, batch((b"x", ""), one), "properties")

    def test_separators(self) -> None:
        """A name with control characters is somebody's invention."""
        ext = sending(TOPIC, properties="A\x01b\x02\x03DELAY\x013\x02")
        self.refused(SEND_V2, ext, b"x", "control characters in property '\\x03DELAY'")

    def test_lying_batches(self) -> None:
        """Whatever a batch says of its parts, it is stored whole or not at all."""
        good = batch((b"one", "KEYS\x01a\x02"), (b"two", ""))
        ext = sending(TOPIC, batch=True)
        stored = 0
        self.assertEqual(self.client().ask(SEND_BATCH, ext, good).code, 0)
        size = self.serve.store.log.end
        client = self.client()
        for at in range(len(good) - 3):
            for number in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
                end = self.serve.store.log.end
                lie = good[:at] + pack(">I", number) + good[at + 4 :]
                answer = client.ask(SEND_BATCH, ext, lie)
                if answer.code:
                    self.assertEqual(answer.code, Answered.MESSAGE_ILLEGAL, answer.remark)
                    self.assertEqual(self.serve.store.log.end, end)
                else:
                    self.assertLessEqual(abs(self.serve.store.log.end - end - size), 16)
                    stored += answer.ext["msgId"].count(",") + 1
        self.clock.advance(1)
        self.assertEqual(self.serve.lookup.bounds(TOPIC, 0), (0, 2 + stored))
        self.assertEqual(self.complaints.events, [])

    def test_numbers_at_their_ends(self) -> None:
        """What a record can hold is stored as it was said."""
        most, least = (1 << 31) - 1, -(1 << 31)
        for offset, number in enumerate((most, least)):
            ext = sending(
                TOPIC,
                flag=number,
                sys_flag=number,
                born_timestamp=number << 32,
                reconsume_times=number,
                default_topic_queue_nums=number,
            )
            self.assertEqual(self.client().ask(SEND_V2, ext, b"x").code, 0)
            record = self.record(TOPIC, offset=offset)
            self.assertEqual((record.flag, record.reconsume_times), (number, number))
            self.assertEqual(record.born_timestamp, number << 32)
        self.assertEqual(self.serve.topics.get(TOPIC).write_queue_nums, 8)

    def test_oneway(self) -> None:
        """Nobody is told what nobody asked to be told."""
        client = self.client()
        for code in sorted(self.serve.registry.codes()):
            for body in (b"", b"{", b"x" * 200_000):
                self.assertIsNone(client.ask(code, {"topic": "a b"}, body, oneway=True))
        self.clock.advance(20)
        self.assertEqual((client.heard(), self.complaints.events), ([], []))


class TooManyTests(BrokerTestCase):
    """Names are made for clients, but not without end."""

    def test_names(self) -> None:
        """Above a limit clients are told that there is no such topic or group; others work."""
        self.patch(table, "MOST_MADE", 30)
        serve = self.broker()
        client = self.client()
        codes = [client.ask(SEND_V2, sending(f"t{number}"), b"x").code for number in range(60)]
        made = codes.count(0)
        self.assertEqual(codes, [0] * made + [Answered.TOPIC_NOT_EXIST] * (60 - made))
        self.assertEqual(len(serve.topics.names()), 30)
        self.assertEqual(
            client.ask(SEND_V2, sending("%RETRY%g"), b"x").code, Answered.TOPIC_NOT_EXIST
        )
        for number in range(60):
            ext = {"consumerGroup": f"g{number}", "topic": "t0", "queueId": "0"}
            answer = client.ask(Code.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "0"})
        self.assertEqual(answer.code, Answered.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertEqual(len(serve.groups.names()), 30)
        self.assertEqual(client.ask(SEND_V2, sending("t0"), b"x").code, 0)
        serve.topics.put(TopicConfig(topic_name="an-administrators"))
        self.assertEqual(client.ask(SEND_V2, sending("an-administrators"), b"x").code, 0)


class BadPeersTests(BrokerTestCase):
    """Connections that do not behave, beside one that does."""

    def setUp(self) -> None:
        super().setUp()
        self.serve = self.broker()
        self.complaints = Complaints.of(self)
        self.good = self.client()

    def assert_unharmed(self) -> None:
        """The other client sends as if nothing was."""
        self.assertEqual(self.good.ask(SEND_V2, sending(TOPIC), b"x").code, 0)
        self.assertEqual(self.complaints.events, [])

    def test_broken_frames(self) -> None:
        """Whose frames cannot be read is let go, with a reason that is counted and logged."""
        deep = b'{"code":10,"extFields":{"a":' + b"[" * 400 + b"]" * 400 + b"}}"
        bombs = (
            (b"\x00", "FrameLengthOutOfRange"),
            (b"GET / HTTP/1.1\r\n\r\n", "FrameLengthOutOfRange"),
            (pack(">iI", 0x7FFFFFFF, 10), "FrameLengthOutOfRange"),
            (pack(">iI", -1, 10), "FrameLengthOutOfRange"),
            (pack(">iI", 20, 200), "HeaderLengthOutOfRange"),
            (pack(">iI", 20, 7 << 24 | 4), "SerializeTypeUnknown"),
            (self.json(b"[" * 100_000), "HeaderTooCostly"),
            (self.json(b"[" * 8_000), "HeaderUndecodable"),
            (self.json(deep), "HeaderUndecodable"),
            (self.json(b'{"code":' + b"9" * 5000 + b"}"), "HeaderUndecodable"),
            (self.json(b"{code:10,'x':{{a:1}:" + b"{" * 1000), "HeaderUndecodable"),
            (pack(">iI", 30, 1 << 24 | 26) + b"\xff" * 26, "HeaderUndecodable"),
        )
        for raw, reason in bombs:
            before = self.connections.closed[reason]
            bad = self.client()
            bad.connection.dataReceived(raw.ljust(8, b"\0"))
            self.assertFalse(bad.connection.opened, raw[:40])
            self.assertEqual(self.connections.closed[reason], before + 1, raw[:40])
            self.assert_unharmed()

    @staticmethod
    def json(header: bytes) -> bytes:
        """A frame of a header alone."""
        return pack(">iI", len(header) + 4, len(header)) + header

    def test_half_a_frame(self) -> None:
        """Who says half of something and then nothing is let go at the idle limit."""
        bad = self.client()
        raw = encode(Command(code=SEND_V2, ext=sending(TOPIC), body=b"x" * 1000))
        bad.connection.dataReceived(raw[:-1])
        for _ in range(62):
            self.assert_unharmed()
            self.clock.advance(2)
        self.assertFalse(bad.connection.opened)
        self.assertEqual(self.connections.closed["idle"], 1)
        self.clock.advance(1)
        self.assertEqual(sum(self.lengths()), 62)

    def lengths(self) -> list[int]:
        """How many messages each queue has."""
        return [(self.serve.lookup.bounds(TOPIC, queue) or (0, 0))[1] for queue in range(4)]

    def test_replies_nobody_asked_for(self) -> None:
        """Answers to nothing are counted, and change nothing."""
        bad = self.client()
        codes = sorted(self.serve.registry.codes())
        bad.send(*(Command(code=code, opaque=code, flag=flag) for code in codes for flag in (1, 3)))
        self.assertEqual(bad.heard(), [])
        self.assertEqual(self.connections.unasked, 2 * len(codes))
        self.assertEqual(bad.ask(SEND_V2, sending(TOPIC), b"x").code, 0)
        self.assert_unharmed()

    def test_a_thousand_outstanding(self) -> None:
        """A thousand writes and pulls may wait on one connection; each gets its answer."""
        writes: list[Deferred[PutStatus]] = []
        self.assert_unharmed()

        def waiting(door: Callable[..., Any]) -> Callable[..., Any]:
            def put(*args: Any, **kwargs: Any) -> Any:
                self.writer.outcome = done = Deferred()
                writes.append(done)
                return door(*args, **kwargs)

            return put

        for name in ("put", "put_run"):
            self.patch(FakeWriter, name, waiting(getattr(FakeWriter, name)))
        client = self.client()
        pull = PullMessageRequest(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=1,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=6,
            commit_offset=0,
            suspend_timeout_millis=15_000,
            sub_version=0,
            subscription="*",
        )
        for number in range(1000):
            ext = to_ext(pull) | {"consumerGroup": f"g{number}"}
            client.send(
                Command(code=SEND_V2, opaque=2 * number, ext=sending(TOPIC), body=b"x"),
                Command(code=Code.PULL_MESSAGE, opaque=2 * number + 1, ext=ext),
            )
        self.assertEqual((client.heard(), len(writes)), ([], 1000))
        for done in writes:
            done.callback(PutStatus.PUT_OK)
        self.assertEqual(
            [(answer.opaque, answer.code) for answer in client.heard()],
            [(2 * number, 0) for number in range(1000)],
        )
        self.clock.advance(15)
        self.assertEqual(
            [(answer.opaque, answer.code) for answer in client.heard()],
            [(2 * number + 1, Answered.PULL_NOT_FOUND) for number in range(1000)],
        )
        self.assertEqual(self.complaints.events, [])
