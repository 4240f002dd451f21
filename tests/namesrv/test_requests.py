"""A name server's answers: those of Java's to the same frames, and what differs on purpose."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogLevel, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.settings import NamesrvSettings
from rmqha.config.values import NETWORKS
from rmqha.namesrv.kv import ORDER_TOPICS, KvConfig
from rmqha.namesrv.service import NameServer
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies import register
from rmqha.wire.remoting.codes import LanguageCode
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
from tests.support.frames import CapturedFrame, frames
from tests.support.log_lines import log_events

TOPICS = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
    b'"timestamp":5},"topicConfigTable":{"t":{"topicName":"t","readQueueNums":4,'
    b'"writeQueueNums":4,"perm":6,"topicSysFlag":2}}}}'
)

#: Recordings of one run, beside each other.
TOGETHER = (
    "broker-namesrv",
    "mqadmin",
    "client-under-mqadmin",
    "client-producer",
    "client-producer-v1",
    "client-producer-rocketmq",
    "client-push",
    "client-push-rocketmq",
    "client-push-short",
    "client-transaction",
    "client-orderly",
    "client-pull",
    "client-broadcast",
    "client-slave-read",
)

#: Those of 5.3.3 that are of another run.
APART = ("client-push",)


@define
class Peer:
    """Somebody who is connected."""

    protocol: RemotingProtocol
    transport: StringTransport
    _decoder: FrameDecoder = field(init=False, factory=FrameDecoder)

    def send(self, raw: bytes) -> list[Command]:
        """Send a frame, and return what comes back."""
        self.protocol.dataReceived(raw)
        data = self.transport.value()
        self.transport.clear()
        return self._decoder.receive(data)

    def ask(self, code: int, body: bytes = b"", *, version: int = 407, **ext: object) -> Command:
        command = Command(
            code=code,
            opaque=7,
            version=version,
            ext={name: str(value) for name, value in ext.items()},
            body=body,
        )
        (answer,) = self.send(encode(command))
        return answer


class NamesrvCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.start()

    def start(self, **values: Any) -> None:
        self.clock = Clock()
        self.saved: list[dict[str | int, Any]] = []
        self.server = NameServer(NamesrvSettings(**values), self.clock, KvConfig(self.save))
        self.server.start()
        self.addCleanup(self.server.stop)

    def save(self, table: dict[str | int, Any]) -> Deferred[None]:
        self.saved.append(table)
        return succeed(None)

    def peer(self, host: str = "10.0.0.1") -> Peer:
        address = IPv4Address("TCP", host, 5000)
        protocol = self.server.factory.buildProtocol(address)
        assert protocol is not None
        transport = StringTransport(peerAddress=address)
        protocol.makeConnection(transport)
        return Peer(protocol, transport)

    def register(self, peer: Peer, number: int = 0, body: bytes = TOPICS, **ext: Any) -> Command:
        given = {
            "brokerName": "broker-a",
            "brokerAddr": f"10.0.0.{number}:10911",
            "clusterName": "c",
            "haServerAddr": f"10.0.0.{number}:10912",
            "brokerId": number,
        } | ext
        return peer.ask(Code.REGISTER_BROKER, body, **given)


class ReplayTests(NamesrvCase):
    def value(self, body: bytes | memoryview) -> Any:
        """A body's value, without the order of what has none."""
        if not body:
            return None
        found = fastjson.loads(body)
        assert isinstance(found, dict)
        if "topicList" in found:
            found["topicList"] = sorted(found["topicList"])
        return found

    def replay(self, recordings: Iterable[str]) -> int:
        """Replay what was sent in the order of Java's answers: how many were compared."""
        answers: dict[tuple[str, int, int], CapturedFrame] = {}
        asked: list[tuple[float, str, CapturedFrame, CapturedFrame | None]] = []
        for name in recordings:
            for frame in reversed(frames(name)):
                note = frame.note
                place = name, note["conn"], note["opaque"]
                if note["from"] == "namesrv":
                    answers[place] = frame
                elif note["to"] == "namesrv":
                    answer = None if note["kind"] == "oneway" else answers.pop(place, None)
                    asked.append(((answer or frame).note["t"], name, frame, answer))
        peers: dict[tuple[str, int], Peer] = {}
        for time, name, frame, expected in sorted(asked, key=lambda one: one[0]):
            peer = peers.setdefault((name, frame.note["conn"]), self.peer())
            self.clock.advance(max(0.0, time - self.clock.seconds()))
            found = peer.send(frame.raw)
            if expected is None:
                self.assertEqual(found, [])
                continue
            (answer,) = found
            self.compare(f"{name} at {time}: {frame.request_code} {frame.ext}", answer, expected)
        return sum(expected is not None for _, _, _, expected in asked)

    def compare(self, what: str, answer: Command, expected: CapturedFrame) -> None:
        code = expected.request_code
        if code in (Code.UPDATE_NAMESRV_CONFIG, Code.GET_NAMESRV_CONFIG):
            return  # other keys
        self.assertEqual(answer.code, expected.note["code"], what)
        self.assertEqual(answer.ext, expected.ext, what)
        self.assertEqual(self.value(answer.body), self.value(expected.body), what)
        if answer.code:
            ours, java = str(answer.remark), str(expected.note["remark"])
            self.assertEqual(ours.split("\n")[0], java.split("\n")[0], what)

    def test_4(self) -> None:
        """4.9.7: brokers, mqadmin and all clients, beside each other as they were."""
        self.assertGreater(self.replay(f"{what}-4.9.7" for what in TOGETHER), 480)

    def test_5(self) -> None:
        """5.3.3: the same."""
        self.assertGreater(
            self.replay(f"{what}-5.3.3" for what in TOGETHER if what not in APART), 500
        )

    def test_acting(self) -> None:
        """5.3.3 with acting masters, by old and by new requests."""
        for name in ("broker-namesrv-acting-5.3.3", "broker-namesrv-acting-new-5.3.3"):
            self.start()
            self.assertGreater(self.replay([name]), 100)


class RequestTests(NamesrvCase):
    """What no recording has, and what differs on purpose."""

    def test_unknown_code(self) -> None:
        """What is not for a name server is answered 3, naming the code."""
        answer = self.peer().ask(Code.SEND_MESSAGE_V2)
        self.assertEqual((answer.code, answer.remark), (3, " request type 310 not supported"))

    def test_numeric_keys(self) -> None:
        """Old clients get ids without quotes, others and those who ask for it strict JSON."""
        peer = self.peer()
        self.register(peer)
        bare, quoted = b'{0:"10.0.0.0:10911"}', b'{"0":"10.0.0.0:10911"}'
        for version, ext, keys in (
            (400, {}, bare),
            (401, {}, quoted),
            (121, {"acceptStandardJsonOnly": "true"}, quoted),
        ):
            answer = peer.ask(Code.GET_ROUTEINFO_BY_TOPIC, version=version, topic="t", **ext)
            self.assertIn(keys, bytes(answer.body))
        for version, keys in ((400, bare), (401, quoted)):
            self.assertIn(keys, bytes(peer.ask(Code.GET_BROKER_CLUSTER_INFO, version=version).body))
        go = Command(code=Code.GET_BROKER_CLUSTER_INFO, version=317, language=LanguageCode.GO)
        (answer,) = peer.send(encode(go))
        json.loads(bytes(answer.body))

    def test_compressed(self) -> None:
        """A compressed registration is read, with its check sum; a wrong one is refused."""
        peer = self.peer()
        line = b"t 4 4 6 SINGLE_TAG"
        pieces = (b'{"counter":1,"timestamp":5}', None, line, b"[]")
        raw = b"".join(
            (1).to_bytes(4, "big") if piece is None else len(piece).to_bytes(4, "big") + piece
            for piece in pieces
        )
        body = zlib.compress(raw)
        self.assertEqual(
            self.register(peer, body=body, compressed="true", bodyCrc32=5).remark, "crc32 not match"
        )
        self.assertEqual(self.server.table.topics(), ())
        crc = register.checksum(body)
        self.assertEqual(self.register(peer, body=body, compressed="true", bodyCrc32=crc).code, 0)
        self.assertEqual(self.server.table.topics(), ("t",))

    def test_strange_registrations(self) -> None:
        """A registration without a name, with no address or with rubbish leaves nothing behind."""
        peer = self.peer()
        for ext, said in (
            ({"brokerName": " "}, "brokerName is empty"),
            ({"clusterName": ""}, "clusterName is empty"),
            ({"brokerId": "-1"}, "brokerId is -1"),
            ({"brokerId": "x"}, "brokerId"),
            ({"brokerAddr": "nowhere"}, "'nowhere' is not host:port"),
            ({"body": b"{"}, "RegisterBody"),
        ):
            answer = self.register(peer, **ext)
            self.assertEqual(answer.code, 1)
            self.assertIn(said, str(answer.remark))
        self.assertEqual(self.server.table.cluster_info().broker_addr_table, {})
        self.flushLoggedErrors()

    def test_slave_learns_its_master(self) -> None:
        """A slave's registration is answered with its master's addresses, and the order table."""
        peer = self.peer()
        peer.ask(Code.PUT_KV_CONFIG, namespace=ORDER_TOPICS, key="t", value="broker-a:4")
        self.register(peer)
        answer = self.register(self.peer(), 1)
        self.assertEqual(
            answer.ext, {"haServerAddr": "10.0.0.0:10912", "masterAddr": "10.0.0.0:10911"}
        )
        self.assertEqual(json.loads(bytes(answer.body)), {"table": {"t": "broker-a:4"}})

    def test_ordered_topics(self) -> None:
        """Routes tell the queues of ordered topics when that is switched on, while it runs too."""
        peer = self.peer()
        self.register(peer)
        peer.ask(Code.PUT_KV_CONFIG, namespace=ORDER_TOPICS, key="t", value="broker-a:4")

        def order() -> object:
            body = peer.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="t", version=409).body
            return json.loads(bytes(body)).get("orderTopicConf")

        self.assertIsNone(order())
        changed = peer.ask(Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")
        self.assertEqual((changed.code, order()), (0, "broker-a:4"))
        shown = bytes(peer.ask(Code.GET_NAMESRV_CONFIG).body)
        self.assertIn(b"orderMessageEnable=true\n", shown)
        self.assertIn(b"listenPort=9876\n", shown)

    def test_configuration_stays(self) -> None:
        """What cannot change while it runs is refused, by name, and nothing is changed."""
        peer = self.peer()
        for text, code, said in (
            (b"orderMessageEnable=true\nkvConfigPath=/etc/passwd", 16, "kvConfigPath"),
            (b"configStorePath=/x", 16, "black list"),
            (b"orderMessageEnable=perhaps", 1, "true or false"),
            (b"capKey=1", 1, "capKey"),
        ):
            answer = peer.ask(Code.UPDATE_NAMESRV_CONFIG, text)
            self.assertEqual(answer.code, code)
            self.assertIn(said, str(answer.remark))
        self.assertFalse(self.server.configuration.settings.order_messages)

    def test_texts(self) -> None:
        """Texts are kept before they are acknowledged, listed, and forgotten."""
        peer = self.peer()
        missing = peer.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="n")
        self.assertEqual((missing.code, missing.remark), (22, "No config item, Namespace: n"))
        peer.ask(Code.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        self.assertEqual(self.saved, [{"configTable": {"n": {"k": "v"}}}])
        peer.ask(Code.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        self.assertEqual(len(self.saved), 1)
        listed = peer.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="n")
        self.assertEqual(json.loads(bytes(listed.body)), {"table": {"k": "v"}})
        peer.ask(Code.DELETE_KV_CONFIG, namespace="n", key="k")
        self.assertEqual(peer.ask(Code.GET_KV_CONFIG, namespace="n", key="k").code, 22)
        self.assertEqual(peer.ask(Code.PUT_KV_CONFIG, namespace="n", key="k").code, 1)
        self.flushLoggedErrors()

    def test_texts_in_a_burst(self) -> None:
        """Three hundred texts during a write are one more write, in order, each answered."""
        writes: list[Deferred[None]] = []

        def save(table: dict[str | int, Any]) -> Deferred[None]:
            self.saved.append(table)
            writes.append(Deferred())
            return writes[-1]

        self.server.kv.save = save
        waiting = [self.server.kv.put("n", f"k{n % 100}", str(n)) for n in range(301)]
        self.assertIsNone(self.server.kv.get("n", "k0"))
        writes[0].callback(None)
        self.assertEqual(self.server.kv.get("n", "k0"), "0")
        writes[1].callback(None)
        for put in waiting:
            self.successResultOf(put)
        self.assertEqual((len(self.saved), self.server.kv.get("n", "k0")), (2, "300"))
        self.assertEqual(self.server.kv.get("n", "k99"), "299")

    def test_disk_fails(self) -> None:
        """A text that could not be kept is refused, and is not there."""
        peer = self.peer()
        self.server.kv.save = lambda table: fail(OSError("no space"))
        answer = peer.ask(Code.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        self.assertEqual((answer.code, answer.remark), (1, "OSError: no space"))
        self.assertEqual(peer.ask(Code.GET_KV_CONFIG, namespace="n", key="k").code, 22)
        self.flushLoggedErrors(OSError)

    def test_topic_lists(self) -> None:
        """Lists by cluster, by flag, of system topics; a topic can be added."""
        peer = self.peer()
        self.register(peer)
        route = (
            b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,'
            b'"perm":6}]}'
        )
        self.assertEqual(peer.ask(Code.REGISTER_TOPIC_IN_NAMESRV, route, topic="u").code, 0)

        def names(code: int, **ext: str) -> list[str]:
            found: list[str] = json.loads(bytes(peer.ask(code, **ext).body))["topicList"]
            return found

        self.assertEqual(names(Code.GET_TOPICS_BY_CLUSTER, cluster="c"), ["t", "u"])
        self.assertEqual(names(Code.GET_TOPICS_BY_CLUSTER, cluster="d"), [])
        self.assertEqual(names(Code.GET_UNIT_TOPIC_LIST), [])
        self.assertEqual(names(Code.GET_HAS_UNIT_SUB_TOPIC_LIST), ["t"])
        self.assertEqual(names(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST), ["t"])
        self.assertEqual(names(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS), ["c", "broker-a"])

    def test_connecting(self) -> None:
        """With clientAllowedPeers the others are not let in at all."""
        server = NameServer(
            NamesrvSettings(),
            Clock(),
            KvConfig(lambda table: succeed(None)),
            connecting=NETWORKS.parse("10.0.0.0/24"),
        )
        friend, stranger = (
            server.factory.buildProtocol(IPv4Address("TCP", host, 40000))
            for host in ("10.0.0.7", "10.0.1.7")
        )
        self.assertIsNotNone(friend)
        self.assertIsNone(stranger)

    def test_allowed_peers(self) -> None:
        """With a list, only who is on it changes anything; everybody asks."""
        self.start(allowed_peers=NETWORKS.parse("10.0.0.0/24"))
        self.register(self.peer("10.0.0.9"))
        stranger = self.peer("10.9.9.9")
        listed = [code for code, need in self.server.needs.items() if need.listed]
        self.assertTrue(listed)
        for code in listed:
            self.assertEqual(stranger.ask(code).code, 16)
        self.assertEqual(stranger.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="t").code, 0)

    def test_two_of_one_name(self) -> None:
        """Another address with a live broker's name and id is told about loudly."""
        told = log_events(self)
        self.register(self.peer())
        self.register(self.peer(), brokerAddr="10.6.6.6:1")
        (error,) = (event for event in told if event["log_level"] is LogLevel.error)
        self.assertEqual((error["address"], error["before"]), ("10.6.6.6:1", "10.0.0.0:10911"))

    def told(self) -> list[dict[str, Any]]:
        """The errors in the log from now on."""
        told: list[dict[str, Any]] = []

        def observe(event: Any) -> None:
            if event["log_level"] is LogLevel.error:
                told.append(event)

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return told

    def test_lower_master(self) -> None:
        """A master of ours hears which other has a higher epoch; the log has it once."""
        told = self.told()
        self.register(self.peer(), masterEpoch=2)
        low = self.peer()
        for _ in range(2):
            answer = self.register(low, brokerAddr="10.6.6.6:1", masterEpoch=1)
            self.assertEqual(answer.code, 0)
            self.assertEqual(
                answer.ext,
                {
                    "haServerAddr": "10.0.0.0:10912",
                    "masterAddr": "10.0.0.0:10911",
                    "masterEpoch": "2",
                },
            )
        (error,) = told
        self.assertEqual((error["address"], error["master"]), ("10.6.6.6:1", "10.0.0.0:10911"))
        self.assertEqual((error["epoch"], error["higher"]), (1, 2))
        (row,) = self.server.fields()["refusedMasters"]
        self.assertEqual((row["address"], row["masterEpoch"]), ("10.6.6.6:1", 1))
        low.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.server.fields()["refusedMasters"], [])

    def test_lower_stock_master(self) -> None:
        """A stock master, which tells no epoch, is refused in a way that it logs."""
        self.register(self.peer(), masterEpoch=1)
        answer = self.register(self.peer(), brokerAddr="10.6.6.6:1")
        self.assertEqual(answer.code, 1)
        self.assertIn("10.0.0.0:10911, by its master epoch 1", str(answer.remark))
        self.flushLoggedErrors()

    def test_higher_master(self) -> None:
        """A higher one replaces a lower one, which is told about once."""
        told = self.told()
        self.register(self.peer())
        for _ in range(2):
            self.register(self.peer(), brokerAddr="10.6.6.6:1", masterEpoch=1)
        (error,) = told
        self.assertEqual((error["before"], error["lower"]), ("10.0.0.0:10911", 0))
        self.assertEqual(
            [(row["address"], row["masterEpoch"]) for row in self.server.fields()["brokers"]],
            [("10.6.6.6:1", 1)],
        )

    def test_slave_learns_the_epoch(self) -> None:
        """A slave of ours hears its master's epoch, one that does not tell its own hears none."""
        self.register(self.peer(), masterEpoch=3)
        self.assertEqual(self.register(self.peer(), 1, masterEpoch=0).ext["masterEpoch"], "3")
        self.assertNotIn("masterEpoch", self.register(self.peer(), 1).ext)

    def test_foreign_unregister(self) -> None:
        """A broker is not unregistered with another's address."""
        peer = self.peer()
        self.register(peer)
        names = {"brokerName": "broker-a", "clusterName": "c", "brokerId": 0}
        peer.ask(Code.UNREGISTER_BROKER, brokerAddr="10.6.6.6:1", **names)
        self.assertEqual(peer.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="t").code, 0)
        peer.ask(Code.UNREGISTER_BROKER, brokerAddr="10.0.0.0:10911", **names)
        self.assertEqual(peer.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="t").code, 17)


class EndTests(NamesrvCase):
    def names(self) -> list[str]:
        return list(self.server.table.cluster_info().broker_addr_table)

    def lose(self, peer: Peer) -> None:
        peer.protocol.connectionLost(Failure(ConnectionLost()))

    def test_connection_lost(self) -> None:
        """A broker whose connection is gone is gone at once."""
        peer = self.peer()
        self.register(peer)
        self.lose(peer)
        self.assertEqual(self.names(), [])

    def test_grace(self) -> None:
        """With a grace it has that long to come back."""
        self.start(channel_grace=40.0)
        for back in (True, False):
            peer = self.peer()
            self.register(peer)
            self.lose(peer)
            self.clock.advance(39.0)
            self.assertEqual(self.names(), ["broker-a"])
            if back:
                self.register(self.peer())
            self.clock.advance(1.0)
            self.assertEqual(self.names(), ["broker-a"] if back else [])
            for other in list(self.server.factory.connections.live):
                other.connectionLost(Failure(ConnectionLost()))
            self.clock.advance(40.0)

    def test_silent(self) -> None:
        """A broker is gone 120 s after its last registration, and its connection is closed."""
        peer = self.peer()
        self.register(peer)
        for _ in range(12):
            self.clock.advance(10.0)
            peer.ask(Code.GET_BROKER_CLUSTER_INFO)
        self.assertEqual(self.names(), ["broker-a"])
        self.clock.advance(10.0)
        self.assertEqual(self.names(), [])
        self.assertTrue(peer.transport.disconnecting)

    def test_says_how_long(self) -> None:
        """A broker of 5.x says how long it may be silent; its sign of life is enough."""
        peer = self.peer()
        self.register(peer, heartbeatTimeoutMillis=15000)
        names = {"brokerName": "broker-a", "clusterName": "c"}
        self.clock.advance(10.0)
        beat = Command.request(Code.BROKER_HEARTBEAT, oneway=True)
        beat.ext = {**names, "brokerAddr": "10.0.0.0:10911"}
        self.assertEqual(peer.send(encode(beat)), [])
        self.clock.advance(10.0)
        group = peer.ask(Code.GET_BROKER_MEMBER_GROUP, **names).body
        self.assertEqual(
            json.loads(bytes(group))["brokerMemberGroup"]["brokerAddrs"], {"0": "10.0.0.0:10911"}
        )
        self.clock.advance(10.0)
        self.assertEqual(self.names(), [])

    def test_status(self) -> None:
        """The status tells brokers and counts topics."""
        self.register(self.peer())
        status = self.server.fields()
        self.assertEqual([row["brokerName"] for row in status["brokers"]], ["broker-a"])
        self.assertEqual(status["topics"], 1)
        json.dumps(status)
