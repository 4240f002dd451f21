"""Brokers of ours in memory, a name server that knows them, and commands that ask them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rmqha.cli import reach
from rmqha.cli.brokers import asking
from rmqha.errors import RemotingUnreachable
from rmqha.wire.remoting.bodies.route import BrokerData, ClusterInfo
from rmqha.wire.remoting.bodies.tables import TopicList
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from tests.broker.support import BrokerTestCase, Client
from tests.cli.command import CommandTestCase

MASTER, SLAVE, NAMES = "10.0.0.9:10911", "10.0.0.8:10911", "10.0.0.1:9876"

Answers = Callable[[Command], Command]


@define
class Wire:
    """What commands ask through, in the place of sockets: all questions, and who answers."""

    clock: Clock
    peers: dict[str, Client | Answers] = field(factory=dict)
    asked: list[tuple[str, int]] = field(factory=list)

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        self.asked.append((address, command.code))
        peer = self.peers.get(address)
        if peer is None:
            return fail(RemotingUnreachable(address, "Connection refused"))
        if not isinstance(peer, Client):
            return succeed(peer(command))
        peer.send(command)
        for _ in range(100):
            heard = peer.heard()
            if heard:
                return succeed(heard[0])
            self.clock.advance(0.01)
        raise AssertionError(f"no answer to {command}")

    def close(self) -> Deferred[None]:
        return succeed(None)


class SiteTestCase(BrokerTestCase, CommandTestCase):
    routed: tuple[str, ...] = ()

    def setUp(self) -> None:
        super().setUp()
        self.wire = Wire(self.clock)
        self.master = self.broker(namesrv=NAMES)
        self.wire.peers[MASTER] = self.client()
        self.patch(reach, "RemotingClient", lambda *given, **named: self.wire)
        self.patch(asking, "in_reactor", self.at_once)

    def at_once(self, run: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """What a command does in a reactor."""
        ended: list[Any] = []
        ensureDeferred(run(self.clock)).addBoth(ended.append)
        (outcome,) = ended
        if isinstance(outcome, Failure):
            outcome.raiseException()
        return outcome

    def name_server(self, **brokers: BrokerData) -> None:
        """Have a name server at L{NAMES} know a master, its slave, and others."""
        known = {
            "broker-a": BrokerData(
                broker_name="broker-a", cluster="C", broker_addrs={0: MASTER, 1: SLAVE}
            ),
            **{data.broker_name: data for data in brokers.values()},
        }

        def answer(command: Command) -> Command:
            if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
                return command.answer(body=write(ClusterInfo(broker_addr_table=known)))
            if command.code == RequestCode.GET_TOPICS_BY_CLUSTER:
                return command.answer(body=write(TopicList(topic_list=self.routed)))
            return command.answer()

        self.wire.peers[NAMES] = answer

    def codes_at(self, address: str) -> list[int]:
        return [code for where, code in self.wire.asked if where == address]
