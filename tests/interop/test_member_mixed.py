"""
Sets of members of ours and Java members: who leads changes from one kind to the other.
"""

from __future__ import annotations

import itertools
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.stock.brokers import BOOT, Broker
from lab.stock.controllers import StockController
from rmqha.ha.master_epoch import EpochJournal
from rmqha.store.tables import epoch_file
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.store_layout import EPOCH_FILE_CHECKPOINT
from tests.interop.cases import rounds
from tests.interop.linked_cases import LinkedTestCase, Links
from tests.interop.member_cases import Member
from tests.interop.mixed_cases import MixedTestCase


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


class MixedPartitionTests(MixedTestCase, LinkedTestCase):
    """
    One of each, with a network around each.
    """

    roles = "a member of ours, a Java member"
    full_only = ("test_ours_without_anybody", "test_java_without_anybody")

    def setUp(self) -> None:
        """
        No network yet.
        """
        super().setUp()
        self.links: dict[str, Links] = {}

    def ours(self, name: str, controller: StockController, **keys: Any) -> Node:
        """
        One of ours, and a network around it.
        """
        node = super().ours(name, controller, **keys)
        self.links[node.name] = self.around(node)
        return node

    def java(self, name: str, controller: StockController) -> Broker:
        """
        One of Java's, and a network around it.
        """
        member = super().java(name, controller)
        self.links[member.name] = self.around(member)
        return member

    def parted(self, *, java_first: bool) -> None:
        """
        The master is cut off from the controllers and from the other member, and load goes on at
        both.
        """
        self.begin(java_first=java_first)
        master = self.until_master(lambda master: True)
        links = self.links[master.name]
        with self.scenario(f"{master.name} leads and is cut off from all members; healed"):
            load = self.load()
            links.part(True, controllers=True, members=True)
            self.until_master(lambda member: member is not master)
            if isinstance(master, Node):
                self.until_state(master, "fenced")
            links.part(False, controllers=True, members=True)
            self.until_whole()
            self.until_again(load)
            self.enough(load)
        self.end_with_ours()

    def test_ours_without_anybody(self) -> None:
        """
        Ours: it takes no write, and follows when it is back.
        """
        self.parted(java_first=False)

    def test_java_without_anybody(self) -> None:
        """
        Java's: what it wrote alone it cuts by our labels when it is back.
        """
        self.parted(java_first=True)
