"""A slave's clients: what replication brings them, and what a repair does to them."""

from __future__ import annotations

from rmqha.broker.ports import ServedPort
from rmqha.store.paced_dispatch import LIVE_PAUSE, QUIET_PAUSE
from rmqha.wire.log.encode import encode
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.consumer_side import (
    GROUP,
    TOPIC,
    bodies,
    commit,
    heartbeat,
    progress,
    pull,
    wants,
)
from tests.net.remoting.support import Peer
from tests.roles.nodes import PuppetSlave
from tests.roles.test_slave import SlaveCase
from tests.support.logs import STORED, message
from tests.support.scripted_master import Connection, PuppetTransport, frames

SUSPEND = 2
QUEUE = 5
"""A queue that the master's log has nothing of at first."""


class ServedSlaveCase(SlaveCase):
    """A slave with clients on connections without sockets."""

    def client(self) -> Peer:
        """Somebody connects to the client port."""
        ports = self.node.clients
        transport = PuppetTransport(self.reactor)
        peer = Peer(registry=self.door(), clock=self.reactor, transport=transport)
        transport.protocol = peer.connection
        ports._connections += (peer.connections,)
        if self.node.broker is not None:
            peer.connections.lost.append(self.node.broker._heartbeats.lost)
        return peer

    def door(self) -> ServedPort:
        door: ServedPort = self.node.clients._doors[0]
        return door

    def consumer(self) -> Peer:
        """A stock push consumer: it has said once what it wants, and its pulls do not."""
        assert self.node.broker is not None
        self.node.broker.topics.put(TopicConfig(topic_name=TOPIC))
        peer = self.client()
        peer.send(heartbeat("c1", wants()))
        self.turn()
        peer.sent()
        return peer

    def answers(self, peer: Peer) -> list[Command]:
        """What a client was answered."""
        self.turn()
        return [command for command in peer.sent() if command.is_response]

    def pull(self, peer: Peer, offset: int = 0, *, wait: bool = True) -> None:
        """Pull from the queue that is empty at first."""
        flag = SUSPEND if wait else 0
        peer.send(pull(offset, queue_id=QUEUE, sys_flag=flag, subscription=None))

    def write(self, text: bytes, queue_offset: int) -> None:
        """The master stores a message there."""
        made = message(300, topic=TOPIC, queue_id=QUEUE, body=text)
        record = encode(made, max_message_size=1 << 20)
        self.theirs.put([record], [queue_offset], STORED + self.count)

    def follow(self) -> Connection:
        """Copy what the master has so far."""
        connection = self.accept()
        connection.feed(self.theirs, 0)
        self.reactor.pump([LIVE_PAUSE] * 20)
        return connection


class DivergedTests(ServedSlaveCase):
    """A slave whose log differs from its master's."""

    def test_serves_what_was_compared(self) -> None:
        """What lies before the difference is served; from there on the answer is an error that says
        so.  The status has the verdict, the quarantine both versions.
        """
        self.start()
        begins = []
        for number in range(6):
            begins.append(self.theirs.end)
            self.write(b"message %d" % number, number)
        start, end = begins[3:5]
        connection = self.follow()
        connection.heartbeat(self.theirs.end)
        self.stop()
        own = self.log(self.root / "commitlog", end=self.theirs.end)
        file = own.folder.at(start)
        # The last byte of the properties: no check sees it.
        file.view[end - file.start - 2] ^= 1
        own.folder.close()
        self.start()
        peer = self.consumer()
        self.pull(peer, wait=False)
        self.assertEqual(len(bodies(self.answers(peer)[0])), 6)
        connection = self.accept()
        connection.feed(self.theirs, 1)
        connection.heartbeat(self.theirs.end)
        self.assertEqual(self.state, "diverged")
        self.pull(peer, wait=False)
        self.assertEqual(len(bodies(self.answers(peer)[0])), 3)
        for offset in (3, 5):
            self.pull(peer, offset, wait=False)
            (answer,) = self.answers(peer)
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn(f"not served: diverged: byte {end - 2} of ", answer.remark or "")
        status = self.node.status()
        self.assertEqual(status["servedFaults"], 0)
        reason = status["upstream"]["reason"]
        self.assertIn(
            "3 of 3 records decode on both sides; the checksum kept of the first says that the "
            "master's is right",
            reason,
        )
        kept = sorted(path.name for path in (self.root / "rmqha" / "quarantine").iterdir())
        self.assertEqual(
            kept, [f"{start:020d}-{end:020d}.{side}.log" for side in ("master", "ours")]
        )


class WakeTests(ServedSlaveCase):
    def test_at_once(self) -> None:
        """A pull that waits on a slave is answered as replication brings a message, at once."""
        self.start()
        upstream = self.follow()
        peer = self.consumer()
        self.write(b"first", 0)
        upstream.feed(self.theirs, self.node.store.log.end)
        self.reactor.advance(QUIET_PAUSE)
        for number in range(1, 4):
            self.pull(peer, number)
            self.assertEqual(self.answers(peer), [])
            self.reactor.advance(3)
            self.write(b"message %d" % number, number)
            upstream.feed(self.theirs, self.node.store.log.end)
            self.reactor.advance(LIVE_PAUSE)
            (answer,) = self.answers(peer)
            self.assertEqual((answer.code, bodies(answer)), (0, [b"message %d" % number]))

    def test_half_a_record(self) -> None:
        """Nobody is woken for a record of which the end is still on its way."""
        self.start()
        upstream = self.follow()
        peer = self.consumer()
        self.write(b"first", 0)
        self.pull(peer)
        start = self.node.store.log.end
        upstream.feed(self.theirs, start, self.theirs.end - 10)
        self.reactor.pump([LIVE_PAUSE] * 5)
        self.assertEqual(self.answers(peer), [])
        upstream.feed(self.theirs, self.theirs.end - 10)
        self.reactor.advance(LIVE_PAUSE)
        self.assertEqual([bodies(answer) for answer in self.answers(peer)], [[b"first"]])

    def test_commits(self) -> None:
        """A commit is taken by a slave, told again, and there after its restart."""
        self.start()
        self.follow()
        peer = self.client()
        peer.send(commit(3), progress())
        told = self.answers(peer)
        self.assertEqual([(one.code, one.ext.get("offset")) for one in told], [(0, None), (0, "3")])
        self.stop()
        self.start()
        peer = self.client()
        peer.send(progress())
        self.assertEqual(self.answers(peer)[0].ext, {"offset": "3"})


class RepairTests(ServedSlaveCase):
    """The log is cut, or copied anew, under clients that are there."""

    def repaired(self, policy: str) -> Peer:
        """A consumer that waits for a message as the slave's repair begins."""
        self.ahead(policy)
        broker = self.node.broker
        peer = self.consumer()
        self.pull(peer)
        self.assertEqual(self.answers(peer), [])
        self.repair()
        self.assertIsNot(self.node.broker, broker)
        return peer

    def repair(self) -> None:
        """The slave hears that it has too much, and does what it is told to."""
        self.notice()
        self.turn()
        self.catch_up(within=1)

    def goes_on(self, peer: Peer) -> None:
        """The consumer's wait has ended with "not available", and its next pull, which does not
        say again what it wants, is answered.
        """
        codes = [answer.code for answer in self.answers(peer)]
        self.assertEqual(codes, [ResponseCode.SERVICE_NOT_AVAILABLE])
        self.assertTrue(peer.connection.opened)
        self.pull(peer)
        self.assertEqual(self.answers(peer), [])
        self.write(b"after", 0)
        node: PuppetSlave = self.node
        follower = node.following.follower
        assert follower is not None and follower.sync.connection is not None
        follower.sync.connection.dataReceived(b"".join(frames(self.theirs, node.store.log.end)))
        self.reactor.pump([LIVE_PAUSE] * 5)
        (answer,) = self.answers(peer)
        self.assertEqual((answer.code, bodies(answer)), (0, [b"after"]))

    def test_truncate(self) -> None:
        """A cut."""
        self.goes_on(self.repaired("truncate"))

    def test_rebootstrap(self) -> None:
        """A new copy."""
        self.goes_on(self.repaired("rebootstrap"))

    def test_left_meanwhile(self) -> None:
        """Who leaves while the store is closed is no member of its group any more."""
        self.ahead()
        stays, leaves = self.consumer(), self.consumer()
        broker = self.node.broker
        assert broker is not None
        real = broker.stop

        def stop() -> object:
            leaves.transport.loseConnection()
            self.reactor.advance(0)
            return real()

        broker.stop = stop  # type: ignore[method-assign, assignment]
        self.repair()
        self.assertIsNot(self.node.broker, broker)
        assert self.node.broker is not None
        group = self.node.broker.consumers.group(GROUP)
        assert group is not None
        self.assertEqual(list(group.members), [stays.connection])

    def test_not_read_yet(self) -> None:
        """Who has not read what is cut is disconnected: bytes will be others. Others stay."""
        self.ahead()
        slow, quick = self.client(), self.client()
        self.reactor.advance(LIVE_PAUSE)
        queue = self.node.store.queues.get("Others", 0)
        assert queue is not None
        slow.transport.producer.pauseProducing()
        for peer in (slow, quick):
            peer.send(pull(queue.min_offset, topic="Others"))
        self.repair()
        self.assertFalse(slow.connection.opened)
        self.assertEqual(slow.sent(), [])
        self.assertTrue(quick.connection.opened)
        self.assertEqual([answer.code for answer in self.answers(quick)], [ResponseCode.SUCCESS])

    def test_meanwhile(self) -> None:
        """While the store is closed, everything is answered that it is not available."""
        self.start()
        self.follow()
        peer = self.client()
        self.node.shut_broker()
        for code in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET):
            peer.send(Command.request(code))
        codes = {answer.code for answer in self.answers(peer)}
        self.assertEqual(codes, {ResponseCode.SERVICE_NOT_AVAILABLE})
