"""One connection an address, made when it is needed."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import RemotingTimeout, RemotingUnreachable
from rmqha.net.remoting.client import RemotingClient, split_address, tcp_endpoints, with_port
from rmqha.net.remoting.handlers import Registry
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
from tests.net.remoting.support import PuppetEndpoint

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


class PoolTests(SynchronousTestCase):
    """A client and endpoints the test works by hand."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoints: dict[tuple[str, int], PuppetEndpoint] = {}
        self.registry = Registry()
        self.client = RemotingClient(
            self.clock,
            lambda host, port: self.endpoints.setdefault((host, port), PuppetEndpoint()),
            registry=self.registry,
        )

    def at(self, address: str) -> PuppetEndpoint:
        return self.endpoints[split_address(address)]

    def ask(self, address: str, timeout: float = 3.0) -> Deferred[Command]:
        return self.client.request(address, Command(code=105), timeout)

    def answer(self, transport: StringTransport) -> int:
        """Answer all that was asked over a connection, and return how much it was."""
        self.clock.advance(0)
        requests = FrameDecoder().receive(transport.value())
        transport.clear()
        assert transport.producer is not None
        for request in requests:
            self.deliver(transport, request.answer())
        return len(requests)

    def deliver(self, transport: StringTransport, command: Command) -> None:
        for connection in self.client.connections.live:
            if connection.transport is transport:
                connection.dataReceived(encode(command))
                return
        self.fail("no such connection")

    def test_one_attempt(self) -> None:
        """Requests made while a connection is made share it, and so do later ones."""
        first, second = self.ask(A), self.ask(A)
        transport = self.at(A).accept()
        third = self.ask(A)
        self.assertEqual((len(self.at(A).tries), self.answer(transport)), (1, 3))
        for answered in (first, second, third):
            self.successResultOf(answered)

    def test_addresses(self) -> None:
        """Each address has a connection of its own."""
        answers = [self.ask(A), self.ask(B)]
        for address in (A, B):
            self.assertEqual(self.answer(self.at(address).accept()), 1)
        for answered in answers:
            self.successResultOf(answered)

    def test_refused(self) -> None:
        """All who wait for a connection that fails are told why; the next one tries again."""
        answers = [self.ask(A), self.ask(A)]
        self.at(A).tries[0][1].errback(Failure(ConnectionRefusedError()))
        for answered in answers:
            error = self.failureResultOf(answered, RemotingUnreachable).value
            self.assertIn("cannot connect to 10.0.0.1:10911: Connection was refused", str(error))
        again = self.ask(A)
        self.answer(self.at(A).accept())
        self.successResultOf(again)

    def test_timeout_covers_connecting(self) -> None:
        """A request's time begins before a connection, and does not begin again with it."""
        impatient, patient = self.ask(A, 1.0), self.ask(A, 3.0)
        self.clock.advance(1.0)
        self.failureResultOf(impatient, RemotingTimeout)
        self.clock.advance(1.0)
        self.at(A).accept()
        self.clock.advance(0.5)
        self.assertNoResult(patient)
        self.clock.advance(0.5)
        self.failureResultOf(patient, RemotingTimeout)

    def test_cancel(self) -> None:
        """One who gives up while connecting takes nothing from the others."""
        gone, waiting = self.ask(A), self.ask(A)
        gone.cancel()
        self.failureResultOf(gone)
        self.assertEqual(self.answer(self.at(A).accept()), 1)
        self.successResultOf(waiting)

    def test_lost(self) -> None:
        """A lost connection fails what waits on it; the next request makes a new one."""
        answered = self.ask(A)
        self.at(A).accept()
        (connection,) = self.client.connections.live
        connection.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(answered, ConnectionLost)
        again = self.ask(A)
        self.answer(self.at(A).accept())
        self.successResultOf(again)
        self.assertEqual(len(self.at(A).tries), 2)

    def test_idle(self) -> None:
        """A connection nobody uses is closed after 120 s, and no timer is left behind."""
        answered = self.ask(A)
        transport = self.at(A).accept()
        self.answer(transport)
        self.successResultOf(answered)
        self.clock.pump([2.0] * 60)
        self.assertTrue(transport.disconnecting)
        (connection,) = self.client.connections.live
        connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_oneway(self) -> None:
        """A one-way request goes out over the same connection, and waits for nothing."""
        told = self.client.oneway(A, Command(code=40))
        transport = self.at(A).accept()
        self.successResultOf(told)
        self.clock.advance(0)
        (request,) = FrameDecoder().receive(transport.value())
        self.assertTrue(request.is_oneway)

    def test_asked_back(self) -> None:
        """What a broker asks its client is answered by the client's registry."""
        self.registry.register(40, lambda connection, command: command.answer(remark="here"))
        self.client.connect(A)
        transport = self.at(A).accept()
        self.deliver(transport, Command(code=40, opaque=77))
        (answer,) = FrameDecoder().receive(transport.value())
        self.assertEqual((answer.opaque, answer.remark), (77, "here"))

    def test_close(self) -> None:
        """Closing ends connections and attempts, and all that waits; nothing begins after it."""
        waiting = self.ask(A)
        transport = self.at(A).accept()
        connecting = self.ask(B)
        closed = self.client.close()
        self.failureResultOf(waiting, ConnectionLost)
        self.failureResultOf(connecting, RemotingUnreachable)
        self.failureResultOf(self.ask(A), RemotingUnreachable)
        self.assertTrue(transport.disconnecting)
        self.assertNoResult(closed)
        (connection,) = self.client.connections.live
        connection.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(closed)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_host_alone(self) -> None:
        """A host without a port has the one that is given; an IPv6 host may lack its brackets."""
        for given, address in (
            ("db1", "db1:10911"),
            ("[::1]", "[::1]:10911"),
            ("::1", "[::1]:10911"),
            ("db1:5", "db1:5"),
            ("[::1]:5", "[::1]:5"),
        ):
            self.assertEqual(with_port(given, 10911), address)

    def test_no_address(self) -> None:
        """What is no address is nowhere."""
        for address in ("", "localhost", "localhost:", ":1", "h:0", "h:65536", "h:1x", "h:-1"):
            self.failureResultOf(self.ask(address), RemotingUnreachable)


class AddressTests(SynchronousTestCase):
    def test_split(self) -> None:
        """Names, IPv4 and IPv6."""
        for text, expected in (
            ("broker-a:10911", ("broker-a", 10911)),
            (" 10.0.0.1:9876", ("10.0.0.1", 9876)),
            ("[fe80::1]:9876", ("fe80::1", 9876)),
        ):
            self.assertEqual(split_address(text), expected)

    def test_dialled(self) -> None:
        """A certificate has to name what was dialled: the name by which an address was found."""
        hosts: list[str] = []

        class Noting(OutgoingTls):
            """TLS without any."""

            def wrap(self, host: str, endpoint: IStreamClientEndpoint) -> IStreamClientEndpoint:
                hosts.append(host)
                return endpoint

        client = RemotingClient(MemoryReactorClock(), tls=Noting())
        client.dialled = {"10.0.0.1:9876": "names.test", "10.0.0.1:10911": ""}.__getitem__
        for address in ("10.0.0.1:9876", "10.0.0.1:10911"):
            client.connect(address).addErrback(lambda _: None)
        self.assertEqual(hosts, ["names.test", "10.0.0.1"])

    def test_connects(self) -> None:
        """An address of numbers is called without asking a resolver, for three seconds at most."""
        reactor = MemoryReactorClock()
        endpoints = tcp_endpoints(reactor)
        for host in ("10.0.0.1", "::1"):
            client = RemotingClient(reactor, endpoints)
            client.connect(f"[{host}]:9876").addErrback(lambda _: None)
            host_called, port, _, timeout, _ = reactor.tcpClients.pop()
            self.assertEqual((host_called, port, timeout), (host, 9876, 3.0))
