"""Members whose controllers answer late, or not them, or are away, or die with the master."""

from __future__ import annotations

import time
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker
from lab.stock.controllers import StockController, addresses_of, answered, controllers
from rmqha.controller.coordinator import SetState
from tests.interop import set_cases
from tests.interop.linked_cases import told
from tests.interop.mixed_cases import MixedTestCase

AWAY = 60.0
"""Seconds without any controller."""

LATE = 25.0
"""Seconds that a change of the set is on its way: longer than a controller misses a member."""


class UnansweredTests(set_cases.LinkedSetTestCase):
    """Members of ours whose controllers are heard late, or not."""

    roles = "members of ours"
    full_only = (
        "test_lost_answers",
        "test_lost_answers_of_three",
        "test_late_answers",
        "test_late_change",
    )

    def unanswered(self, letters: str, what: str, fault: dict[str, Any]) -> None:
        """The controllers change the set as the master asks, and it does not hear of it: what both
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
        """They do not come, until the connection is given up."""
        self.unanswered("OO", "lost", {"hold": True})

    def test_lost_answers_of_three(self) -> None:
        """The same with three members, two of which are there."""
        self.unanswered("OOO", "lost", {"hold": True})

    def test_late_answers(self) -> None:
        """They come when nobody waits for them any more."""
        self.unanswered("OO", "4 s late", {"delay": 4.0})

    def test_late_change(self) -> None:
        """A change that takes a member in is on its way for long, and the member is cut off from
        the master meanwhile: without it nothing is acknowledged until a newer set epoch is told,
        which the controllers do not let the late change pass; so the member is not elected.
        """
        self.begin_as("OOO")
        first, second, third = self.nodes
        links = self.links[first.name]
        # The third one's own way to the master.
        clients, replication = (
            self.proxy(place) for place in (("127.0.0.1", first.port), first.address)
        )
        clients.swap("down", told(links.replication), told(replication))
        clients.swap("down", f"127.0.0.1:{first.address[1]}", told(replication))
        self.links[third.name].controllers.swap("down", told(links.clients), told(clients))
        both, number = {*map(self.number_of, (first, second))}, self.number_of(third)
        with self.scenario(f"a change of the set is {LATE:.0f} s on its way, its member cut off"):
            third.kill9()
            self.until_only(first, second)
            load = self.load()
            replication.set("up", hold=True)
            third.start()
            until(lambda: replication.stats()["open"], "it connects", BOOT, tell=third.tail)
            before = self.decision()
            links.controllers.set("up", delay=LATE)
            begun = time.monotonic()
            replication.set("up")
            may_be = [sorted({*both, number})]
            first.until(
                lambda status: status["controller"]["set"]["mayAlsoBe"] == may_be,
                "the change is asked for",
            )
            sent = time.monotonic() + 1.0
            until(lambda: time.monotonic() > sent, "it is on its way")
            for way in (clients, replication):
                way.part(True)
            links.controllers.half_open("server")
            until(lambda: "may be made all the same" in first.log(), "it is not answered")
            self.until_refused(load)
            # What is asked from now on is not behind what is on its way.
            links.controllers.set("up")
            links.controllers.half_open("server")
            newer = until(lambda: self.newer(before, both), "a newer set without it", BOOT)
            self.until_again(load)
            self.assertEqual(first.status()["controller"]["set"]["mayAlsoBe"], [])
            self.assertLess(
                time.monotonic() - begun, LATE, "no newer set was decided before it came"
            )
            while time.monotonic() - begun < LATE + 3:
                self.until_again(load)
                self.assertEqual(self.decision(), newer)
        with self.scenario("the others are killed (-9): it is not elected; healed"):
            for node in (second, first):
                node.kill9()
            self.enough(load)
            self.assert_never_leads(third, set_cases.DEAD)
            for way in (clients, replication):
                way.part(False)
            first.start()
            second.start()
            self.healed(self.load())
        self.end_with_ours()

    def newer(self, before: SetState | None, members: set[int]) -> SetState | None:
        """What is decided, if it was decided later than that, and is these members."""
        state = self.decision()
        assert before is not None, "there was a controller"
        later = state is not None and state.set_epoch > before.set_epoch
        return state if later and state is not None and state.in_sync == members else None


class NoControllerTests(MixedTestCase):
    """A controller that is away for a minute."""

    roles = "two members, of ours and of Java's"
    full_only = ("test_ours", "test_java_follows", "test_java_leads")

    def undecided(self, letters: str) -> None:
        """Writes go on, as all are there; without a slave none, until the controller is back."""
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
        """Both are ours."""
        self.undecided("OO")

    def test_java_follows(self) -> None:
        """Ours leads."""
        self.undecided("OJ")

    def test_java_leads(self) -> None:
        """Java's leads: it stores writes, and acknowledges none."""
        self.undecided("JO")


class LostLeaderTests(MixedTestCase):
    """Three controllers, three members."""

    roles = "three members, three controllers"
    full_only = ("test_ours", "test_java_members")

    def controller(self) -> StockController:
        """Start all three, and wait until one leads."""
        self.group_of_three = controllers(self.folder, 3)
        self._processes += self.group_of_three
        for each in self.group_of_three:
            each.launch()
        asking = self.group(*self.group_of_three)
        until(lambda: answered(asking.find_leader()), "a controller leads", BOOT, pause=0.2)
        return self.group_of_three[0]

    def deciders(self) -> list[StockController]:
        return self.group_of_three

    def ours(self, *given: Any, **keys: Any) -> Any:
        """One of ours, that knows all three."""
        return super().ours(*given, controllerAddr=addresses_of(self.group_of_three), **keys)

    def java(self, name: str, controller: StockController) -> Broker:
        """One of Java's, that knows all three."""
        member = super().java(name, controller)
        member.keys["controllerAddr"] = addresses_of(self.group_of_three)
        return member

    def both_lost(self, letters: str) -> None:
        """The leading controller and the master are killed: one successor, as soon as may be."""
        self.begin_as(letters)
        with self.scenario("the leading controller and the master are killed (-9) under load"):
            load = self.load()
            leads = answered(self.asked.find_leader())
            (leader,) = (each for each in self.group_of_three if each.address == leads)
            begun = time.monotonic()
            with self.succeeded(self.first, load):
                leader.kill9()
                self.first.kill9()
            self.assertLess(time.monotonic() - begun, 60.0)
            successor = self.until_master(lambda master: True)
            self.until_only(*(each for each in self.members if each is not self.first))
            self.until_again(load)
            leader.launch()
            self.first.start()
            self.healed(load)
            self.assertIs(self.until_master(lambda master: True), successor)
        self.end_with_ours()

    def test_ours(self) -> None:
        """All are ours."""
        self.both_lost("OOO")

    def test_java_members(self) -> None:
        """Ours leads two of Java's."""
        self.both_lost("OJJ")
