"""What real consumers asked real brokers, asked again here, and fields that are odd."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from attrs import NOTHING, define, field, fields
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from rmqha.wire.log.record import Message, Record, decode
from rmqha.wire.remoting.bodies.clients import ConsumerIds, LockedQueues
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import wire_name
from rmqha.wire.remoting.json_body import read
from tests.broker.consumer_side import (
    GROUP,
    TOPIC,
    Consuming,
    ConsumingTestCase,
    heartbeat,
    records,
    wants,
)
from tests.net.remoting.support import Peer
from tests.support.frames import CapturedFrame, frames
from tests.support.logs import STORED
from tests.support.request_headers import REQUESTS

KINDS = (
    "pull",
    "push",
    "push-rocketmq",
    "orderly",
    "broadcast",
    "go-2.1.2",
    "node-ali-ons-3.12.0",
    "pyrocketmq-0.3.4",
    "request-reply",
)
RECORDINGS = [f"client-{kind}-{version}" for kind in KINDS for version in ("4.9.7", "5.3.3")]

PULLS = (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)
PLACES = (Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET)
ASKED = {
    *PULLS,
    *PLACES,
    Code.QUERY_CONSUMER_OFFSET,
    Code.UPDATE_CONSUMER_OFFSET,
    Code.HEART_BEAT,
    Code.UNREGISTER_CLIENT,
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.LOCK_BATCH_MQ,
    Code.UNLOCK_BATCH_MQ,
    Code.CHECK_CLIENT_CONFIG,
}
AT_ONCE = 0.2
"""Seconds: what took longer was held."""

Key = tuple[int, int]
"""Number of a connection and of a request on it."""


@define
class Replay:
    """One recording's conversations with the master, in the order of their time."""

    broker: Consuming
    sent: tuple[CapturedFrame, ...]
    peers: dict[int, Peer] = field(factory=dict)
    answers: dict[Key, Command] = field(factory=dict)
    notices: Counter[int] = field(factory=Counter)
    contents: dict[tuple[str, int], dict[int, Record]] = field(factory=dict)
    expected: dict[Key, CapturedFrame] = field(factory=dict)
    asked: dict[Key, CapturedFrame] = field(factory=dict)
    stored: list[int] = field(factory=lambda: [STORED])

    def __attrs_post_init__(self) -> None:
        for frame in self.sent:
            key = frame.note["conn"], frame.note["opaque"]
            if frame.is_answer:
                self.expected[key] = frame
            elif frame.note["dir"] == "c2s" and frame.note["code"] in ASKED:
                self.asked[key] = frame
        for key, frame in self.expected.items():
            if key in self.asked and frame.request_code in PULLS and frame.note["code"] == 0:
                place = self.place(self.asked[key])
                for record in self.records(frame.body):
                    self.contents.setdefault(place, {})[record.queue_offset] = record

    @staticmethod
    def place(frame: CapturedFrame) -> tuple[str, int]:
        return frame.ext["topic"], int(frame.ext["queueId"])

    @staticmethod
    def records(body: bytes) -> list[Record]:
        """The messages of a captured answer."""
        found, position = [], 0
        while position < len(body):
            found.append(decode(body, position, position))
            position += found[-1].size
        return found

    def run(self) -> None:
        """Send everything, and keep what comes back."""
        last = {frame.note["conn"]: number for number, frame in enumerate(self.sent)}
        begun = self.broker.clock.seconds() - self.sent[0].note["t"]
        for number, frame in enumerate(self.sent):
            conn = frame.note["conn"]
            if conn not in self.peers:
                self.peers[conn] = self.broker.peer()
            self.broker.clock.advance(
                max(0.0, begun + frame.note["t"] - self.broker.clock.seconds())
            )
            key = conn, frame.note["opaque"]
            if frame.is_answer:
                if key in self.asked:
                    self.grow(key)
            elif key in self.asked and self.asked[key] is frame:
                answer = self.expected.get(key)
                if answer is None or answer.note["t"] - frame.note["t"] < AT_ONCE:
                    self.grow(key)
                self.peers[conn].connection.dataReceived(frame.raw)
            self.collect()
            if last[conn] == number:
                self.peers[conn].connection.connectionLost(Failure(ConnectionDone()))

    def collect(self) -> None:
        """Take what our side has sent."""
        self.broker.flush()
        for conn, peer in self.peers.items():
            for command in peer.sent():
                if command.is_response:
                    self.answers[conn, command.opaque] = command
                else:
                    self.notices[conn] += 1

    def grow(self, key: Key) -> None:
        """Let a queue have what it had when a request was answered."""
        frame, answer = self.asked[key], self.expected.get(key)
        end = 0
        if frame.request_code == Code.UPDATE_CONSUMER_OFFSET:
            end = int(frame.ext["commitOffset"])
        elif answer is not None:
            end = int(answer.ext.get("maxOffset", 0))
            if frame.request_code in PLACES:
                end = int(answer.ext["offset"])
        if not end:
            return
        place = self.place(frame)
        queue = self.broker.store.queues.create(*place)
        assert queue is not None
        known = self.contents.get(place, {})
        for offset in range(queue.max_offset, end):
            self.store(place, known.get(offset))
        while self.broker.store.dispatcher.behind:
            self.broker.dispatch()

    def store(self, place: tuple[str, int], record: Record | None) -> None:
        """Put a captured message, or one that nobody got."""
        topic, queue_id = place
        self.stored[0] = max(self.stored[0], record.store_timestamp if record else 0)
        self.broker.store.put(
            Message(
                topic=topic,
                queue_id=queue_id,
                body=b"?" if record is None else bytes(record.body),
                properties=b"TAGS\x01?\x02" if record is None else record.raw_properties,
                born_timestamp=STORED,
                born_host=("127.0.0.1", 1),
                store_host=("127.0.0.1", 1),
            )
        )


class CapturedTests(ConsumingTestCase):
    def replay(self, recording: str) -> Replay:
        """Have a recording's conversations with a broker again."""
        # A commit and a question on two connections race.
        sent = sorted(
            (
                frame
                for frame in frames(recording)
                if "master" in (frame.note["to"], frame.note["from"])
            ),
            key=lambda frame: (
                frame.note["t"] - 0.001 * (frame.request_code == Code.UPDATE_CONSUMER_OFFSET)
            ),
        )
        time = [STORED]
        broker = self.consuming(store={"now_ms": lambda: time[0]})
        replay = Replay(broker, tuple(sent), stored=time)
        for frame in replay.asked.values():
            if "topic" in frame.ext and broker.topics.get(frame.ext["topic"]) is None:
                broker.topics.put(TopicConfig(topic_name=frame.ext["topic"]))
        replay.run()
        return replay

    def meaning(self, code: int, answer: Command) -> dict[str, Any]:
        """What of an answer must be as it was."""
        ext = dict(answer.ext)
        for name in ("topicSysFlag", "groupSysFlag"):  # 5.x alone has them
            ext.pop(name, None)
        if code == Code.HEART_BEAT:
            ext = {}  # 5.x tells what it supports
        found: dict[str, Any] = {"code": answer.code, "remark": answer.remark or None, "ext": ext}
        if code in PULLS:
            found["messages"] = [
                (record.queue_offset, bytes(record.body), record.properties)
                for record in records(answer)
            ]
        elif code == Code.GET_CONSUMER_LIST_BY_GROUP and answer.code == 0:
            found["body"] = set(read(ConsumerIds, answer.body).consumer_id_list)
        elif code == Code.LOCK_BATCH_MQ:
            found["body"] = set(read(LockedQueues, answer.body).locked)
        else:
            found["body"] = bytes(answer.body)
        return found

    def on_purpose(self, frame: CapturedFrame, theirs: Command) -> str:
        """Why an answer is not the real one, if that is meant to be so."""
        code = frame.request_code
        if theirs.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
            return "an old subscription to everything is good enough"
        if frame.ext.get("expressionType") == "SQL92" or b"SQL92" in frame.body:
            return "the real brokers had SQL filters switched on"
        if code == Code.QUERY_CONSUMER_OFFSET and theirs.code == ResponseCode.QUERY_NOT_FOUND:
            return "an empty queue's offset: 5.3.3 says none, 4.9.7 and we say 0"
        if code in PULLS and theirs.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            return "real brokers look every 5 s what can be passed over, we 5 s after it came"
        return ""

    def test_answers(self) -> None:
        """Every answer says what the real one said."""
        compared: Counter[int] = Counter()
        excused: Counter[str] = Counter()
        for recording in RECORDINGS:
            replay = self.replay(recording)
            for key, frame in replay.asked.items():
                expected, code = replay.expected.get(key), frame.request_code
                if expected is None:
                    continue
                theirs = Command(
                    code=expected.note["code"],
                    remark=expected.note["remark"],
                    ext=expected.ext,
                    body=expected.body,
                )
                ours = replay.answers.get(key)
                meant = self.meaning(code, theirs)
                if ours is not None and self.meaning(code, ours) == meant:
                    compared[code] += 1
                    continue
                reason = self.on_purpose(frame, theirs)
                self.assertTrue(reason, (recording, frame.note, ours, meant))
                excused[reason] += 1
        self.assertGreater(sum(compared.values()), 600)
        self.assertLess(sum(excused.values()), 120)
        for code in ASKED - {Code.CHECK_CLIENT_CONFIG}:
            self.assertIn(code, compared)

    def test_notices(self) -> None:
        """Consumers are told of changes of their group as often as by a real broker."""
        for recording in RECORDINGS:
            if recording.endswith("4.9.7"):
                replay = self.replay(recording)
                theirs = Counter(
                    frame.note["conn"]
                    for frame in replay.sent
                    if frame.note["code"] == Code.NOTIFY_CONSUMER_IDS_CHANGED
                )
                self.assertEqual(replay.notices, theirs, recording)


GOOD = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "subscription": "*",
    "expressionType": "TAG",
    "clientID": "c1",
    "key": "k",
    "sysFlag": "4",
    "boundaryType": "lower",
}
BAD = (
    "",
    "abc",
    "-1",
    "1.5",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "x" * 300,
    "a@b",
    "../../etc",
    "\0\1\2",
    "ÿ中\U0001f600",
)
CLASS_NAME = re.compile(r"[A-Za-z]+(Error|Exception|Fault): ")


class BadFieldTests(ConsumingTestCase):
    """Whatever stands in a field, there is one answer, and it is not that we failed."""

    def setUp(self) -> None:
        self.broker = self.consuming()
        for _ in range(3):
            self.broker.put(KEYS="k")
        self.broker.dispatch()
        self.peer = self.broker.peer()
        self.peer.send(heartbeat("c1", wants()))
        self.peer.sent()

    def assert_answered(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        """One answer comes, in words of ours."""
        self.peer.send(Command(code=code, ext=ext, body=body))
        self.broker.flush()
        answers = [sent for sent in self.peer.sent() if sent.is_response]
        self.assertEqual(len(answers), 1, (code, ext))
        self.assertIsNone(CLASS_NAME.match(answers[0].remark or ""), (code, ext, answers[0]))
        self.assertTrue(self.peer.connection.opened)

    def test_each_field(self) -> None:
        """One field after the other is wrong, or missing."""
        for code in sorted(self.broker.registry.codes()):
            header = REQUESTS[code].request
            if header is None:
                continue
            names = [wire_name(attribute) for attribute in fields(header)]
            good = {name: GOOD.get(name, "0") for name in names}
            self.assert_answered(code, good)
            for attribute in fields(header):
                name = wire_name(attribute)
                for text in BAD:
                    self.assert_answered(code, good | {name: text})
                left = {other: text for other, text in good.items() if other != name}
                if attribute.default is NOTHING:
                    self.peer.send(Command(code=code, ext=left))
                    (answer,) = self.peer.sent()
                    self.assertEqual(answer.remark, f"the custom field <{name}> is null")

    def test_bodies(self) -> None:
        """Bodies that are no JSON, or of another shape."""
        for code in (Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
            for body in (b"", b"{", b"[]", b"1", b'{"clientID":[]}', b"\xff\xfe", b"{" * 5000):
                self.assert_answered(code, {}, body)
        self.assert_answered(Code.CHECK_CLIENT_CONFIG, {}, b'{"subscriptionData":7}')
