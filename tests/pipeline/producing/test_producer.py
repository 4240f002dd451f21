"""Tests for L{rmqha.pipeline.producing}, beside stand-ins of its peers on loopback."""

from __future__ import annotations

import socket
import time
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import RemotingTimeout, RemotingUnreachable
from rmqha.pipeline.producing.errors import (
    MessageNotSendable,
    NoRoute,
    NoWritableQueue,
    QueueUnknown,
    SendFailed,
)
from rmqha.pipeline.producing.messages import Outgoing, Parcel, UniqueKeys, parcels
from rmqha.pipeline.producing.producer import Pace, Producer
from rmqha.pipeline.producing.routes import Queue, Routes
from rmqha.pipeline.producing.settings import SendOptions
from rmqha.pipeline.remoting.errors import RemotingClosed
from rmqha.pipeline.remoting.name_servers import NameServerClient
from rmqha.pipeline.remoting.peers import BlockingConnection, Peers
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import RESPONSE, Command
from rmqha.wire.remoting.frame import encode
from rmqha.wire.remoting.signature import Credentials
from tests.support.fake_broker import Answering, StandIn, route_of

SOON = 5.0

ASK = RequestCode.GET_BROKER_RUNTIME_INFO


def echo(request: Command) -> bytes:
    """Answer with the request's own body."""
    return encode(request.answer(body=request.body))


class ConnectionTests(SynchronousTestCase):
    def listen(self, answer: Any = echo, chunk: int = 0) -> Answering:
        peer = Answering(answer, chunk)
        self.addCleanup(peer.close)
        return peer

    def connect(self, peer: Answering) -> BlockingConnection:
        made = BlockingConnection(peer.address, SOON)
        self.addCleanup(made.close)
        return made

    def test_any_chunking(self) -> None:
        """An answer is the same however it is cut."""
        for chunk in (1, 2, 7, 64):
            connection = self.connect(self.listen(chunk=chunk))
            body = bytes(range(256))
            for _ in range(2):
                self.assertEqual(body, connection.ask(Command(code=ASK, body=body), SOON).body)

    def test_any_order(self) -> None:
        """Answers belong to requests by number, not order; requests of the peer are passed over."""
        held: list[Command] = []

        def backwards(request: Command) -> bytes | None:
            held.append(request)
            if len(held) < 3:
                return None
            noise = encode(Command(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque=1))
            noise += encode(Command(code=1, opaque=99, flag=RESPONSE, body=b"for nobody"))
            return noise + b"".join(echo(each) for each in reversed(held))

        connection = self.connect(self.listen(backwards))
        self.assertRaises(TimeoutError, connection.answer, 7, 0.01)
        numbers = [connection.send(Command(code=ASK, body=b"%d" % n)) for n in range(3)]
        found = [bytes(connection.answer(number, SOON).body) for number in numbers]
        self.assertEqual([b"0", b"1", b"2"], found)

    def test_heard(self) -> None:
        """Whoever does not care gets answers as they come."""
        connection = self.connect(self.listen())
        for n in range(3):
            connection.send(Command(code=ASK, body=b"%d" % n))
        self.assertEqual([b"0", b"1", b"2"], [bytes(connection.heard(SOON).body) for _ in range(3)])

    def test_silence(self) -> None:
        """No answer is waited for longer than was said, also while other bytes come."""
        half = self.listen(lambda request: echo(request)[:-1])
        for peer in (self.listen(lambda request: None), half):
            connection = self.connect(peer)
            begun = time.monotonic()
            self.assertRaises(TimeoutError, connection.ask, Command(code=ASK, body=b"x"), 0.1)
            self.assertLess(time.monotonic() - begun, SOON)

    def test_errors(self) -> None:
        """What goes wrong on the way says who, and how."""
        closing = self.listen(lambda request: closing.cut())  # type: ignore[func-returns-value]
        silent = self.listen(lambda request: None)
        garbled = self.listen(lambda request: b"\xff" * 64)
        with socket.create_server(("127.0.0.1", 0)) as once:
            nobody = f"127.0.0.1:{once.getsockname()[1]}"
        for address, kind in (
            (nobody, RemotingUnreachable),
            ("nowhere", RemotingUnreachable),
            ("", RemotingUnreachable),
            (closing.address, RemotingClosed),
            (garbled.address, RemotingClosed),
            (silent.address, RemotingTimeout),
        ):
            with Peers(0.3) as peers:
                error = self.assertRaises(kind, peers.ask, address, Command(code=ASK))
                self.assertIn(address, str(error))

    def test_signed(self) -> None:
        """With credentials each request is signed, another time if it is sent again."""
        heard: list[Command] = []

        def note(request: Command) -> bytes | None:
            heard.append(request)
            return echo(request)

        peer = self.listen(note)
        with Peers(0.5, Credentials("RocketMQ", "12345678")) as peers:
            for body in (b"x", b"y", b"x"):
                peers.ask(peer.address, Command(code=ASK, ext={"a": "1"}, body=body))
        told = [request.ext["Signature"] for request in heard]
        self.assertEqual(told[0], told[2])
        self.assertNotEqual(told[0], told[1])
        self.assertEqual(heard[0].ext["AccessKey"], "RocketMQ")

    def test_peers(self) -> None:
        """Peers are asked at once, over one connection each, made again; none holds up others."""
        first = True

        def once(request: Command) -> bytes | None:
            nonlocal first
            first, was = False, first
            return None if was else echo(request)

        good, bad = self.listen(), self.listen(once)
        with Peers(0.5) as peers:
            requests = [(peer.address, Command(code=ASK, body=b"x")) for peer in (good, bad, good)]
            answers = peers.ask_all(requests)
            self.assertEqual(
                [Command, RemotingTimeout, Command], [type(answer) for answer in answers]
            )
            self.assertEqual(b"x", peers.ask(bad.address, Command(code=ASK, body=b"x")).body)


class ProducerTests(SynchronousTestCase):
    def stand_in(self, *, name: str = "broker-a", **topics: int) -> StandIn:
        made = StandIn(topics, broker=name)
        self.addCleanup(made.server.close)
        return made

    def pair(self) -> tuple[StandIn, StandIn]:
        """Two brokers with one topic; the first is the name server too."""
        one, other = self.stand_in(T=2), self.stand_in(name="broker-b", T=2)
        one.route = lambda topic: route_of(topic, one, other) if topic == "T" else None
        return one, other

    def producer(self, *servers: StandIn, fold: bool = False, **more: Any) -> Producer:
        """A producer that does not really pause."""
        self.paused: list[float] = []
        addresses = tuple(each.address for each in servers)
        options = SendOptions(name_server=addresses, **{"send_timeout": SOON, **more})
        made = Producer(options, fold, self.paused.append)
        self.addCleanup(made.peers.close)
        return made

    def messages(self, count: int, **more: Any) -> list[Outgoing]:
        return [Outgoing("T", b"%d" % n, {"KEYS": f"k{n}"}, **more) for n in range(count)]

    def test_all_arrive(self) -> None:
        """Messages for no queue are spread over all, many in a request; each has a key."""
        broker = self.stand_in(T=3)
        producer = self.producer(broker)
        self.assertEqual([0] * 30, producer.send(self.messages(30)))
        self.assertEqual({0: 30}, producer.sent)
        self.assertEqual([10, 10, 10], [len(broker.bodies("T", n)) for n in range(3)])
        self.assertEqual([105, 320, 320, 320], broker.requests)
        self.assertEqual(
            {f"k{n}" for n in range(30)}, {m.properties["KEYS"] for m in broker.stored}
        )
        keys = {message.properties["UNIQ_KEY"] for message in broker.stored}
        self.assertEqual(30, len(keys))
        self.assertEqual({32}, {len(key) for key in keys})

    def test_queues(self) -> None:
        """A queue that was asked for is kept, in order, in requests of any size."""
        for batch in (0, 60, 1 << 20):
            broker = self.stand_in(T=2)
            messages = [
                Outgoing("T", b"%d" % n, {}, queue_id=n % 2, flag=n, sys_flag=0x301 * (n % 3 == 0))
                for n in range(20)
            ]
            self.producer(broker, batch_bytes=batch).send(messages)
            for queue_id in (0, 1):
                wanted = [b"%d" % n for n in range(queue_id, 20, 2)]
                self.assertEqual(wanted, broker.bodies("T", queue_id), batch)
            for each in broker.stored:
                self.assertEqual(int(each.body), each.flag)
                self.assertEqual(0x301 if each.flag % 3 == 0 else 0, each.sys_flag)

    def test_alone(self) -> None:
        """What cannot be in a batch goes alone."""
        broker = self.stand_in(T=1, **{"%RETRY%g": 1})
        self.producer(broker).send(
            [
                Outgoing("T", b"a", {}),
                Outgoing("T", b"b", {"DELAY": "3"}),
                Outgoing("T", b"c", {}),
                Outgoing("%RETRY%g", b"d", {}),
                Outgoing("%RETRY%g", b"e", {}),
            ]
        )
        self.assertEqual([b"a", b"b", b"c"], broker.bodies("T", 0))
        self.assertNotIn(320, broker.requests)

    def test_slowly(self) -> None:
        """What is to go slowly goes in small requests, one at a time."""
        broker = self.stand_in(T=2)
        for limit in ({"max_rows_per_second": 50}, {"max_bytes_per_second": 1000}):
            broker.requests.clear()
            self.producer(broker, **limit).send(self.messages(20))
            self.assertGreaterEqual(len(broker.requests), 5)
            self.assertGreaterEqual(len(self.paused), 3)

    def test_key_kept(self) -> None:
        """A message that has a key keeps it."""
        broker = self.stand_in(T=1)
        self.producer(broker).send([Outgoing("T", b"a", {"UNIQ_KEY": "mine"})])
        self.assertEqual("mine", broker.stored[0].properties["UNIQ_KEY"])

    def test_unknown_queue(self) -> None:
        """A queue that is not there is an error, or one that is, always the same."""
        broker = self.stand_in(T=2)
        message = Outgoing("T", b"a", {}, queue_id=5)
        error = self.assertRaises(QueueUnknown, self.producer(broker).send, [message])
        self.assertEqual((5, 2), (error.queue_id, error.queues))
        self.producer(broker, fold=True).send([message, message])
        self.assertEqual([b"a", b"a"], broker.bodies("T", 1))

    def test_broker_of_same_name(self) -> None:
        """Of several brokers that of the source's name is taken, or always the same."""
        one, other = self.pair()
        messages = [
            evolve(each, queue_id=1, source=source)
            for source in ("broker-b", "broker-x")
            for each in self.messages(4)
        ]
        self.producer(one).send(messages)
        counts = sorted((len(one.bodies("T", 1)), len(other.bodies("T", 1))))
        self.assertIn(counts, ([0, 8], [4, 4]))
        self.assertGreaterEqual(len(other.bodies("T", 1)), 4)

    # --- answers ------------------------------------------------------------

    def test_stored_but(self) -> None:
        """Codes that say that a message is stored are no failures, and are counted."""
        broker = self.stand_in(T=1)
        broker.codes = [10, 11, 12]
        producer = self.producer(broker)
        for message in self.messages(4):
            producer.send([message])
        self.assertEqual({10: 1, 11: 1, 12: 1, 0: 1}, producer.sent)

    def test_again_elsewhere(self) -> None:
        """What a broker cannot take now is brought to another one, without a pause."""
        one, other = self.pair()
        one.codes = [14]
        self.producer(one).send(self.messages(1))
        self.assertEqual([b"0"], [message.body for message in other.stored])
        self.assertEqual([], [pause for pause in self.paused if pause])

    def test_again_here(self) -> None:
        """What has to go to one queue is sent there again, ever more slowly, in order."""
        broker = self.stand_in(T=2)
        broker.codes = [0, 14, 2]
        self.producer(broker, batch_bytes=0).send(self.messages(4, queue_id=1))
        self.assertEqual([b"0", b"1", b"2", b"3"], broker.bodies("T", 1))
        self.assertEqual([0.25, 0.5], self.paused)

    def test_lost_answers(self) -> None:
        """A message whose answer was lost is sent again with the same key."""
        for lost in (None, -1):
            broker = self.stand_in(T=1)
            broker.codes, broker.late = [lost], True
            producer = self.producer(broker, send_timeout=0.3)
            producer.send(self.messages(1))
            self.assertEqual([b"0", b"0"], broker.bodies("T", 0))
            self.assertEqual(1, len({each.properties["UNIQ_KEY"] for each in broker.stored}))
            self.assertEqual({0: 1}, producer.sent)

    def test_given_up(self) -> None:
        """After all tries the error has the last code and remark; other queues' are stored."""
        broker = self.stand_in(T=2)
        broker.codes = [1, 0, 14, 14]
        messages = [Outgoing("T", b"%d" % n, {"UNIQ_KEY": f"u{n}"}, queue_id=n) for n in (0, 1)]
        error = self.assertRaises(SendFailed, self.producer(broker).send, messages)
        self.assertEqual((14, "as told: 14", 3), (error.code, error.remark, error.tries))
        self.assertEqual(("T", "broker-a:0", "u0"), (error.topic, error.queue, error.key))
        self.assertEqual([b"1"], broker.bodies("T", 1))

    def test_refused(self) -> None:
        """What a broker never takes is not sent again; of a batch only that is not stored."""
        broker = self.stand_in(T=1)
        broker.codes = [ResponseCode.MESSAGE_ILLEGAL, 0, ResponseCode.MESSAGE_ILLEGAL]
        messages = [Outgoing("T", b"%d" % n, {"UNIQ_KEY": f"u{n}"}) for n in range(3)]
        error = self.assertRaises(SendFailed, self.producer(broker).send, messages)
        self.assertEqual((13, "u1", 1), (error.code, error.key, error.tries))
        self.assertEqual([b"0"], broker.bodies("T", 0))

    def test_master_moves(self) -> None:
        """A queue is found where its broker's master is now."""
        old, new = self.stand_in(T=1), self.stand_in(T=1)
        servers = iter([old])
        old.route = lambda topic: route_of(topic, next(servers, new))
        old.codes = [ResponseCode.SERVICE_NOT_AVAILABLE]
        self.producer(old).send(self.messages(1, queue_id=0))
        self.assertEqual([b"0"], new.bodies("T", 0))

    # --- routes -------------------------------------------------------------

    def test_name_servers(self) -> None:
        """The first name server that answers is asked, and remembered."""
        broker, gone = self.stand_in(T=1), self.stand_in()
        gone.server.close()
        with Peers(SOON) as peers:
            routes = Routes(NameServerClient((gone.address, broker.address), peers))
            self.assertEqual((Queue("broker-a", 0, broker.address),), routes.queues("T"))
            self.assertEqual((broker.address, gone.address), routes.name_servers.addresses)

    def test_no_route(self) -> None:
        """A topic that nobody knows and nobody makes is an error, and so are silent servers."""
        server = self.stand_in()
        error = self.assertRaises(NoRoute, self.producer(server).send, self.messages(1))
        self.assertIn("no broker creates topics", str(error))
        server.server.close()
        error = self.assertRaises(NoRoute, self.producer(server).send, self.messages(1))
        self.assertIn(server.address, str(error))

    def test_wrong_routes(self) -> None:
        """A name server that says nonsense, or that it is not well, is passed over."""
        broker = self.stand_in(T=1)
        for nonsense in (
            lambda request: encode(request.answer(body=b"[1]")),
            lambda request: encode(request.answer(ResponseCode.SYSTEM_ERROR, "not well")),
            lambda request: b"\0" * 64,
        ):
            odd = Answering(nonsense)
            self.addCleanup(odd.close)
            with Peers(SOON) as peers:
                routes = Routes(NameServerClient((odd.address, broker.address), peers))
                self.assertEqual(1, len(routes.queues("T")))
                self.assertRaises(
                    NoRoute, Routes(NameServerClient((odd.address,), peers)).queues, "T"
                )

    def test_new_topic(self) -> None:
        """A topic that is not there is made by its first message, as brokers allow it."""
        broker = self.stand_in(TBW102=8)
        self.producer(broker).send(self.messages(8))
        self.assertEqual([2, 2, 2, 2], [len(broker.bodies("T", n)) for n in range(4)])

    def test_not_writable(self) -> None:
        """A topic without write permission, or without a master, is an error."""
        broker = self.stand_in(T=1)
        for route in (
            route_of("T", broker, perm=4),
            TopicRoute(queue_datas=route_of("T", broker).queue_datas),
        ):
            broker.route = lambda topic, route=route: route  # type: ignore[misc]
            self.assertRaises(NoWritableQueue, self.producer(broker).send, self.messages(1))

    def test_fresh(self) -> None:
        """A route is believed for a while."""
        broker = self.stand_in(T=1)
        now = [0.0]
        with Peers(SOON) as peers:
            routes = Routes(NameServerClient((broker.address,), peers), clock=lambda: now[0])
            for at, asked in ((0.0, 1), (29.0, 1), (31.0, 2)):
                now[0] = at
                routes.queues("T")
                self.assertEqual(asked, len(broker.requests))


class MessageTests(SynchronousTestCase):
    """What may be sent, and how it is packed."""

    def test_unsendable(self) -> None:
        """What would be another message than it says is refused before anything is sent."""
        for topic, properties, reason in (
            ("", {}, "no topic"),
            ("a" * 128, {}, "longer than 127"),
            ("SCHEDULE_TOPIC_XXXX", {}, "reserved for brokers"),
            ("T", {"TRAN_MSG": "true"}, "reserved for brokers"),
            ("T", {"REAL_TOPIC": "x"}, "reserved for brokers"),
            ("T", {"a\x01b": "x"}, "control characters"),
            ("T", {"a": "x\x02TRAN_MSG\x01true"}, "control characters"),
            ("T", {"": "x"}, "has no name"),
            ("T", {"a": ""}, "has no value"),
            ("T", {"a": "x" * 40_000}, "40003 bytes"),
        ):
            message = Outgoing(topic, b"", properties)
            self.assertIn(reason, str(self.assertRaises(MessageNotSendable, message.check)))

    @given(
        st.lists(
            st.tuples(st.integers(0, 300), st.sampled_from([0, 0x301]), st.booleans()), max_size=30
        ),
        st.integers(0, 2000),
    )
    def test_packing(self, shapes: list[tuple[int, int, bool]], most: int) -> None:
        """Packed, messages keep their order; no parcel is too large, or has what it may not."""
        messages = [
            Outgoing("T", bytes(size), {"DELAY": "1"} if late else {}, sys_flag=flag)
            for size, flag, late in shapes
        ]
        packed: list[Parcel] = list(parcels(Queue("b", 0, "h:1"), messages, False, most))
        self.assertEqual(messages, [each for parcel in packed for each in parcel.messages])
        for parcel in packed:
            if len(parcel.messages) > 1:
                self.assertLessEqual(sum(each.size for each in parcel.messages), most)
                self.assertEqual(1, len({each.sys_flag for each in parcel.messages}))
                self.assertFalse(any(each.alone for each in parcel.messages))

    def test_unique_keys(self) -> None:
        """Keys differ, and tell when they were made."""
        keys = UniqueKeys()
        found = [keys.next() for _ in range(100)]
        self.assertEqual(100, len(set(found)))
        span = int(found[0][20:28], 16) / 1000
        month = time.mktime((*time.localtime()[:2], 1, 0, 0, 0, 0, 0, -1))
        self.assertLess(abs(time.time() - month - span), 60)

    def test_pace(self) -> None:
        """Neither rows nor bytes go faster than they may, and rest is not saved up."""
        now = [100.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        pace = Pace(10, 1000, clock=lambda: now[0], sleep=sleep)
        for _ in range(5):
            pace.wait(10, 100)
        self.assertAlmostEqual(104.0, now[0])
        now[0] += 50
        pace.wait(1, 2000)
        pace.wait(1, 1)
        self.assertAlmostEqual(104.0 + 50 + 2, now[0])
        free = Pace(clock=lambda: now[0], sleep=self.fail)
        for _ in range(9):
            free.wait(1 << 20, 1 << 40)
