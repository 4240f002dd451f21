"""What tests share of sets whose master stock controllers elect."""

from __future__ import annotations

import contextlib
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker
from lab.stock.controllers import OurNode, StockController, controllers, java_member, our_member
from tests.interop import cases
from tests.interop.cases import InteropTestCase

Member = Node | Broker


class MemberTestCase(InteropTestCase):
    version = "5.3.3"
    roles = "members of a set"

    def controller(self) -> StockController:
        (one,) = controllers(self.folder, 1)
        self._processes.append(one)
        one.launch()
        until(lambda: "boot success" in one.log(), "a controller", BOOT, tell=one.tail)
        return one

    def java(self, name: str, controller: StockController) -> Broker:
        member = java_member(self.folder, self.tool, name, [controller])
        self._processes.append(member)
        return member

    def ours(
        self, name: str, controller: StockController, kind: type[OurNode] = Node, **keys: Any
    ) -> OurNode:
        given = {**cases.BRISK, **keys}
        node = our_member(self.folder, self.tool, name, [controller], kind, **given)
        self._processes.append(node)
        return node

    def state(self, node: Node) -> str:
        return str(node.status()["controller"]["state"])

    def until_state(self, node: Node, *states: str) -> None:
        node.until(
            lambda status: status["controller"]["state"] in states, " or ".join(states), BOOT
        )

    def leader(self, nodes: list[Node]) -> Node | None:
        for node in nodes:
            with contextlib.suppress(OSError):
                if self.state(node) == "leading":
                    return node
        return None

    def led(self, nodes: list[Node]) -> Node:
        found = self.leader(nodes)
        assert found is not None, "one leads"
        return found

    def until_led(self, nodes: list[Node]) -> None:
        def led() -> bool:
            return self.leader(nodes) is not None

        until(led, "one leads", BOOT, tell=lambda: "\n".join(node.tail() for node in nodes))

    def until_in_sync(self, master: Node, count: int) -> None:
        """Wait until a master of ours has so many in the SyncStateSet."""
        master.until(
            lambda status: (
                len((status["controller"]["set"] or {}).get("syncStateSet", ())) == count
            ),
            f"{count} in the SyncStateSet",
            BOOT,
        )

    def until_same(self, one: Node, other: Node) -> None:
        """Wait until two of ours have the same log, and readers see all of it."""

        def same() -> bool:
            first, second = one.status(), other.status()
            ends = {
                status[name]
                for status in (first, second)
                for name in ("maxOffset", "confirmedOffset", "dispatchedOffset")
            }
            return len(ends) == 1

        until(same, "the same log", BOOT, tell=other.tail, pause=0.1)
