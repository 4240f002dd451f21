"""
Members whose controllers answer late, or not them, or die with the master.
"""

from __future__ import annotations

import time
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Sends
from lab.stock.controllers import answered, controllers, our_member
from rmqha.controller.coordinator import SetState
from rmqha.controller.group import ControllerGroup
from rmqha.controller.overview import look, members
from tests.interop import cases
from tests.interop.linked_cases import LinkedTestCase


class ControllerTestCase(LinkedTestCase):
    """
    Controllers that are asked what they have decided.
    """

    asking: ControllerGroup

    def until_decided(self, *wanted: Node) -> None:
        """
        Wait until the SyncStateSet is of these, for the controllers.
        """
        ids = {self.id_of(node) for node in wanted}

        def decided() -> bool:
            state: SetState | None = answered(self.asking.current())
            return state is not None and state.in_sync == ids

        until(
            decided,
            f"{ids} in the SyncStateSet",
            BOOT,
            tell=lambda: "\n".join(node.tail() for node in wanted),
            pause=0.1,
        )

    def until_dead(self, node: Node) -> None:
        """
        Wait until the controllers take a member for dead.
        """
        number = self.id_of(node)

        def dead() -> bool:
            seen = answered(look(self.asking, [self.asking.name]))
            found = seen and seen.sets.get(self.asking.name)
            return bool(found) and any(
                each.broker_id == number and not each.alive for each in members(found)
            )

        until(dead, f"{number} is dead", BOOT, tell=node.tail, pause=0.2)


class UnansweredTests(ControllerTestCase):
    """
    Two members of ours whose controllers are heard late, or not.
    """

    full_only = ("test_lost_answers", "test_late_answers", "test_slave_without_controllers")

    def until_refused(self, load: Sends) -> None:
        """
        Wait until writes are answered otherwise than with SEND_OK, of which there are none
        meanwhile.
        """
        for last in (False, True):
            before, acked = len(load.sent), len(load.acked)
            until(
                lambda before=before: any(
                    each.status != "SEND_OK" for each in list(load.sent)[before:]
                ),
                "answered otherwise",
                BOOT,
                tell=self.tool.tail,
            )
            if last:
                self.assertEqual(len(load.acked), acked, "acknowledged by the master alone")

    def unanswered(self, what: str, fault: dict[str, Any]) -> None:
        """
        The controllers change the set as the master asks, and it does not hear of it: what both
        sets hold is acknowledged, and nothing else.
        """
        master, other, links = self.linked()
        self.asking = self.group(self.decider)
        with self.scenario(f"a member is killed (-9), the controllers' answers are {what}"):
            load = self.load()
            links.controllers.set("down", **fault)
            alone, both = (master,), (master, other)
            number = self.id_of(other)
            other.kill9()
            self.until_decided(*alone)
            self.until_refused(load)
            links.controllers.set("down")
            self.until_in_sync(master, 1)
            self.until_refused(load)
        with self.scenario(f"it comes back, the controllers' answers are {what}"):
            links.replication.set("up", hold=True)
            other.start()
            self.assertEqual(self.id_of(other), number)
            until(lambda: links.replication.stats()["open"], "it connects", BOOT, tell=other.tail)
            # The last question that can be asked: after it, who leads is not known.
            links.controllers.set("down", **fault)
            links.replication.set("up")
            self.until_decided(*both)
            self.until_again(load)
            other.freeze()
            self.until_refused(load)
            other.thaw()
            links.controllers.set("down")
            self.until_in_sync(master, 2)
            self.until_again(load)
            self.enough(load)
        with self.scenario("and the master is killed (-9)"):
            load = self.load()
            master.kill9()
            self.until_state(other, "leading")
            master.start()
            self.until_in_sync(other, 2)
            self.until_again(load)
            self.enough(load)
        self.assert_settled([master, other])

    def test_lost_answers(self) -> None:
        """
        They do not come, until the connection is given up.
        """
        self.unanswered("lost", {"hold": True})

    def test_late_answers(self) -> None:
        """
        They come when nobody waits for them any more.
        """
        self.unanswered("4 s late", {"delay": 4.0})

    def test_slave_without_controllers(self) -> None:
        """
        A slave is cut off from the controllers, not from the master: it counts as before, and is
        not elected while it is cut off.
        """
        master, other, _ = self.linked()
        links = self.links[other.name]
        self.asking = self.group(self.decider)
        with self.scenario("the slave is cut off from the controllers: in sync as before"):
            load = self.load()
            links.part(True, controllers=True)
            self.until_dead(other)
            self.until_decided(master, other)
            self.until_again(load)
            self.assertEqual(self.state(other), "following")
        with self.scenario("the master is killed (-9): nobody leads; healed: the slave does"):
            master.kill9()
            self.assert_never_leads(other, 12.0)
            links.part(False, controllers=True)
            self.until_state(other, "leading")
            master.start()
            self.until_in_sync(other, 2)
            self.until_again(load)
            self.enough(load)
        self.assert_settled([master, other])


class LostLeaderTests(ControllerTestCase):
    """
    Three controllers, three members of ours.
    """

    roles = "three members of ours, three controllers"
    full_only = ("test_leader_and_master",)

    def test_leader_and_master(self) -> None:
        """
        The controller that leads and the master are killed together: there is one successor, as
        soon as there is a leader.
        """
        group = controllers(self.folder, 3)
        self._processes += group
        for each in group:
            each.launch()
        self.asking = self.group(*group)
        until(
            lambda: answered(self.asking.find_leader()),
            "a controller leads",
            BOOT,
            tell=group[0].tail,
            pause=0.2,
        )
        nodes = [
            our_member(self.folder, self.tool, f"ours-{n}", group, **cases.BRISK) for n in (1, 2, 3)
        ]
        self._processes += nodes
        with self.scenario("3 join"):
            for node in nodes:
                node.start()
            self.until_led(nodes)
            self.until_in_sync(self.led(nodes), 3)
        with self.scenario("the leading controller and the master are killed (-9) under load"):
            load = self.load()
            master = self.led(nodes)
            rest = [node for node in nodes if node is not master]
            leads = answered(self.asking.find_leader())
            (leader,) = (each for each in group if each.address == leads)
            leader.kill9()
            master.kill9()
            begun = time.monotonic()
            self.until_led(rest)
            self.assertLess(time.monotonic() - begun, 60.0)
            self.until_in_sync(self.led(rest), 2)
            self.until_again(load)
            successor = self.led(rest)
            leader.launch()
            master.start()
            self.until_in_sync(successor, 3)
            self.enough(load)
            self.assertEqual(self.state(successor), "leading")
        self.assert_settled(nodes)
