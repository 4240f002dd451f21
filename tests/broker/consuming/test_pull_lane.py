"""Pulls that go the short way: the same answers, and nothing that is not theirs to give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport

from rmqha.broker.consuming.pull_lane import PullLane
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.outbox import AT_ONCE
from rmqha.wire.remoting import frame
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import ONEWAY, Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from tests.broker.consumer_side import GROUP, TOPIC, Consuming, ConsumingTestCase, heartbeat, wants

COMMIT, SUSPEND = 1, 2


def asked(offset: int, opaque: int = 1, *, flag: int = 0, body: bytes = b"", **more: int) -> bytes:
    """A pull as a consumer sends it that has told by a heartbeat what it wants."""
    given = {"queue_id": 0, "max_msg_nums": 32, "sys_flag": COMMIT, "commit_offset": 0} | more
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_offset=offset,
        suspend_timeout_millis=15_000,
        sub_version=1,
        **given,
    )
    code = RequestCode.PULL_MESSAGE
    return encode(Command(code=code, opaque=opaque, flag=flag, ext=to_ext(header), body=body))


class LaneCase(ConsumingTestCase):
    """A broker with the lane and one without, over one store."""

    def setUp(self) -> None:
        self.patch(frame, "pulls", frame.AlikePulls())
        first = self.consuming()
        self.brokers = first, Consuming(first.store, first.clock)
        self.short, self.usual = map(self.connected, self.brokers)
        self.lane = PullLane(self.brokers[0].pulls, self.brokers[0].registry.calls)
        self.brokers[0].registry.lanes.append(self.lane)
        self.taken = 0
        self.patch(PullLane, "serve_run", self.counted(PullLane.serve_run))

    def counted(self, serve: object) -> object:
        def serve_run(*args: object) -> tuple[int, int]:
            found = serve(*args)
            self.taken += found[0]
            return found

        return serve_run

    def connected(self, broker: Consuming) -> RemotingProtocol:
        connection = RemotingProtocol(
            Connections(broker.clock, broker.registry, ConnectionLimits())
        )
        connection.makeConnection(StringTransport())
        connection.dataReceived(encode(heartbeat("c", wants())))
        connection.transport.clear()
        return connection

    def put(self, *bodies: bytes) -> None:
        for body in bodies:
            self.brokers[0].put(body)
        self.brokers[0].dispatch()

    def both(self, data: bytes, taken: int = 0) -> list[Command]:
        """Both are asked, and answer the same; so many went the short way."""
        before, said = self.taken, []
        for connection in (self.short, self.usual):
            connection.dataReceived(data)
            said.append(connection.transport.value())
            connection.transport.clear()
        self.assertEqual(said[0], said[1])
        self.assertEqual(self.taken - before, taken)
        for name in ("pulled", "_meters"):
            counts = [repr(getattr(broker.state.counts, name)) for broker in self.brokers]
            self.assertEqual(*counts)
        committed = [broker.offsets.get(GROUP, TOPIC, 0) for broker in self.brokers]
        self.assertEqual(*committed)
        return FrameDecoder().receive(said[0])


class PullLaneTests(LaneCase):
    def test_alike(self) -> None:
        """All pulls but the first of their kind go the short way, and commit."""
        self.put(*(b"%d" % number for number in range(100)))
        self.both(asked(0))
        (answer,) = self.both(asked(32, 2, commit_offset=7), 1)
        self.assertEqual(answer.ext["nextBeginOffset"], "64")
        self.assertEqual(self.brokers[0].offsets.get(GROUP, TOPIC, 0), 7)
        calls = self.brokers[0].registry.calls.took
        self.assertEqual(calls[RequestCode.PULL_MESSAGE, 0, False].count, 2)
        self.both(asked(0, 3) + asked(96, 4) + asked(64, 5), 3)

    def test_left(self) -> None:
        """One that waits, goes elsewhere, is one-way or has a body, and part of one, is left."""
        self.put(b"one", b"two")
        self.both(asked(0, sys_flag=SUSPEND))
        self.both(asked(1, 2, sys_flag=SUSPEND), 1)
        self.assertEqual(self.both(asked(2, 3, sys_flag=SUSPEND)), [], "held")
        self.put(b"three")
        self.both(asked(9, 4, sys_flag=SUSPEND))
        for odd in (asked(0, flag=ONEWAY), asked(0, body=b"body")):
            self.both(odd)
            self.both(odd)
        whole = asked(0, 5, sys_flag=SUSPEND)
        for at in (3, 9, len(whole) - 1):
            self.assertEqual(self.both(whole[:at]), [])
            self.assertEqual(len(self.both(whole[at:], 1)), 1)

    def test_no_longer(self) -> None:
        """What may not be read any more is refused, though it was served before."""
        self.put(b"one")
        self.both(asked(0))
        self.both(asked(0), 1)
        for broker in self.brokers:
            broker.topics.put(TopicConfig(topic_name=TOPIC, perm=2))
        (answer,) = self.both(asked(0), 1)
        self.assertEqual(answer.code, ResponseCode.NO_PERMISSION)

    def test_damaged(self) -> None:
        """A record that is not what its unit says is refused, and counted once."""
        self.put(b"one")
        self.both(asked(0))
        for broker in self.brokers:
            self.patch(broker.served, "damage", lambda start, end: "damage at rest")
        (answer,) = self.both(asked(0), 1)
        self.assertIn("damage at rest", answer.remark)
        self.assertEqual([broker.served.faults for broker in self.brokers], [1, 1])

    def test_too_many(self) -> None:
        """The lane takes no more requests in progress than others."""
        self.put(b"one")
        self.both(asked(0))
        self.patch(RemotingProtocol, "takes", lambda connection, requests: False)
        (answer,) = self.both(asked(0))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 12), st.integers(-1, 5), st.integers(0, 3), st.integers(0, 12)
            ),
            max_size=12,
        )
    )
    def test_any(self, pulls: list[tuple[int, int, int, int]]) -> None:
        """Whatever is asked for, in whatever order: both answer the same."""
        self.setUp()
        self.put(*(b"%d" % number for number in range(10)))
        data = b"".join(
            asked(
                offset, number, max_msg_nums=most, sys_flag=COMMIT, queue_id=queue, commit_offset=at
            )
            for number, (offset, most, queue, at) in enumerate(pulls)
        )
        for connection in (self.short, self.usual):
            connection.dataReceived(data)
            self.brokers[0].clock.advance(1)
        self.assertEqual(self.short.transport.value(), self.usual.transport.value())


class LeavingTests(LaneCase):
    def test_at_once(self) -> None:
        """A large answer leaves before the next request is served, small ones leave together."""
        self.put(*[bytes(AT_ONCE)] * 2, b"1", b"2")
        written: list[int] = []
        write = StringTransport.write
        self.patch(
            StringTransport,
            "write",
            lambda transport, data: written.append(len(data)) or write(transport, data),
        )
        for offsets, writes in (((0, 1), 2), ((2, 3), 1)):
            for _ in range(2):
                written.clear()
                self.short.dataReceived(b"".join(asked(at, max_msg_nums=1) for at in offsets))
                self.brokers[0].clock.advance(0)
            self.assertEqual(len(written), writes)
