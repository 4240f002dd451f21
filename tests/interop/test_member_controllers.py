"""
Members whose controllers answer late, or not them, or are away, or die with the master.
"""

from __future__ import annotations

import time
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker
from lab.stock.controllers import StockController, addresses_of, answered, controllers
from tests.interop import set_cases
from tests.interop.mixed_cases import MixedTestCase

AWAY = 60.0
"""Seconds without any controller."""


class UnansweredTests(set_cases.LinkedSetTestCase):
    """
    Members of ours whose controllers are heard late, or not.
    """

    roles = "members of ours"
    full_only = ("test_lost_answers", "test_lost_answers_of_three", "test_late_answers")

    def unanswered(self, letters: str, what: str, fault: dict[str, Any]) -> None:
        """
        The controllers change the set as the master asks, and it does not hear of it: what both
        sets hold is acknowledged, and nothing else.
        """
        self.begin_as(letters)
        first, *rest = self.nodes
        other = rest[-1]
        links = self.links[first.name]
        with self.scenario(f"a member is killed (-9), the controllers' answers are {what}"):
            load = self.load()
            links.controllers.set("down", **fault)
            other.kill9()
            self.until_only(*self.nodes[:-1])
            self.until_refused(load)
            links.controllers.set("down")
            self.until_in_sync(first, len(rest))
            if len(rest) > 1:
                self.until_again(load)
            else:
                self.until_refused(load)
        with self.scenario(f"it comes back, the controllers' answers are {what}"):
            links.replication.set("up", hold=True)
            other.start()
            until(lambda: links.replication.stats()["open"], "it connects", BOOT, tell=other.tail)
            # The last question that can be asked: after it, who leads is not known.
            links.controllers.set("down", **fault)
            links.replication.set("up")
            self.until_whole()
            self.until_again(load)
            other.freeze()
            self.until_refused(load)
            other.thaw()
            links.controllers.set("down")
            self.until_in_sync(first, len(self.nodes))
            self.until_again(load)
            self.enough(load)
        self.back_again(first, "is killed (-9)", lambda master: master.kill9())
        self.end_with_ours()

    def test_lost_answers(self) -> None:
        """
        They do not come, until the connection is given up.
        """
        self.unanswered("OO", "lost", {"hold": True})

    def test_lost_answers_of_three(self) -> None:
        """
        The same with three members, two of which are there.
        """
        self.unanswered("OOO", "lost", {"hold": True})

    def test_late_answers(self) -> None:
        """
        They come when nobody waits for them any more.
        """
        self.unanswered("OO", "4 s late", {"delay": 4.0})


class NoControllerTests(MixedTestCase):
    """
    A controller that is away for a minute.
    """

    roles = "two members, of ours and of Java's"
    full_only = ("test_ours", "test_java_follows", "test_java_leads")

    def undecided(self, letters: str) -> None:
        """
        Writes go on, as all are there; then a slave goes too, and the master takes no write until
        the controller is back.
        """
        self.begin_as(letters)
        with self.scenario(f"no controller for {AWAY:.0f} s, then no slave: no writes; all back"):
            load = self.load()
            self.decider.kill9()
            back = time.monotonic() + AWAY
            while time.monotonic() < back:
                self.until_again(load)
            self.last.kill9()
            if isinstance(self.first, Node):
                self.until_state(self.first, "fenced")
            self.until_refused(load)
            self.decider.launch()
            self.last.launch()
            self.healed(load)
        self.end_with_ours()

    def test_ours(self) -> None:
        """
        Both are ours.
        """
        self.undecided("OO")

    def test_java_follows(self) -> None:
        """
        Ours leads.
        """
        self.undecided("OJ")

    def test_java_leads(self) -> None:
        """
        Java's leads: it stores writes, and acknowledges none.
        """
        self.undecided("JO")


class LostLeaderTests(MixedTestCase):
    """
    Three controllers, three members.
    """

    roles = "three members, three controllers"
    full_only = ("test_ours", "test_java_members")

    def controller(self) -> StockController:
        """
        Start all three, and wait until one leads.
        """
        self.group_of_three = controllers(self.folder, 3)
        self._processes += self.group_of_three
        for each in self.group_of_three:
            each.launch()
        asking = self.group(*self.group_of_three)
        until(lambda: answered(asking.find_leader()), "a controller leads", BOOT, pause=0.2)
        return self.group_of_three[0]

    def deciders(self) -> list[StockController]:
        """
        All three.
        """
        return self.group_of_three

    def ours(self, *given: Any, **keys: Any) -> Any:
        """
        One of ours, that knows all three.
        """
        return super().ours(*given, controllerAddr=addresses_of(self.group_of_three), **keys)

    def java(self, name: str, controller: StockController) -> Broker:
        """
        One of Java's, that knows all three.
        """
        member = super().java(name, controller)
        member.keys["controllerAddr"] = addresses_of(self.group_of_three)
        return member

    def both_lost(self, letters: str) -> None:
        """
        The controller that leads and the master are killed together: there is one successor, as
        soon as there is a leader.
        """
        self.begin_as(letters)
        with self.scenario("the leading controller and the master are killed (-9) under load"):
            load = self.load()
            leads = answered(self.asked.find_leader())
            (leader,) = (each for each in self.group_of_three if each.address == leads)
            leader.kill9()
            self.first.kill9()
            begun = time.monotonic()
            successor = self.until_master(lambda member: member is not self.first)
            self.assertLess(time.monotonic() - begun, 60.0)
            self.until_only(*(each for each in self.members if each is not self.first))
            self.until_again(load)
            leader.launch()
            self.first.start()
            self.healed(load)
            self.assertIs(self.until_master(lambda master: True), successor)
        self.end_with_ours()

    def test_ours(self) -> None:
        """
        All are ours.
        """
        self.both_lost("OOO")

    def test_java_members(self) -> None:
        """
        Ours leads two of Java's.
        """
        self.both_lost("OJJ")
