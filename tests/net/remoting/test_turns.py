"""Who sends much leaves the reactor to others in between."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.remoting.connection import SLICE, TURN, RemotingProtocol
from rmqha.net.remoting.connections import LOOSE_RATE, ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

WORK = 100
"""A code whose requests take C{cost} seconds."""

SIZE = len(encode(Command(code=WORK, body=bytes(100))))


class TurnsCase(SynchronousTestCase):
    """A port with some connections, and requests that take time."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cost = TURN / 10
        self.served: list[RemotingProtocol] = []
        registry = Registry()
        registry.register(WORK, self.work)
        self.connections = Connections(self.clock, registry, ConnectionLimits())

    def work(self, connection: RemotingProtocol, command: Command) -> Answer:
        self.served.append(connection)
        self.clock.rightNow += self.cost
        return command.answer(0)

    def peer(self) -> RemotingProtocol:
        peer = RemotingProtocol(self.connections)
        peer.makeConnection(StringTransport())
        return peer

    def send(self, peer: RemotingProtocol, count: int) -> None:
        """Have so many requests come in one read."""
        peer.dataReceived(
            b"".join(
                encode(Command(code=WORK, opaque=number, body=bytes(100)))
                for number in range(count)
            )
        )

    def turn(self) -> None:
        """One turn of the reactor: what is due, not what comes of it, unlike C{Clock}."""
        now = self.clock.seconds()
        for call in [each for each in self.clock.calls if each.getTime() <= now]:
            self.clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)

    def reading(self, peer: RemotingProtocol) -> bool:
        return bool(peer.transport.producerState == "producing")

    def answers(self, peer: RemotingProtocol) -> list[int]:
        """The numbers of the requests that were answered since the last time."""
        data = peer.transport.value()
        peer.transport.clear()
        return [command.opaque for command in FrameDecoder().receive(data)]


class TurnTests(TurnsCase):
    def test_few(self) -> None:
        """What fits is answered at once, however long it takes: it is one slice."""
        self.cost = 10 * TURN
        peer = self.peer()
        self.send(peer, SLICE // SIZE)
        self.assertEqual(len(self.answers(peer)), SLICE // SIZE)
        self.assertTrue(self.reading(peer))

    def test_much_that_is_quick(self) -> None:
        """Many requests that take no time are answered in one turn."""
        self.cost = 0.0
        peer = self.peer()
        self.send(peer, 400)
        self.assertEqual(self.answers(peer), list(range(400)))
        self.assertTrue(self.reading(peer))

    def test_much(self) -> None:
        """Of many a turn's worth is answered, unread meanwhile; all are in the end, in order."""
        peer = self.peer()
        self.send(peer, 400)
        first = self.answers(peer)
        self.assertLess(len(first), 20)
        found, turns = first, 0
        while len(found) < 400:
            self.assertFalse(self.reading(peer))
            self.turn()
            turns += 1
            found += self.answers(peer)
        self.assertEqual(found, list(range(400)))
        self.assertGreater(turns, 10)
        self.assertTrue(self.reading(peer))
        self.assertEqual(len(self.clock.getDelayedCalls()), 1, "the sweep")

    def test_one_a_turn(self) -> None:
        """Of several that send much, one has each turn; who sends little need not wait."""
        greedy = [self.peer() for _ in range(5)]
        for peer in greedy:
            self.send(peer, 400)
        small = self.peer()
        for _ in range(20):
            self.served.clear()
            self.turn()
            self.assertEqual(len(set(self.served)), 1)
            self.send(small, 1)
            self.assertEqual(self.answers(small), [0])
        shares = [len(self.answers(peer)) for peer in greedy]
        self.assertLess(max(shares), 2 * min(shares) + 40)

    def test_much_while_others_wait(self) -> None:
        """Who comes with much while others wait gets one turn's worth, then waits behind them."""
        first, second = self.peer(), self.peer()
        self.send(first, 400)
        self.send(second, 400)
        self.assertLess(len(self.answers(second)), 20)
        self.assertFalse(self.reading(second))
        self.turn()
        self.assertEqual(self.answers(second), [])
        self.turn()
        self.assertNotEqual(self.answers(second), [])

    def test_a_long_message_while_others_wait(self) -> None:
        """Who sends one message need not wait for others' turns, however long it is."""
        greedy = [self.peer() for _ in range(5)]
        for peer in greedy:
            self.send(peer, 400)
        small = self.peer()
        small.dataReceived(encode(Command(code=WORK, body=bytes(20 * SLICE))))
        self.assertEqual(self.answers(small), [0])

    def test_more_after_much(self) -> None:
        """Who waited for turns waits behind others, until it has sent a turn's worth at most."""
        first, second = self.peer(), self.peer()
        self.send(second, 40)
        while not self.reading(second):
            self.turn()
        self.answers(second)
        self.send(first, 400)
        self.send(second, 1)
        self.assertEqual(self.answers(second), [])
        self.turn()
        self.turn()
        self.assertEqual(self.answers(second), [0])
        self.send(second, 1)
        self.assertEqual(self.answers(second), [0])

    def test_more_came(self) -> None:
        """What a transport brings although it is held back is taken in its turn."""
        peer = self.peer()
        self.send(peer, 400)
        self.send(peer, 3)
        for _ in range(200):
            self.turn()
        self.assertEqual(self.answers(peer), [*range(400), 0, 1, 2])
        self.assertTrue(self.reading(peer))

    def test_large_bodies(self) -> None:
        """A large body is taken piece by piece as it comes, in no more turns than pieces."""
        peer = self.peer()
        data = encode(Command(code=WORK, body=bytes(1 << 20)))
        for at in range(0, len(data), 1 << 16):
            peer.dataReceived(data[at : at + (1 << 16)])
            self.assertTrue(self.reading(peer))
        self.assertEqual(self.answers(peer), [0])

    def test_closed_in_between(self) -> None:
        """What a peer that is gone had sent is forgotten."""
        first, second = self.peer(), self.peer()
        for peer in (first, second):
            self.send(peer, 400)
        first.close("stopped")
        self.served.clear()
        for _ in range(200):
            self.turn()
        self.assertEqual(set(self.served), {second})

    def test_bad_frame_in_between(self) -> None:
        """A frame that cannot be read ends the connection when its turn comes."""
        peer = self.peer()
        self.cost = TURN
        peer.dataReceived(encode(Command(code=WORK, body=bytes(SLICE))) * 3 + b"\xff" * 100)
        self.assertTrue(peer.opened)
        for _ in range(4):
            self.turn()
        self.assertFalse(peer.opened)
        self.assertEqual(self.connections.closed, {"FrameLengthOutOfRange": 1})

    def test_full_and_held_back(self) -> None:
        """A peer that also does not take its answers is read from when both are over."""
        peer = self.peer()
        self.send(peer, 400)
        full = peer.transport.producer
        peer._outbox._transport.producer.pauseProducing()
        for _ in range(200):
            self.turn()
        self.assertTrue(self.reading(peer), "little is held")
        full.resumeProducing()
        self.assertTrue(self.reading(peer))

    def test_a_failure_of_ours(self) -> None:
        """An error in a turn ends that connection, and the others go on."""
        first, second = self.peer(), self.peer()
        for peer in (first, second):
            self.send(peer, 400)
        self.patch(first, "_read", lambda data: 1 / 0)
        for _ in range(200):
            self.turn()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertFalse(first.opened)
        self.assertEqual(len(self.answers(second)), 400)


class LooseTests(TurnsCase):
    """JSON that only the lenient reader can read."""

    def loose(self, opaque: int, size: int) -> bytes:
        """A request whose header is not standard JSON, of about so many bytes."""
        header = f"{{'code':{WORK},'opaque':{opaque},'remark':'{'x' * size}'}}".encode()
        return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header

    def test_a_little(self) -> None:
        """Whoever writes such headers now and then does not notice."""
        peer = self.peer()
        for number in range(100):
            peer.dataReceived(self.loose(number, 300))
            self.clock.advance(0.01)
        self.assertEqual(self.answers(peer), list(range(100)))
        self.assertTrue(self.reading(peer))

    def test_much(self) -> None:
        """From all connections of a port together only so much is read in a second."""
        peers = [self.peer() for _ in range(3)]
        answered, seconds = 0, 20
        for _ in range(seconds * 10):
            for number, peer in enumerate(peers):
                if self.reading(peer):
                    peer.dataReceived(self.loose(number, 8_000))
                answered += len(self.answers(peer))
            self.clock.advance(0.1)
        size = answered * 8_000
        self.assertLess(size, LOOSE_RATE * (seconds + 2))
        self.assertGreater(size, LOOSE_RATE * seconds / 2)

    def test_closed_meanwhile(self) -> None:
        """Nothing is left of a connection that ends while it has to wait."""
        peer = self.peer()
        while self.reading(peer):
            peer.dataReceived(self.loose(0, 8_000))
        peer.connectionLost()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_closed_before_its_turn(self) -> None:
        """One that has waited may end before its turn comes."""
        peer = self.peer()
        while self.reading(peer):
            peer.dataReceived(self.loose(0, 8_000))
        while not self.connections.crowded:
            self.clock.rightNow += 0.05
            self.turn()
        peer.connectionLost()
        self.assertFalse(peer.opened)
        self.turn()
        self.assertEqual(self.clock.getDelayedCalls(), [])
