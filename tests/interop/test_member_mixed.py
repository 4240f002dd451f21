"""
Sets of members of ours and Java members: who leads changes from one kind to the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.stock.brokers import BOOT, Broker
from lab.stock.controllers import StockController
from rmqha.controller.coordinator import SetState
from rmqha.controller.identity import IdentityFiles
from rmqha.errors import RmqhaError
from rmqha.ha.master_epoch import EpochJournal
from rmqha.store.tables import epoch_file
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.store_layout import EPOCH_FILE_CHECKPOINT
from tests.interop.cases import rounds
from tests.interop.member_cases import ScenarioTestCase
from tests.interop.test_member import Member
from tests.support import client

KEPT = "SEND_OK"


class MixedTestCase(ScenarioTestCase):
    """
    A set of both kinds.

    @ivar nodes: Members of ours.
    @ivar javas: Java's.
    """

    def begin(self, ours: int = 1, javas: int = 1, *, java_first: bool = False) -> None:
        """
        Start a set, whose first master is of one kind or the other.
        """
        decider = self.decider = self.controller()
        self.asked = self.group(decider)
        self.nodes = [self.ours(f"ours-{number + 1}", decider) for number in range(ours)]
        self.javas = [self.java(f"java-{number + 1}", decider) for number in range(javas)]
        members: list[Member] = [*self.nodes, *self.javas]
        with self.scenario(f"{ours} of ours and {javas} of Java's join"):
            members.sort(key=lambda each: isinstance(each, Node) is java_first)
            first, *others = members
            self.start(first)
            self.until_master(lambda master: True)
            for member in others:
                self.start(member)
            self.until_whole()
            # Name servers may know it a little later.
            until(
                lambda: self.tool.put(1, self.topic).wait() == {KEPT: 1},
                "a write is taken",
                BOOT,
                tell=self.tool.tail,
                pause=0.2,
            )
            # They copy what topics there are once in ten seconds; elected before that they would
            # not know this one.
            for java in self.javas:
                until(
                    lambda java=java: self.topic in client.topic_names(java.client_address),
                    f"{java.name} knows the topic",
                    BOOT,
                    tell=java.tail,
                    pause=0.5,
                )

    @property
    def members(self) -> list[Member]:
        """
        All.
        """
        return [*self.nodes, *self.javas]

    def start(self, member: Member) -> None:
        """
        Start one, and wait until it can be asked.
        """
        member.start()

    def stop(self, member: Member) -> None:
        """
        End one cleanly.
        """
        if isinstance(member, Broker):
            member.stop()
        else:
            member.term()

    # --- what the controller says ---------------------------------------------------------

    def number_of(self, member: Member) -> int:
        """
        A member's controller id, also while it is not there.
        """
        known = IdentityFiles.of(member.root, "interop", "broker-a").read()
        assert known is not None, "it has joined once"
        return known.id

    def decision(self) -> SetState | None:
        """
        What is decided of the set; C{None} if nobody says.
        """
        found: list[Any] = []
        self.asked.current().addBoth(found.append)
        if isinstance(found[0], SetState):
            return found[0]
        found[0].trap(RmqhaError)
        return None

    def until_master(self, wanted: Callable[[Member], bool]) -> Member:
        """
        Wait until one is elected that is wanted, and leads.
        """

        def elected() -> Member | None:
            state = self.decision()
            if state is None or state.master is None:
                return None
            for member in self.members:
                if not member.running or self.number_of(member) != state.master.id:
                    continue
                if wanted(member) and (isinstance(member, Broker) or self.leader([member])):
                    return member
            return None

        found: Member = until(elected, "another master", BOOT, tell=self.tell, pause=0.2)
        return found

    def until_whole(self) -> None:
        """
        Wait until all members are in the SyncStateSet.
        """

        def whole() -> bool:
            state = self.decision()
            return state is not None and len(state.in_sync) == len(self.members)

        until(whole, "all are in the SyncStateSet", BOOT, tell=self.tell, pause=0.2)

    def tell(self) -> str:
        """
        What may help where something did not come true.
        """
        ours = (f"{each.name}:\n{each.tail()}" for each in self.nodes)
        return "\n".join((str(self.decision()), *ours))

    def end_with_ours(self) -> None:
        """
        All holds in the end, when a member of ours leads.
        """
        if self.leader(self.nodes) is None:
            self.elect(self.asked, self.number_of(self.nodes[0]))
        self.assert_settled(self.nodes, *self.javas)

    # --- what befalls it --------------------------------------------------------------------

    def replaced(self, what: str, end: Callable[[Member], object], count: int) -> None:
        """
        Whoever is master is ended under load, again and again, and comes back.
        """
        for number in range(count):
            master = self.until_master(lambda master: True)
            self.until_whole()
            with self.scenario(f"the master {what} under load: {number + 1}, {master.name}"):
                load = self.load()
                end(master)
                self.until_master(lambda member, gone=master: member is not gone)
                self.start(master)
                self.until_whole()
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()


class MixedPairTests(MixedTestCase):
    """
    One of each.
    """

    roles = "a member of ours, a Java member"
    full_only = ("test_stops", "test_every_order", "test_every_order_after_java")

    def test_kills(self) -> None:
        """
        The master is killed: Java's, then ours.
        """
        self.begin(java_first=True)
        self.replaced("is killed (-9)", lambda master: master.kill9(), rounds(4, 40))

    def test_stops(self) -> None:
        """
        The master is stopped: ours, then Java's.
        """
        self.begin()
        self.replaced("is stopped (SIGTERM)", self.stop, rounds(2, 4))

    def orders(self, *, java_first: bool) -> None:
        """
        All are killed under load, and come in each order.
        """
        self.begin(java_first=java_first)
        for order in itertools.permutations(self.members):
            names = ", ".join(member.name for member in order)
            with self.scenario(f"all are killed (-9) under load, and come as {names}"):
                load = self.load()
                for member in self.members:
                    member.kill9()
                for member in order:
                    member.launch()
                self.until_master(lambda master: True)
                self.until_whole()
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()

    def test_every_order(self) -> None:
        """
        A member of ours was the first master.
        """
        self.orders(java_first=False)

    def test_every_order_after_java(self) -> None:
        """
        Java's was.
        """
        self.orders(java_first=True)


class MixedTripleTests(MixedTestCase):
    """
    Two of ours and one of Java's.
    """

    roles = "two members of ours, a Java member"
    full_only = ("test_kills",)

    def test_switches_without_writes(self) -> None:
        """
        Two elections with no write between, in which the Java member is in the middle; then another
        one: no log has bytes of its own.
        """
        self.begin(ours=2)
        first, second = self.nodes
        for number in range(rounds(1, 3)):
            with self.scenario(f"ours, Java's and ours elected, no write between: {number + 1}"):
                self.enough(self.load())
                for member in (*self.javas, second):
                    self.elect(self.asked, self.number_of(member))
                    self.until_master(lambda master, wanted=member: master is wanted)
                    self.until_whole()
                load = self.load()
                self.elect(self.asked, self.number_of(first))
                self.until_state(first, "leading")
                self.until_whole()
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()

    def test_kills(self) -> None:
        """
        Whoever is master is killed.
        """
        self.begin(ours=2)
        self.replaced("is killed (-9)", lambda master: master.kill9(), rounds(3, 9))


class ForgottenLabelTests(MixedTestCase):
    """
    Java slaves whose way to our master breaks around a new label.
    """

    roles = "a member of ours, Java slaves"
    full_only = ("test_two_slaves",)

    def way(self, node: Node) -> Proxy:
        """
        Put a network before a member's HA port, where Java members come, who ask a name server.
        """
        replication = self.proxy(node.address)
        names = self.proxy(("127.0.0.1", self.tool.names_port))
        host, port = replication.address
        names.swap("up", f"127.0.0.1:{node.ha_port}", f"{host}:{port}")
        host, port = names.address
        node.keys["namesrvAddr"] = f"{host}:{port}"
        return replication

    def labels(self, member: Member) -> tuple[EpochLabel, ...]:
        """
        Those of a store.
        """
        return tuple(epoch_file.read(member.root / EPOCH_FILE_CHECKPOINT).labels or ())

    def ours(self, name: str, controller: StockController, **keys: Any) -> Node:
        """
        One of ours, behind a network.
        """
        node = super().ours(name, controller, **keys)
        self.link = self.way(node)
        return node

    def cut(self) -> None:
        """
        Break all connections to our HA port, and wait until all are back.
        """
        master = self.led(self.nodes)
        before = self.link.stats()["connections"]
        self.link.cut()
        until(
            lambda: self.link.stats()["connections"] >= before + len(self.javas),
            "they connect again",
            BOOT,
            tell=master.tail,
            pause=0.2,
        )
        self.until_whole()

    def broken(self, count: int) -> None:
        """
        A new label, no write, the connections break; writes, they break again: Java slaves cut
        nothing that they acknowledged, and have the label.
        """
        self.begin(javas=count)
        (ours,) = self.nodes
        for number in range(rounds(1, 3)):
            with self.scenario(f"a new label, connections broken before and after: {number + 1}"):
                self.enough(self.load())
                self.until_whole()
                epoch = self.state_epoch(ours)
                self.elect(self.asked, self.number_of(self.javas[0]))
                self.until_master(lambda master: master is self.javas[0])
                self.until_whole()
                self.elect(self.asked, self.number_of(ours))
                self.until_state(ours, "leading")
                self.until_whole()
                self.assertGreater(self.state_epoch(ours), epoch)
                for _ in range(2):
                    self.cut()
                self.enough(self.load())
                end = ours.status()["maxOffset"]
                for java in self.javas:
                    java.until_max(end)
                for _ in range(2):
                    self.cut()
                    for java in self.javas:
                        self.assertGreaterEqual(java.max_offset(), end)
                        self.assertEqual(self.labels(ours), self.labels(java))
        self.end_with_ours()

    def state_epoch(self, node: Node) -> int:
        """
        A member's newest master epoch.
        """
        return EpochJournal.read(node.root).number

    def test_one_slave(self) -> None:
        """
        One.
        """
        self.broken(1)

    def test_two_slaves(self) -> None:
        """
        Two.
        """
        self.broken(2)
