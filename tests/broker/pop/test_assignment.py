"""What members of a group are to consume, and how that is set."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, ClassVar, cast

from attrs import define, field
from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed

from rmqha.broker.broker import Broker
from rmqha.broker.pop.assignment import STRATEGIES, popped
from rmqha.config.broker_settings import BrokerSettings, DefaultMode, PopSettings, PullSettings
from rmqha.errors import DiskFull, RemotingUnreachable
from rmqha.logfiles import json_table
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from tests.broker.support import BrokerTestCase, Client
from tests.support.effort import tries

FRAMES = Path(__file__).resolve().parents[2] / "data" / "pop" / "frames-assignment.jsonl.gz"

MODES = "messageRequestMode.json"


def queues_of(count: int, *brokers: str) -> tuple[MessageQueue, ...]:
    """So many queues of a topic on each broker."""
    return tuple(MessageQueue(name, n, "T") for name in brokers or ("a",) for n in range(count))


class SharingTests(BrokerTestCase):
    """Who gets which queues."""

    @given(st.integers(1, 20), st.integers(1, 20))
    @run_settings(max_examples=tries(100))
    def test_all(self, count: int, members: int) -> None:
        """Each queue is one member's, and no member has two more than another."""
        queues = queues_of(count)
        for name, strategy in STRATEGIES.items():
            shares = [strategy(queues, index, members) for index in range(members)]
            self.assertEqual(sorted(q.queue_id for s in shares for q in s), list(range(count)))
            sizes = [len(share) for share in shares]
            self.assertLessEqual(max(sizes) - min(sizes), 1, name)
            self.assertEqual(sizes, sorted(sizes, reverse=True), "the first have more")

    def test_neighbours(self) -> None:
        """One shares out neighbours, the other in turn."""
        queues = queues_of(5)
        self.assertEqual(STRATEGIES["AVG"](queues, 0, 2), queues[:3])
        self.assertEqual(STRATEGIES["AVG_BY_CIRCLE"](queues, 0, 2), queues[::2])

    @given(st.integers(1, 12), st.integers(1, 8), st.integers(-1, 10))
    @run_settings(max_examples=tries(100))
    def test_popped(self, count: int, members: int, share: int) -> None:
        """Each queue is popped by one member more than are shared with, or by all."""
        names = [f"c{n}" for n in range(members)]
        queues = queues_of(count, "a", "b")
        average = STRATEGIES["AVG"]
        found = [popped(queues, names, name, share, average) for name in names]
        if share <= 0 or share >= members - 1:
            self.assertEqual({(q.broker_name, q.queue_id) for q in found[0] or ()}, _ALL)
            return
        times = [sum(queue in (one or ()) for one in found) for queue in queues]
        if members <= len(queues):
            self.assertEqual(set(times), {share + 1})
            self.assertEqual(
                [len(one or ()) for one in found], [len(set(one or ())) for one in found]
            )
        else:
            self.assertEqual([len(one or ()) for one in found], [1] * members)
            self.assertGreater(min(times), 0)

    def test_thousands(self) -> None:
        """Of ten thousand members, and of ten thousand queues, each is told the same each time."""
        average, names = STRATEGIES["AVG"], [f"c{n:05}" for n in range(10_000)]
        few, many = queues_of(8), queues_of(10_000)
        for name in names[::1000]:
            first = popped(few, names, name, 1, average)
            self.assertEqual(first, (few[int(name[1:]) % 8],))
            self.assertEqual(popped(few, names, name, 1, average), first)
            self.assertEqual(len(popped(many, names, name, 2, average) or ()), 3)

    def test_strange(self) -> None:
        """Who is no member is told nothing, unless all is everybody's."""
        queues, average = queues_of(8), STRATEGIES["AVG"]
        self.assertIsNone(popped(queues, ["a", "b", "c"], "z", 1, average))
        self.assertEqual(
            popped(queues, ["a", "b", "c"], "z", 0, average), (MessageQueue("a", -1, "T"),)
        )


_ALL = {("a", -1), ("b", -1)}


class AssignmentTestCase(BrokerTestCase):
    """A broker with a topic of two queues."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9")

    def begin(self, **settings: Any) -> Broker:
        broker = self.broker(pull=PullSettings(notify=False), **settings)
        for name, count in (("N", 2), ("N8", 8)):
            broker.topics.put(
                TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            )
        return broker

    def join(self, group: str, *ids: str) -> list[Client]:
        clients = []
        for each in ids:
            client = self.client()
            body = json.dumps({"clientID": each, "consumerDataSet": [{"groupName": group}]})
            answer = client.ask(RequestCode.HEART_BEAT, body=body.encode())
            assert answer is not None and answer.code == 0, answer
            clients.append(client)
        return clients

    def post(self, code: RequestCode, **members: Any) -> Command:
        answer = self.client().ask(code, body=json.dumps(members).encode())
        assert answer is not None
        return answer

    def assigned(self, topic: str = "N", group: str = "GN", **more: Any) -> Any:
        asked = {"clientId": "c1", "messageModel": "CLUSTERING", "strategyName": "AVG"} | more
        answer = self.post(RequestCode.QUERY_ASSIGNMENT, topic=topic, consumerGroup=group, **asked)
        self.assertEqual(answer.code, 0, answer.remark)
        rows = json.loads(bytes(answer.body)).get("messageQueueAssignments")
        if rows is None:
            return None
        return [
            (row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"], row["mode"])
            for row in rows
        ]

    def set_mode(self, topic: str = "N", group: str = "GN", share: int = 0, **more: Any) -> Command:
        return self.post(
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            **{"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": share}
            | more,
        )

    def modes(self) -> Any:
        answer = self.client().ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert answer is not None
        return json.loads(bytes(answer.body))["messageRequestModeMap"]


class FramesTests(AssignmentTestCase):
    """What a stock broker of 5.3.3 answered."""

    def test_frames(self) -> None:
        """Code, remark and body are the same; the order of queues is Java's hash order there."""
        self.begin()
        members: dict[str, Client] = {}
        for line in gzip.decompress(FRAMES.read_bytes()).splitlines():
            frame = json.loads(line)
            request, expected = (
                FrameDecoder().receive(bytes.fromhex(frame[name]))[0]
                for name in ("request", "response")
            )
            if frame["n"] == 2:
                names = ("c1", "c2", "c3")
                members = dict(zip(names, self.join("GN", *names), strict=True))
            elif frame["n"] == 16:
                self.serving._heartbeats.lost(members["c3"].connection)
            elif frame["n"] == 18:
                self.join("G8", "c1", "c2", "c3", "c4")
            client = self.client()
            client.send(request)
            self.clock.advance(0)
            (answer,) = client.heard()
            self.assertEqual(
                (answer.code, answer.remark, answer.ext),
                (expected.code, expected.remark, expected.ext),
                frame["name"],
            )
            self.assertEqual(_loose(answer.body), _loose(expected.body), frame["name"])

    def test_roll_back(self) -> None:
        """Nothing is to be brought into the log."""
        self.begin()
        self.assertEqual(self.post(RequestCode.POP_ROLLBACK).code, 0)


def _loose(body: Any) -> Any:
    """A body without the order of its rows."""
    found = json.loads(bytes(body)) if len(body) else None
    rows = (found or {}).get("messageQueueAssignments")
    return sorted(map(json.dumps, rows)) if rows is not None else found


class AssignmentTests(AssignmentTestCase):
    """What the frames do not show."""

    def test_settings(self) -> None:
        """The default is the broker's to choose, but not that of retry topics; without balance
        each has all, a group that nobody knows too.
        """
        self.begin(pop=PopSettings(default_mode=DefaultMode.POP, default_share=1, balance=True))
        self.join("GN", "c1", "c2", "c3", "c4")
        self.assertEqual(self.assigned(), [("BN", 0, "POP")])
        self.assertEqual(self.assigned("%RETRY%GN"), [("BN", 0, "PULL")])
        self.again(pop=PopSettings(balance=False))
        both = [("BN", 0, "PULL"), ("BN", 1, "PULL")]
        self.assertEqual(self.assigned(group="nobody"), both)

    def again(self, **settings: Any) -> None:
        """Stop the broker, and start it again."""
        stopped = self.serving.stop()
        self.clock.advance(0.1)
        self.successResultOf(stopped)
        self.close_store(self.serving.store)
        self.begin(**settings)

    def test_no_member(self) -> None:
        """Who is not in the group keeps what it has; stock brokers take all away."""
        self.begin()
        self.join("GN", "c1")
        self.assertIsNone(self.assigned(clientId="c9"))

    def test_unreadable(self) -> None:
        """A topic that may not be read has no queues."""
        self.begin().topics.put(TopicConfig(topic_name="N", perm=2))
        self.join("GN", "c1")
        self.assertIsNone(self.assigned())

    def test_kept(self) -> None:
        """A mode is durable before it is answered, and there after a restart."""
        self.begin()
        self.assertEqual(self.set_mode(share=3).code, 0)
        table: Any = json_table.read(self.table(MODES))
        self.assertEqual(table["messageRequestModeMap"], self.modes())
        self.again()
        self.assertEqual(
            self.modes(),
            {
                "N": {
                    "GN": {
                        "topic": "N",
                        "consumerGroup": "GN",
                        "mode": "POP",
                        "popShareQueueNum": 3,
                    }
                }
            },
        )

    def test_not_written(self) -> None:
        """A mode that cannot be written is not answered 0; nor is one with nonsense in it."""
        broker = self.begin()

        def full(*args: Any, **more: Any) -> int:
            raise DiskFull("x", "full")

        self.patch(broker.files, "replace", full)
        answer = self.set_mode()
        self.assertEqual(answer.code, 1)
        self.assertIn("set it again", answer.remark or "")
        for more in ({"mode": "PUSH"}, {"topic": None}, {"popShareQueueNum": "x"}):
            self.assertEqual(self.set_mode(**more).code, 1, more)
        self.assertEqual(self.set_mode(share=1 << 40).code, ResponseCode.INVALID_PARAMETER)

    def test_unknown_group(self) -> None:
        """Where clients make no groups, one that is unknown has no mode."""
        self.begin(auto_create_groups=False)
        self.assertEqual(self.set_mode().code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertEqual(self.modes(), {})

    def test_client_words(self) -> None:
        """What else a request says is not kept."""
        self.begin()
        self.assertEqual(self.set_mode(more=1).code, 0)
        self.assertNotIn("more", self.modes()["N"]["GN"])

    def test_gone(self) -> None:
        """A deleted topic's modes go with it, and a deleted group's."""
        self.begin()
        for topic, group in (("N", "GN"), ("N", "H"), ("N8", "GN"), ("N8", "H")):
            self.set_mode(topic, group)
        client = self.client()
        client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "N8"})
        self.assertEqual(set(self.modes()), {"N"})
        client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "GN"})
        self.assertEqual(set(self.modes()["N"]), {"H"})
        client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "H"})
        self.assertEqual(self.modes(), {})
        self.clock.advance(0)
        table: Any = json_table.read(self.table(MODES))
        self.assertEqual(table["messageRequestModeMap"], {})

    def test_no_table(self) -> None:
        """A file that is no table of modes ends the start, as with other tables."""
        self.table(MODES).parent.mkdir(parents=True)
        self.table(MODES).write_text('{"messageRequestModeMap":{"N":{"G":7}}}')
        with self.assertRaisesRegex(Exception, "messageRequestModeMap.N.G: 7 is not an object"):
            self.begin()


@define(eq=False)
class PlayedNameServer:
    """The broker's client, and two name servers.

    @ivar answers: Of each: a route's body, a code, or an exception.
    """

    answers: dict[str, Any]
    asked: list[str] = field(factory=list)
    held: list[Deferred[Command]] = field(factory=list)

    def request(self, server: str, command: Command, timeout: float) -> Deferred[Command]:
        self.asked.append(server)
        answer = self.answers[server]
        if isinstance(answer, Exception):
            return fail(answer)
        if isinstance(answer, int):
            return succeed(command.answer(answer, "no"))
        if answer is None:
            later: Deferred[Command] = Deferred()
            self.held.append(later)
            return later
        return succeed(command.answer(body=json.dumps(answer).encode()))


def route(**queues: int) -> dict[str, Any]:
    """A topic's route: how many queues each broker has."""
    return {
        "queueDatas": [
            {"brokerName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6}
            for name, count in queues.items()
        ]
    }


class RoutedTests(AssignmentTestCase):
    """Queues on several brokers, as name servers tell them."""

    SERVERS: ClassVar = ("10.0.0.1:9876", "10.0.0.2:9876")

    def begin(self, **settings: Any) -> Broker:
        broker = super().begin(namesrv=";".join(self.SERVERS), **settings)
        self.names = PlayedNameServer(dict.fromkeys(self.SERVERS, route(z=2, BN=1)))
        broker.routed.client = cast(Any, self.names)
        self.join("GN", "c1", "c2")
        return broker

    def test_all_brokers(self) -> None:
        """A share is one of all brokers' queues, and a popping member has all brokers."""
        self.begin()
        self.assertEqual(self.assigned(), [("BN", 0, "PULL"), ("z", 0, "PULL")])
        self.assertEqual(self.assigned(clientId="c2"), [("z", 1, "PULL")])
        self.set_mode()
        self.assertEqual(self.assigned(), [("BN", -1, "POP"), ("z", -1, "POP")])
        self.assertEqual(self.names.asked, [self.SERVERS[0]])

    def test_fresh(self) -> None:
        """What a name server said is good for twenty seconds, and for longer where none answers."""
        self.begin()
        self.assertEqual(len(self.assigned()), 2)
        self.names.answers[self.SERVERS[0]] = RemotingUnreachable("x", "gone")
        self.names.answers[self.SERVERS[1]] = route(BN=1)
        self.clock.advance(19.9)
        self.assertEqual(len(self.assigned()), 2)
        self.clock.advance(0.2)
        self.assertEqual(self.assigned(), [("BN", 0, "PULL")])
        self.names.answers = dict.fromkeys(self.SERVERS, RemotingUnreachable("x", "gone"))
        self.clock.advance(30)
        self.assertEqual(self.assigned(), [("BN", 0, "PULL")])

    def test_unknown(self) -> None:
        """What the name server does not know, and what no name server says, is no answer."""
        self.begin()
        for answer in (ResponseCode.TOPIC_NOT_EXIST, 1, RemotingUnreachable("x", "gone"), "x"):
            self.names.answers = dict.fromkeys(self.SERVERS, answer)
            self.assertIsNone(self.assigned(), answer)

    def test_together(self) -> None:
        """Many that ask at a time are one question, and each has its answer."""
        self.begin()
        self.names.answers = dict.fromkeys(self.SERVERS, None)
        body = {"topic": "N", "consumerGroup": "GN", "clientId": "c1", "strategyName": "AVG"}
        clients = [self.client() for _ in range(3)]
        for client in clients:
            answer = client.ask(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(body).encode())
            self.assertIsNone(answer)
        clients[0].connection.close("gone")
        (held,) = self.names.held
        held.callback(Command(code=0, flag=1, body=json.dumps(route(BN=4)).encode()))
        for client in clients[1:]:
            (answer,) = client.heard()
            self.assertEqual(bytes(answer.body).count(b"queueId"), 2)
