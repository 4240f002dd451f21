"""
Members of ours in sets whose master stock controllers elect, alone and beside Java members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker, Sent
from lab.stock.controllers import (
    OurNode,
    StockController,
    controllers,
    java_member,
    our_member,
)
from tests.interop import cases
from tests.interop.cases import InteropTestCase

ROUNDS = cases.rounds(3, 20)

Member = Node | Broker


class MemberTestCase(InteropTestCase):
    """
    Sets of members, and a controller.
    """

    version = "5.3.3"
    roles = "members of a set"

    def controller(self) -> StockController:
        """
        Start one.
        """
        (one,) = controllers(self.folder, 1)
        self._processes.append(one)
        one.launch()
        until(lambda: "boot success" in one.log(), "a controller", BOOT, tell=one.tail)
        return one

    def java(self, name: str, controller: StockController) -> Broker:
        """
        A Java member, not started.
        """
        member = java_member(self.folder, self.tool, name, [controller])
        self._processes.append(member)
        return member

    def ours(
        self, name: str, controller: StockController, kind: type[OurNode] = Node, **keys: Any
    ) -> OurNode:
        """
        One of ours, not started.
        """
        given = {**cases.BRISK, **keys}
        node = our_member(self.folder, self.tool, name, [controller], kind, **given)
        self._processes.append(node)
        return node

    def state(self, node: Node) -> str:
        """
        What a member of ours does.
        """
        return str(node.status()["controller"]["state"])

    def until_state(self, node: Node, *states: str) -> None:
        """
        Wait until it does that.
        """
        node.until(
            lambda status: status["controller"]["state"] in states, " or ".join(states), BOOT
        )

    def leader(self, nodes: list[Node]) -> Node | None:
        """
        Which one leads.
        """
        for node in nodes:
            with contextlib.suppress(OSError):
                if self.state(node) == "leading":
                    return node
        return None

    def led(self, nodes: list[Node]) -> Node:
        """
        Who surely leads.
        """
        found = self.leader(nodes)
        assert found is not None, "one leads"
        return found

    def until_led(self, nodes: list[Node]) -> None:
        """
        Wait until one leads.
        """

        def led() -> bool:
            return self.leader(nodes) is not None

        until(led, "one leads", BOOT, tell=lambda: "\n".join(node.tail() for node in nodes))

    def until_in_sync(self, master: Node, count: int) -> None:
        """
        Wait until a master of ours has so many in the SyncStateSet.
        """
        master.until(
            lambda status: (
                len((status["controller"]["set"] or {}).get("syncStateSet", ())) == count
            ),
            f"{count} in the SyncStateSet",
            BOOT,
        )

    def until_counted(self, node: Node, count: int) -> None:
        """
        Wait until a follower of ours knows of so many in the SyncStateSet.
        """
        node.until(
            lambda status: (
                len(((status["upstream"] or {}).get("controller") or {}).get("syncStateSet", ()))
                == count
            ),
            f"{count} in the SyncStateSet",
            BOOT,
        )

    def until_same(self, one: Node, other: Node) -> None:
        """
        Wait until two of ours have the same log, and readers see all of it.
        """

        def same() -> bool:
            first, second = one.status(), other.status()
            ends = {
                status[name]
                for status in (first, second)
                for name in ("maxOffset", "confirmedOffset", "dispatchedOffset")
            }
            return len(ends) == 1

        until(same, "the same log", BOOT, tell=other.tail, pause=0.1)

    def killed_under_load(self, master: Member, gone: Callable[[], bool]) -> list[Sent]:
        """
        Kill a master while it takes writes.

        @param gone: Whether another one leads.
        @return: What was acknowledged.
        """
        load = self.tool.put(1_000_000, self.topic)
        self.until_some(load.sent, 200)
        master.kill9()
        until(gone, "another master", BOOT, tell=self.tool.tail)
        self.tool.enough()
        load.wait()
        return load.acked


class OurMembersTests(MemberTestCase):
    """
    Two members, both of ours.
    """

    roles = "two members of ours"

    def test_kills(self) -> None:
        """
        The master is killed under load, in turn; nothing acknowledged is missing.
        """
        controller = self.controller()
        nodes = [self.ours(f"ours-{number}", controller) for number in (1, 2)]
        master, other = nodes
        with self.scenario("two join: one leads, one follows"):
            master.start()
            self.until_state(master, "leading")
            other.start()
            self.until_state(other, "following")
            self.until_in_sync(master, 2)
            self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
        acked: list[Sent] = []
        for number in range(ROUNDS):
            with self.scenario(f"the master is killed (-9) under load: round {number + 1}"):
                survivor = other
                acked += self.killed_under_load(
                    master, lambda survivor=survivor: self.state(survivor) == "leading"
                )
                master.start()
                self.until_state(master, "following")
                self.until_in_sync(other, 2)
                master, other = other, master
                self.assertEqual({"SEND_OK": 20}, self.tool.put(20, self.topic).wait())
        with self.scenario("byte-equal, every SEND_OK held, derived files as a rebuild"):
            self.until_same(master, other)
            other.term()
            master.term()
            self.assert_same_log(master, other)
            for node in nodes:
                self.assert_quiet(node)
                self.assert_derived(node, exact=True)
                self.assert_holds(node, acked)


class ThreeMembersTests(MemberTestCase):
    """
    Three members of ours: writes go on while one is away.
    """

    roles = "three members of ours"

    def test_kills(self) -> None:
        """
        The master is killed under load; the load is acknowledged again before it is back.
        """
        controller = self.controller()
        nodes = [self.ours(f"ours-{number}", controller) for number in (1, 2, 3)]
        for node in nodes:
            node.start()
        with self.scenario("three join"):
            until(lambda: self.leader(nodes) is not None, "one leads", BOOT)
            self.until_in_sync(self.led(nodes), 3)
        acked: list[Sent] = []
        for number in range(ROUNDS):
            with self.scenario(f"the master is killed (-9) under load: round {number + 1}"):
                killed = self.led(nodes)
                rest = [node for node in nodes if node is not killed]
                load = self.tool.put(1_000_000, self.topic)
                self.until_some(load.sent, 200)
                killed.kill9()
                until(lambda rest=rest: self.leader(rest) is not None, "another leads", BOOT)
                self.until_in_sync(self.led(rest), 2)
                before = len(load.acked)
                until(
                    lambda load=load, before=before: len(load.acked) > before + 100,
                    "acknowledged again",
                    BOOT,
                    tell=self.tool.tail,
                )
                self.tool.enough()
                load.wait()
                acked += load.acked
                killed.start()
                self.until_in_sync(self.led(rest), 3)
        with self.scenario("byte-equal, every SEND_OK held, derived files as a rebuild"):
            first, *others = nodes
            for other in others:
                self.until_same(first, other)
            for node in sorted(nodes, key=lambda node: self.state(node) == "leading"):
                node.term()
            for node in nodes:
                self.assert_same_log(first, node)
                self.assert_quiet(node)
                self.assert_derived(node, exact=True)
                self.assert_holds(node, acked)
