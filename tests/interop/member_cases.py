"""
What tests of sets under load share: the members, the load, and what must hold after all of it.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, SMALL, Row, Sends, Sent
from lab.stock.controllers import StockController
from rmqha.controller.coordinator import SetState
from rmqha.controller.group import ControllerGroup
from rmqha.errors import ControllerRefused, NoController
from tests.interop.test_controller import BlockingClient
from tests.interop.test_member import MemberTestCase

AGAIN = 100
"""Acknowledged writes that show that a set works again."""


class ScenarioTestCase(MemberTestCase):
    """
    A set under load.
    """

    def setUp(self) -> None:
        """
        Nothing is acknowledged or read yet.
        """
        super().setUp()
        self.acked: list[Sent] = []
        self.seen: set[Row] = set()

    def set_of(self, count: int, **keys: Any) -> list[Node]:
        """
        Start a controller and members of ours, and wait until all are in the SyncStateSet.
        """
        self.decider = self.controller()
        nodes = [self.ours(f"ours-{number + 1}", self.decider, **keys) for number in range(count)]
        with self.scenario(f"{count} join"):
            for node in nodes:
                node.start()
            self.until_led(nodes)
            self.until_in_sync(self.led(nodes), count)
            self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
        return nodes

    def group(self, controller: StockController) -> ControllerGroup:
        """
        Asks a controller about our set.
        """
        client = BlockingClient()
        self.addCleanup(client.close)
        return ControllerGroup(
            addresses=(controller.address,),
            client=client,
            cluster=str(SMALL["brokerClusterName"]),
            name=str(SMALL["brokerName"]),
            now_ms=lambda: int(time.time() * 1000),
        )

    def elect(self, group: ControllerGroup, number: int) -> SetState:
        """
        Make a member master, as soon as the controller lets it.
        """
        found: list[Any] = []

        def elected() -> bool:
            found.clear()
            with contextlib.suppress(ControllerRefused, NoController):
                group.elect(number, designated=True).addBoth(found.append)
                if hasattr(found[0], "raiseException"):
                    found[0].raiseException()
                return found[0].master is not None and found[0].master.id == number
            return False

        until(elected, f"{number} is elected", BOOT, tell=lambda: str(found), pause=0.2)
        state: SetState = found[0]
        return state

    def id_of(self, node: Node) -> int:
        """
        A member's controller id.
        """
        return int(node.status()["controller"]["id"])

    # --- load --------------------------------------------------------------------------

    def load(self, threads: int = 4) -> Sends:
        """
        Write until told that it is enough.
        """
        load = self.tool.put(1_000_000, self.topic, threads=threads)
        self.until_some(load.sent, 200)
        self.seen.update(self.tool.pull(self.topic))
        return load

    def until_again(self, load: Sends) -> None:
        """
        Wait until writes are acknowledged.
        """
        wanted = len(load.acked) + AGAIN
        until(lambda: len(load.acked) > wanted, "acknowledged again", BOOT, tell=self.tool.tail)

    def enough(self, load: Sends) -> None:
        """
        End it.
        """
        self.tool.enough()
        load.wait()
        self.acked += load.acked

    # --- invariants ----------------------------------------------------------------------

    def assert_settled(self, nodes: list[Node]) -> None:
        """
        All members come to the same log; what was acknowledged is there, at its place, in each, and
        nothing that was read is missing.
        """
        with self.scenario("byte-equal, every SEND_OK held, nothing read is missing"):
            self.until_led(nodes)
            master = self.led(nodes)
            self.until_in_sync(master, len(nodes))
            last = self.tool.put(20, self.topic)
            self.assertEqual({"SEND_OK": 20}, last.wait())
            self.acked += last.acked
            self.seen.update(self.tool.pull(self.topic))
            for node in nodes:
                if node is not master:
                    self.until_same(master, node)
            for node in sorted(nodes, key=lambda node: node is master):
                node.term()
            for node in nodes:
                self.assert_same_log(master, node)
                self.assert_holds(node, self.acked)
            self.assertEqual(set(), self.seen - set(self.log_rows(master)))
            for node in nodes:
                self.assert_quiet(node)
                self.assert_derived(node, exact=True)
