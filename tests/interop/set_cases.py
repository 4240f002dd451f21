"""What befalls a set, whoever is in it: steps of scenarios for each kind of set."""

from __future__ import annotations

import time
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, send
from lab.stock.brokers import BOOT, Broker
from lab.stock.controllers import OurNode, StockController
from tests.interop.cases import rounds
from tests.interop.linked_cases import LATE, LinkedTestCase, Links
from tests.interop.member_cases import Member
from tests.interop.mixed_cases import MixedTestCase

SWITCHES = rounds(3, 10)
"""Elections in a row."""

DEAD = 12.0
"""Seconds after which another member would have been elected, if it could be."""


class LinkedSetTestCase(MixedTestCase, LinkedTestCase):
    """A set with a network around each member."""

    def setUp(self) -> None:
        super().setUp()
        self.links: dict[str, Links] = {}

    def ours(
        self, name: str, controller: StockController, kind: type[OurNode] = Node, **keys: Any
    ) -> OurNode:
        """One of ours, and a network around it."""
        node = super().ours(name, controller, kind, **keys)
        self.surround(node)
        return node

    def java(self, name: str, controller: StockController) -> Broker:
        """One of Java's, and a network around it."""
        member = super().java(name, controller)
        self.surround(member)
        return member

    def surround(self, member: Member) -> None:
        """Put a network around a member, on the way of Java members to it, too."""
        links = self.links[member.name] = self.around(member)
        self.announce(member, links.replication)

    # --- masters ------------------------------------------------------------------------

    def frozen(self) -> None:
        """The master stands still until another one leads, with requests in its sockets; then it
        wakes, and what it wrote alone is acknowledged to nobody.
        """
        self.lead(self.first)
        name = self.first.name
        with self.scenario(f"{name} leads, frozen (SIGSTOP) with requests in its sockets; thawed"):
            load = self.load(50)
            with self.succeeded(self.first, load):
                self.first.freeze()
            # All of them at one that is alone write more than a stock slave follows in time.
            self.enough(load)
            self.first.thaw()
            self.until_whole()
            self.healed(self.load())

    def switched(self, count: int) -> None:
        """An operator elects one after the other while clients write."""
        with self.scenario(f"an operator elects one after the other under load: {count}x"):
            load = self.load()
            for number in range(count):
                wanted = self.members[number % len(self.members)]
                master = self.until_master(lambda master: True)
                if master is not wanted:
                    with self.succeeded(master, load, counts=True):
                        self.lead(wanted)
                self.until_again(load)
            self.enough(load)

    def elected_without_writes(self) -> None:
        self.lead(self.first)
        with self.scenario(f"all are elected with no write between, {self.first.name} last"):
            until(
                lambda: len({self.end_of(member) for member in self.members}) == 1,
                "all have the same",
                BOOT,
                tell=self.tell,
            )
            ends = {self.end_of(self.first)}
            for member in (*(each for each in self.members if each is not self.first), self.first):
                epoch = self.epoch()
                self.lead(member)
                self.assertGreater(self.epoch(), epoch)
                self.assertEqual(ends, {self.end_of(each) for each in self.members})

    # --- partitions -----------------------------------------------------------------------

    def parted(self, *, members: bool) -> None:
        """The master loses controllers, or members too, and load goes on at whoever leads."""
        self.lead(self.first)
        links, whom = self.links[self.first.name], "everybody" if members else "the controllers"
        with self.scenario(f"{self.first.name} leads and is cut off from {whom}; healed"):
            load = self.load()
            with self.succeeded(self.first, load):
                links.part(True, controllers=True, members=members)
            if isinstance(self.first, Node):
                self.until_state(self.first, "fenced")
                with Remote(self.first.port) as alone:
                    self.assertNotEqual(0, alone.ask(send(self.topic, b"to the old master")).code)
            links.part(False, controllers=True, members=members)
            self.healed(load)

    def alone(self) -> None:
        """The master loses the other members: the SyncStateSet shrinks, nobody is elected."""
        self.lead(self.first)
        links = self.links[self.first.name]
        with self.scenario(f"{self.first.name} leads, cut off from all slaves: leads on; healed"):
            epoch = self.epoch()
            load = self.load()
            links.part(True, members=True)
            self.until_only(self.first)
            if isinstance(self.first, Node):
                self.until_alone(load)
                self.until_refused(load)
            self.assertEqual(self.epoch(), epoch)
            links.part(False, members=True)
            self.healed(load)
            self.assertEqual(self.epoch(), epoch)

    def unseen(self) -> None:
        """A slave is cut off from the controllers, not from the master: it counts as before, and is
        not elected while it is cut off.
        """
        self.lead(self.first)
        links, name = self.links[self.last.name], self.last.name
        number = self.number_of(self.last)
        with self.scenario(f"{name} follows, cut off from the controllers: in sync as before"):
            load = self.load()
            links.part(True, controllers=True)
            self.until_dead(self.asked, number)
            self.until_only(*self.members)
            self.until_again(load)
        with self.scenario(f"the master is killed (-9): {name} is not elected; healed"):
            self.first.kill9()
            until_then = time.monotonic() + DEAD
            while time.monotonic() < until_then:
                state = self.decision()
                self.assertFalse(state and state.master and state.master.id == number, state)
                time.sleep(0.2)
            links.part(False, controllers=True)
            self.until_master(lambda member: member is not self.first)
            self.first.start()
            self.healed(load)

    def late(self) -> None:
        """Slaves get too little, or are not heard: they leave the SyncStateSet, and return."""
        self.lead(self.first)
        replication = self.links[self.first.name].replication
        for what, direction, fault in LATE:
            with self.scenario(f"{self.first.name} leads, its slaves {what}: out, then back"):
                load = self.load()
                replication.set(direction, **fault)
                self.until_only(self.first)
                self.until_refused(load)
                replication.set(direction)
                self.healed(load)
                self.assertIs(self.until_master(lambda master: True), self.first)

    # --- members --------------------------------------------------------------------------

    def renamed(self) -> None:
        """A slave's id is gone, its log is not: it gets a new one, follows, and may be elected."""
        self.lead(self.first)
        before = self.number_of(self.last)
        with self.scenario(f"{self.last.name} loses its id, not its log: a new one, and follows"):
            load = self.load()
            self.last.kill9()
            (self.last.root / "brokerIdentity").unlink()
            self.last.start()
            self.healed(load)
            self.assertNotEqual(self.number_of(self.last), before)
            self.until_dead(self.asked, before)
        with self.scenario(f"then it is elected under load: {self.last.name}"):
            load = self.load()
            self.lead(self.last)
            self.until_again(load)
            self.enough(load)

    def joined(self, letters: str) -> None:
        """A member without a log, the last one of these, joins a set that has several log files,
        under load; the connections are cut again and again.
        """
        self.begin_as(letters[:-1])
        with self.scenario("an empty member joins under load, connections cut ten times"):
            big = self.tool.put(1000, self.topic, size=4000)
            big.wait()
            self.acked += big.acked
            load = self.load()
            replication = self.links[self.first.name].replication
            replication.set("down", rate=1 << 20)
            if letters.endswith("J"):
                last = self.java("java-last", self.decider)
                self.javas.append(last)
            else:
                last = self.ours("ours-last", self.decider)
                self.nodes.append(last)
            last.launch()
            for _ in range(10):
                passed = replication.stats()["connections"]
                until(
                    lambda passed=passed: replication.stats()["connections"] > passed,
                    "another connection",
                    BOOT,
                    tell=last.tail,
                )
                replication.cut()
            replication.set("down")
            self.healed(load)


class SetScenarios(LinkedSetTestCase):
    """What every set goes through; its letters are L{MixedTestCase.begin_as}'s."""

    letters = ""
    full_only: tuple[str, ...] = ("test_masters", "test_cut_off", "test_partitions", "test_members")

    def test_masters(self) -> None:
        """Masters are stopped, killed, frozen, and replaced by an operator."""
        self.begin_as(self.letters)
        for what, end in (
            ("is stopped (SIGTERM)", self.stop),
            ("is killed (-9)", lambda master: master.kill9()),
        ):
            self.lead(self.first)
            self.back_again(self.first, what, end)
        self.frozen()
        self.switched(SWITCHES)
        self.end_with_ours()

    def test_cut_off(self) -> None:
        """Each is elected with no write between, and then the master is cut off from all."""
        self.begin_as(self.letters)
        for _ in range(rounds(1, 1)):
            self.elected_without_writes()
            self.parted(members=True)
        self.end_with_ours()

    def test_partitions(self) -> None:
        """Masters and slaves are cut off from the controllers, from each other, from both."""
        self.begin_as(self.letters)
        self.parted(members=False)
        self.parted(members=True)
        self.alone()
        self.unseen()
        self.end_with_ours()

    def test_members(self) -> None:
        """An empty member joins; one loses its id."""
        self.joined(self.letters)
        self.renamed()
        self.end_with_ours()


class LateScenarios(SetScenarios):
    """What sets go through that a member of ours leads.  For a stock master a slave is late only
    when no more fits between them, whatever it has said: that takes megabytes.
    """

    full_only = (*SetScenarios.full_only, "test_late_members")

    def test_late_members(self) -> None:
        """Slaves get too little, or are not heard."""
        self.begin_as(self.letters)
        self.late()
        self.end_with_ours()
