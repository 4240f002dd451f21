"""The short way of a message gives what the usual way gives, whatever comes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import skipUnless

import orjson
from attrs import evolve, field, frozen
from attrs import fields as fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.broker import Broker
from rmqha.broker.meters.meters import SENT_BACK
from rmqha.config.broker_settings import TimerSettings
from rmqha.errors import DiskFull
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connection import SLICE
from rmqha.store.files.allocate import Allocator
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import RESPONSE, Command, SerializeType
from rmqha.wire.remoting.fields import to_ext, wire_name
from rmqha.wire.remoting.frame import encode
from rmqha.wire.remoting.headers.clients import EndTransactionRequest
from rmqha.wire.remoting.headers.send import (
    SendBackRequest,
    SendMessageRequest,
    SendMessageV2Request,
)
from tests.broker.sending.test_captured import sends
from tests.broker.support import NOW, BrokerTestCase, Client, batch, long_names, properties, sending
from tests.support.access_table import PLAIN_ACL, credentials
from tests.support.effort import tries
from tests.support.frames import RECORDINGS
from tests.support.logs import now

BACK = RequestCode.CONSUMER_SEND_MSG_BACK

LATER = str(NOW + 259_200_000)
"""As late as a message may be."""

TOPICS = ("Orders", "Payments", "x", "%RETRY%group", "DoesNotExistYet")

PAIRS = st.lists(
    st.tuples(
        st.sampled_from(
            ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "CLUSTER", "DELAY", "TRAN_MSG", "T", "")
        )
        | st.sampled_from(("na\nme", "PGROUP", "REAL_TOPIC", "REAL_QID"))
        | st.sampled_from(("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"))
        | st.sampled_from(("TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"))
        | st.text('abcXYZ é"\\/\n', max_size=4),
        st.sampled_from(("true", "false", "3", "", "v\x01w", "a b", 'quo"te', "é", "\\"))
        | st.sampled_from(("pg", "18", "19", "03", "-1", "TRUE"))
        | st.sampled_from(("0", "259200", "259201", "1700000001000", "01700000001001", "9" * 16)),
    ),
    max_size=5,
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs))

HALF = properties(KEYS="a b", UNIQ_KEY="7F0002", TRAN_MSG="true", PGROUP="pg", WAIT="true")

USUAL = st.sampled_from(
    (
        properties(UNIQ_KEY="7F0001", WAIT="true", TAGS="TagA"),
        properties(KEYS="order 17", UNIQ_KEY="7F0001", WAIT="true"),
        properties(DELAY="3", UNIQ_KEY="7F0001", WAIT="true"),
        properties(UNIQ_KEY="7F0001", TIMER_DELAY_SEC="3", WAIT="true"),
        properties(TIMER_DELAY_MS="1500", TAGS="TagA"),
        properties(UNIQ_KEY="7F0001~", TIMER_DELIVER_MS="1700000009000"),
        HALF,
    )
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


SIGNERS = ("", *("operator",) * 4, "producer", "consumer", "limited-admin", "white-one")
"""Who signs: nobody, who may send to each topic, to some or to none, and who need not."""

TAMPERS = st.sampled_from(
    (
        *(lambda command: None,) * 4,
        lambda command: command.ext.update(Signature="AAAA"),
        lambda command: command.ext.update(b="Payments", topic="Payments"),
        lambda command: command.ext.update(i="TAGS\x01other\x02"),
        lambda command: command.ext.update(AccessKey="operator"),
        lambda command: command.ext.update(AccessKey="stranger"),
        lambda command: command.ext.pop("Signature", None),
        lambda command: command.ext.update(_UNIQUE_KEY_QUERY="x"),
        lambda command: setattr(command, "body", b"other"),
    )
)
"""What happens to a request that was signed."""


END_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "producerGroup": st.sampled_from(("pg", "other", "")),
        "tranStateTableOffset": st.sampled_from(("0", "1", "-1", "x")),
        "commitLogOffset": st.sampled_from(("0", "1", "100", "-5", "99999999999999999999")),
        "commitOrRollback": st.sampled_from(("8", "12", "0", "7", "012")),
        "fromTransactionCheck": st.sampled_from(("true", "false", "TRUE", "1")),
        "msgId": st.sampled_from(("", "é")),
        "transactionId": st.sampled_from(("A1", "")),
        "topic": st.sampled_from(("Orders", "x" * 200)),
        "bname": st.just("broker-a"),
        "b": st.just("Orders"),
        "i": st.just(HALF),
        "a": st.just("pg"),
    },
)

MAY_LACK = ("producerGroup", "commitLogOffset", "msgId", "fromTransactionCheck")


@frozen(kw_only=True)
class End:
    """What a producer says of the half message that was answered so long ago.

    @ivar other: Fields that are not as they should be; C{missing} one that is not there.
    @ivar more: What else the request has that is not usual.
    """

    ago: int
    word: int
    other: dict[str, str] = field(factory=dict)
    missing: str = ""
    serialize: SerializeType = SerializeType.JSON
    more: dict[str, Any] = field(factory=dict)

    def command(self, halves: list[Command]) -> Command:
        """The request.

        @param halves: The answers to half messages so far.
        """
        half = halves[-1 - self.ago % len(halves)].ext if halves else {}
        header = EndTransactionRequest(
            producer_group="pg",
            tran_state_table_offset=int(half.get("queueOffset", 0)),
            commit_log_offset=int(half.get("msgId", "0")[-16:], 16),
            commit_or_rollback=self.word,
            msg_id="7F0002",
        )
        ext = to_ext(header) | self.other
        ext.pop(self.missing, None)
        given: dict[str, Any] = {"flag": 2, "opaque": 7} | self.more
        return Command(code=37, ext=ext, serialize=self.serialize, **given)


ENDS = st.builds(
    lambda ago, word, odd: End(ago=ago, word=word, **odd),
    ago=st.integers(-3, 6),
    word=st.sampled_from((8, 8, 8, 12)),
    odd=st.integers(0, 11).flatmap(
        lambda number: (
            (
                st.fixed_dictionaries({"other": END_FIELDS}),
                st.fixed_dictionaries({"missing": st.sampled_from(MAY_LACK)}),
                st.fixed_dictionaries(
                    {"more": st.sampled_from(({"flag": 0}, {"flag": 3}, {"body": b"x"}))}
                ),
            )[number]
            if number < 3
            else st.just({})
        )
    ),
)

PLAIN = st.builds(
    lambda usual, **more: Command(code=310, ext=sending("Orders", properties=usual), **more),
    usual=USUAL | st.just(HALF),
    opaque=st.integers(0, 100),
    flag=st.sampled_from((0, 0, 2)),
    body=st.binary(max_size=50),
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
    """Tests with two brokers: one has the lane, one has not.

    @ivar sections: Of their settings.
    """

    sections: Mapping[str, Any] = {}
    accounts: AclFile | None = None

    def pair(self, **sizes: Any) -> tuple[tuple[Broker, Client], tuple[Broker, Client]]:
        """Both, with the same topics, and a client each."""
        made = []
        for lane in (True, False):
            self.root = self.folder() / "store"
            broker = self.broker(sizes=sizes, accounts=self.accounts, **self.sections)
            for topic in ("Orders", "Payments", "x"):
                broker.topics.ensure(topic, 4)
            if not lane:
                broker.registry.lanes.clear()
                broker.store.compiled = False
            made.append((broker, self.client()))
        return made[0], made[1]

    def stream(self, client: Client, data: bytes, cuts: list[int]) -> None:
        """Let a stream come in pieces."""
        last = 0
        for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
            if client.connection.opened:
                client.connection.dataReceived(data[last:cut])
            last = cut
            while client.connection._held:
                self.clock.advance(0.01)
        if client.connection.opened:
            client.connection._outbox.flush()

    def log(self, broker: Broker) -> bytes:
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
        self.clock.advance(0.5)
        self.assertEqual(self.derived(one[0]), self.derived(other[0]))
        self.assertEqual(self.counted(one[0]), self.counted(other[0]))

    def derived(self, broker: Broker) -> dict[str, bytes]:
        """All queues and index files, by their paths; of these not the name, which is a time."""
        root = broker.store.settings.root
        return {
            str(path.relative_to(root) if folder == "consumequeue" else folder): path.read_bytes()
            for folder in ("consumequeue", "index")
            for path in root.glob(f"{folder}/**/*")
            if path.is_file()
        }

    def counted(self, broker: Broker) -> tuple[object, ...]:
        """What is told about writes and transactions."""
        ending, halves = broker.transactions, broker.transactions.halves
        finished = {topic: took.count for topic, took in ending.finished.items()}
        return (
            broker.counts.puts_took.results(),
            None if broker.access is None else broker.access.refused,
            ending.ended,
            finished,
            (halves.first, halves.count(), halves._ended, halves._ops, halves._op),
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
            self.stream(client, data, cuts)
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
        requests=st.lists(
            st.tuples(
                PLAIN | PLAIN | PLAIN | COMMANDS,
                st.sampled_from(SIGNERS),
                TAMPERS,
                st.sampled_from((0, 0, 2, 1, 4)),
            ),
            min_size=1,
            max_size=8,
        ),
        cuts=st.lists(st.integers(0, 1 << 20), max_size=3),
    )
    def test_signed(
        self, requests: list[tuple[Command, str, Callable[[Command], object], int]], cuts: list[int]
    ) -> None:
        """The same under access control: who may, who may not, and what was changed on its way."""
        self.accounts = AclFile(path=PLAIN_ACL, clock=self.clock, in_thread=now)
        self.accounts.start()
        frames = []
        for command, account, tamper, style in requests:
            command = evolve(command, ext=dict(command.ext))
            if account:
                credentials(account).sign(command)
            tamper(command)
            frames.append(written(command, style))
        self.drive(b"".join(frames), cuts)
        self.accounts.stop()

    @settings(max_examples=tries(60))
    @given(
        steps=st.lists(
            st.builds(
                lambda kind, usual, odd: [*(evolve(each, serialize=kind) for each in usual), *odd],
                st.sampled_from(SerializeType),
                st.lists(PLAIN | ENDS, min_size=4, max_size=16),
                st.lists(COMMANDS, max_size=1),
            ),
            min_size=2,
            max_size=4,
        ),
        deleted=st.none() | st.integers(0, 5),
    )
    def test_transactions(self, steps: list[list[Command | End]], deleted: int | None) -> None:
        """Half messages among others, and their ends, usual ones and unusual ones: early, twice, or
        after their topic was deleted.
        """
        both = self.pair()
        halves: list[Command] = []
        frames = [encode(Command(code=310, opaque=1 << 20, ext=sending("Orders", properties=HALF)))]
        seed = random.getrandbits(32)
        for number, step in enumerate(steps):
            answers = []
            for broker, client in both:
                random.seed(seed + number)
                if number == deleted:
                    broker.store.queues.deleted["Orders"] = broker.store.log.end
                if client.connection.opened:
                    client.connection.dataReceived(b"".join(frames))
                while client.connection._held:
                    self.clock.advance(0.01)
                answers.append(client.heard())
            self.assertEqual(answers[0], answers[1])
            halves += [answer for answer in answers[0] if "msgId" in answer.ext]
            frames = [
                encode(request.command(halves) if isinstance(request, End) else request)
                for request in step
            ]
        self.same(*both)

    def test_many_transactions(self) -> None:
        """As a producer with many threads sends them.  All go the short way."""
        both = self.pair()
        opaque = count = 0
        for kind in (*SerializeType, *SerializeType):
            data = b"".join(
                encode(
                    Command(
                        code=310,
                        opaque=opaque + n,
                        ext=sending("Orders", queue_id=n % 4, properties=HALF),
                        body=bytes(n),
                        serialize=kind,
                    )
                )
                for n in range(20)
            )
            opaque += 20
            for _, client in both:
                client.connection.dataReceived(data)
            (halves, others) = (client.heard() for _, client in both)
            self.assertEqual(halves, others)
            ends = [
                End(
                    ago=(7 * n) % 20,
                    word=12 if n % 5 == 0 else 8,
                    other={"transactionId": "7F0002", "topic": "Orders", "bname": "broker-a"},
                    serialize=kind,
                ).command(halves)
                for n in range(20)
            ]
            for _, client in both:
                client.send(*ends)
            self.clock.advance(0.01)
            count += 40
        self.same(*both)
        self.assertEqual(count, self.taken(both[0][0]))
        self.assertEqual({}, both[0][0].transactions.halves.stored)

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

    def test_timers(self) -> None:
        """Timer messages, by each of the three properties: all go the short way, and are told by
        what they are recalled.
        """
        times = ("TIMER_DELAY_SEC", "86400"), ("TIMER_DELAY_MS", "999"), ("TIMER_DELIVER_MS", LATER)
        for kind in SerializeType:
            frames = [
                encode(
                    Command(
                        code=310,
                        opaque=n,
                        ext=sending("Orders", queue_id=n % 4, properties=told),
                        body=bytes(n),
                        serialize=kind,
                    )
                )
                for n, told in enumerate(
                    {"UNIQ_KEY": "7F0001~?" * (n % 5), name: value, "KEYS": "k"}
                    for n in range(20)
                    for name, value in times
                )
            ]
            # A property without a value ends a run.
            frames = [frame for n, frame in enumerate(frames) if n // 3 % 5]
            self.assertEqual(self.drive(b"".join(frames), []), len(frames))

    def test_halves(self) -> None:
        """The answer to a half message names its transaction; what JSON would have to escape goes
        the usual way.
        """
        half = {"TRAN_MSG": "true", "PGROUP": "pg"}
        for kind in SerializeType:
            for key, taken in (("7F01", 4), ('7F"', 0), ("7F\\", 0), ("7Fé", 0)):
                ext = sending("Orders", properties={"UNIQ_KEY": key, **half})
                frames = [
                    encode(Command(code=310, opaque=n, ext=ext, serialize=kind)) for n in range(4)
                ]
                self.assertEqual((key, self.drive(b"".join(frames), [])), (key, taken))

    def test_other_letters(self) -> None:
        """Values of properties in any letters: from a client that writes JSON they go the short
        way, if they are UTF-8; names, and a binary header, only in ASCII.
        """
        told = (
            {"KEYS": "заказ 17", "UNIQ_KEY": "7F0001", "colour": "grün", "town": "北京"},
            {"DELAY": "3", "KEYS": "\U0001f980", "WAIT": "true"},
            {"TIMER_DELAY_SEC": "3", "UNIQ_KEY": "Größe"},
            {"UNIQ_KEY": "7F01", "TRAN_MSG": "true", "PGROUP": "pg", "KEYS": 'é\n"\\'},
            {"名": "x"},
        )
        frames = [
            encode(Command(code=310, opaque=n, ext=sending("Orders", properties=each)))
            for n, each in enumerate(told)
        ]
        self.assertEqual(self.drive(b"".join(frames), []), 4)
        ext = sending("Orders", properties=told[0])
        binary = encode(Command(code=310, ext=ext, serialize=SerializeType.ROCKETMQ))
        self.assertEqual(self.drive(binary, []), 0)
        ext = sending("Orders", batch=True, properties={"KEYS": "é"})
        body = batch((b"1", "KEYS\x01ü\x02"), (b"2", ""))
        self.assertEqual(self.drive(encode(Command(code=320, ext=ext, body=body)), []), 1)

    def test_no_letters(self) -> None:
        """Bytes that are not UTF-8: cut short, longer than need be, half of a pair of UTF-16, or
        too high.
        """
        whole = encode(Command(code=310, ext=sending("Orders", properties={"KEYS": "????"})))
        for text in (b"\xc3???", b"\xc0\xaf??", b"\xed\xa0\x80?", b"\xf4\x90\x80\x80", b"???\x80"):
            self.assertEqual((text, self.drive(whole.replace(b"????", text), [])), (text, 0))
        self.assertEqual(self.drive(whole.replace(b"????", b"\xc3\xa9\x7f?"), []), 1)

    def test_no_timers(self) -> None:
        """Where none are taken they are refused in the usual way, and the others are stored."""
        self.sections = {"timers": TimerSettings(enabled=False)}
        frames = [
            encode(Command(code=310, opaque=n, ext=sending("Orders", properties=told)))
            for n, told in enumerate(({"TIMER_DELAY_SEC": "5"}, {"KEYS": "k"}) * 3)
        ]
        self.assertEqual(self.drive(b"".join(frames), []), 3)

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
        self.drive(b"".join(map(encode, (single, many, many, single, single, many))), cuts)

    def test_usual_batches(self) -> None:
        """What producers send as batches goes the short way, with other batches in a run, and with
        singles and ends of half messages behind them; one of very many messages does not.
        """
        own = "UNIQ_KEY\x0171\x02WAIT\x01true\x02"
        for kind in SerializeType:
            frames, short = [], 0
            for number, count in enumerate((1, 2, 33, 4097, 1, 200, 5, 5)):
                items = [(bytes(n % 50), own if n % 3 else "") for n in range(count)]
                told = properties(WAIT="true", TAGS="T")
                ext = sending("Orders", queue_id=number % 4, batch=True, properties=told)
                many = Command(
                    code=320,
                    opaque=number,
                    ext=ext,
                    body=batch(*items),
                    flag=2 * (number == 2),
                    serialize=kind,
                )
                frames.append(encode(many))
                short += count < 4097
            ext = sending("Orders", properties=HALF)
            frames.append(encode(Command(code=310, opaque=99, ext=ext, serialize=kind)))
            one = encode(Command(code=310, opaque=98, ext=sending("Orders"), serialize=kind))
            self.assertEqual(short + 3, self.drive(b"".join([*frames, one, one]), []))

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


ORIGINALS: tuple[dict[str, Any], ...] = (
    {},
    {"properties": properties(KEYS="a b", UNIQ_KEY="7F01", DELAY="0", TAGS="T")},
    {"reconsume_times": 2, "properties": properties(RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="ID")},
    {"reconsume_times": 15, "properties": properties(REAL_QID="7", A="é", REAL_TOPIC="%RETRY%x")},
    {"reconsume_times": 16},
    {"reconsume_times": -2},
    {"properties": properties(TIMER_DELAY_SEC="0", TRACE="T", ORDER="2")},
    {"properties": "A\x01b\x01c\x02DELAYED\x011"},
    {"properties": HALF},
    {"properties": properties(DELAY="2")},
    {"sys_flag": 8},
    {"properties": properties(**{f"name{number}": "v" for number in range(33)})},
)
"""What was sent of messages that are given back."""

BACK_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "group": st.sampled_from(("g", "one", "several", "shut", "nobody", "a@b", "")),
        "offset": st.sampled_from(("1", "-1", "99999999999", "x")),
        "delayLevel": st.sampled_from(("-1", "3", "18", "19", "2147483648", "007", "")),
        "maxReconsumeTimes": st.sampled_from(("-1", "0", "1", "3", "16", "")),
        "originMsgId": st.sampled_from(("ID", "")),
        "originTopic": st.sampled_from(("Orders", "é")),
        "unitMode": st.sampled_from(("true", "false", "1")),
        "topic": st.just("Orders"),
        "queueId": st.just("1"),
        "zone": st.just("1"),
    },
)

GIVEN = st.builds(
    lambda which, level, fields, missing, **more: (which, level, fields, missing, more),
    which=st.integers(0, len(ORIGINALS) - 1),
    level=st.sampled_from((0, 0, 1)),
    fields=st.just({}) | st.just({}) | BACK_FIELDS,
    missing=st.sampled_from(("", "", "", "group", "offset", "delayLevel")),
    opaque=st.integers(0, 2**31 - 1) | st.just(-5),
    flag=st.sampled_from((0, 0, 0, 0, 2)),
    version=st.sampled_from((407, 407, 120, 121)),
    body=st.sampled_from((b"", b"", b"", b"x")),
    serialize=st.sampled_from((SerializeType.JSON,) * 4 + (SerializeType.ROCKETMQ,)),
)


class GiveBackTests(LaneTestCase):
    """What consumers give back, on both ways."""

    def both(self) -> tuple[tuple[tuple[Broker, Client], tuple[Broker, Client]], list[int]]:
        """Both brokers, with groups and what is given back, and where that is."""
        both, offsets = self.pair(), []
        for broker, client in both:
            for group, queues, perm in (("g", 1, 6), ("one", 1, 6), ("several", 3, 6)):
                broker.groups.put(GroupConfig(group_name=group, retry_queue_nums=queues))
                broker.topics.ensure(f"%RETRY%{group}", queues, perm=perm)
            broker.groups.put(GroupConfig(group_name="shut", retry_max_times=1))
            broker.topics.ensure("%RETRY%shut", 1, perm=4)
            for number, original in enumerate(ORIGINALS):
                command = Command(code=310, ext=sending("Orders", **original), body=b"b" * number)
                client.send(command)
            offsets = [int(answer.ext["msgId"][16:], 16) for answer in client.heard()]
            self.assertEqual(len(ORIGINALS), len(offsets))
            assert broker.lane is not None, "a lane"
            broker.lane.messages = 0
        return both, offsets

    def counted(self, broker: Broker) -> tuple[object, ...]:
        """And of retries."""
        back = {key: (meter.total, meter.times) for key, meter in broker.counts.each(SENT_BACK)}
        calls = {kind: took.count for kind, took in broker.registry.calls.took.items()}
        calls = {kind: count for kind, count in calls.items() if kind[0] == BACK}
        return (*super().counted(broker), back, calls, broker.retries.dead)

    @settings(max_examples=tries(30))
    @given(
        requests=st.lists(st.tuples(GIVEN, st.integers(0, 4)), min_size=1, max_size=8),
        cuts=st.lists(st.integers(0, 1 << 20), max_size=3),
        dispatched=st.booleans(),
    )
    def test_requests(
        self,
        requests: list[tuple[tuple[Any, ...], int]],
        cuts: list[int],
        dispatched: bool,
    ) -> None:
        """Usual requests and unusual ones, before dispatch has reached the messages and after."""
        both, offsets = self.both()
        frames = []
        for (which, level, fields, missing, more), style in requests:
            header = SendBackRequest(offset=offsets[which], group="g", delay_level=level)
            ext = to_ext(header) | fields
            ext.pop(missing, None)
            frames.append(written(Command(code=BACK, ext=ext, **more), style))
        data = b"".join(frames)
        if dispatched:
            self.clock.advance(0.5)
        for _, client in both:
            random.seed(len(data))  # for groups with several queues
            self.stream(client, data, cuts)
        self.same(*both)

    def test_usual(self) -> None:
        """What usual consumers give back goes the short way, whatever else comes between."""
        both, offsets = self.both()
        commands = []
        for number in range(40):
            header = SendBackRequest(
                offset=offsets[number % 3],
                group=("g", "one")[number % 2],
                delay_level=number % 5,
                origin_msg_id="ID",
                origin_topic="Orders",
                max_reconsume_times=16,
            )
            commands.append(Command(code=BACK, ext=to_ext(header), opaque=number, version=407))
        for _, client in both:
            client.send(*commands, Command(code=310, ext=sending("Orders")), *commands)
        self.same(*both)
        self.assertEqual(81, self.taken(both[0][0]))

    def test_again(self) -> None:
        """A message that came again and is given back again goes the short way."""
        both, offsets = self.both()
        for _, client in both:
            self.give(client, offsets[0])
        self.clock.advance(0.5)
        for broker, client in both:
            waiting = broker.lookup.by_queue_offset(SCHEDULE_TOPIC, 0, 0)
            assert waiting is not None, "a copy"
            due = broker.messages.due(waiting)
            assert due is not None, "what it becomes"
            self.give(client, broker.store.put(due).begin)
        self.same(*both)
        self.assertEqual(2, self.taken(both[0][0]))

    def give(self, client: Client, offset: int) -> None:
        """Give a message back for a second."""
        header = SendBackRequest(offset=offset, group="g", delay_level=1)
        client.send(Command(code=BACK, ext=to_ext(header)))

    def test_statuses(self) -> None:
        """Each is told what the run came to, and a message that is on its way is kept by who gave
        it back until then.
        """
        broker = self.broker()
        broker.groups.find("g")
        for topic in ("Orders", "%RETRY%g"):
            broker.topics.ensure(topic, 1)
        client = self.client()
        client.send(Command(code=310, ext=sending("Orders")))
        client.heard()
        for status in PutStatus:
            self.writer.outcome = waiting = Deferred()
            self.give(client, 0)
            self.assertEqual([], client.heard())
            waiting.callback(status)
            (answer,) = client.heard()
            kept = status in (PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE)
            said = (0, None) if kept else (ResponseCode.SYSTEM_ERROR, status.value)
            self.assertEqual(said, (answer.code, answer.remark))
        self.assertEqual(1 + len(PutStatus), self.taken(broker))


class ShortWayTests(LaneTestCase):
    """What becomes of a run."""

    def setUp(self) -> None:
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

    def test_behind_answers(self) -> None:
        """What comes behind the small answers to requests of ours goes the short way too."""
        answer = Command(code=0, flag=RESPONSE)
        sent = [Command(code=310, opaque=n, ext=sending("Orders")) for n in range(2)]
        self.asking.send(answer, answer, *sent, answer, *sent)
        self.assertEqual(4, self.taken(self.serving))

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
