"""Our learner behind a set of Java members whose master a stock controller elects."""

from __future__ import annotations

from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, SMALL, Broker, Sent
from lab.stock.controllers import StockController, controllers
from tests.interop import cases
from tests.interop.cases import InteropTestCase

SWITCHES = 10 if cases.WANTED == "full" else 3

LEARNER_ID = 100
"""The C{brokerId} under which it shows in routes: no member's."""


class LearnerTests(InteropTestCase):
    """A controller and two members of 5.3.3, and a learner of ours."""

    version = "5.3.3"
    roles = "Java members, our learner"

    def controller(self) -> StockController:
        (one,) = controllers(self.folder, 1)
        self._processes.append(one)
        one.launch()
        return one

    def member(self, name: str, controller: StockController) -> Broker:
        return self.broker(
            name,
            role="SYNC_MASTER",
            enableControllerMode="true",
            controllerAddr=controller.address,
            allAckInSyncStateSet="true",
            inSyncReplicas=2,
            minInSyncReplicas=1,
            haMaxTimeSlaveNotCatchup=5000,
        )

    def learner(self, controller: StockController, name: str = "learner", **keys: Any) -> Node:
        learner = Node(
            self.folder,
            "slave",
            name,
            **cases.BRISK,
            haListenPort=0,
            brokerId=LEARNER_ID,
            brokerName=SMALL["brokerName"],
            brokerClusterName=SMALL["brokerClusterName"],
            enableControllerMode="true",
            asyncLearner="true",
            controllerAddr=controller.address,
            **keys,
        )
        self._processes.append(learner)
        return learner

    def master(self, learner: Node) -> tuple[int, str]:
        """Who is master, and in which epoch, as a learner knows it."""
        said = (learner.status()["upstream"] or {}).get("controller") or {}
        return said.get("masterEpoch") or 0, said.get("masterAddress") or ""

    def until_set(self, learner: Node, count: int) -> None:
        """Wait until so many are in the SyncStateSet."""
        learner.until(
            lambda status: len(status["upstream"]["controller"]["syncStateSet"]) == count,
            f"{count} in the SyncStateSet",
            BOOT,
        )

    def test_switches(self) -> None:
        """Masters are killed under load, in turn; the learner has the log of whoever is master."""
        controller = self.controller()
        members = [self.member(f"java-{number}", controller) for number in (1, 2)]
        members[0].start()
        learner = self.learner(controller).start()
        with self.scenario("a learner joins an empty set, and gets what is written"):
            learner.until_upstream("in-sync")
            self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
            self.until_equal(members[0], learner)
        members[1].start()
        self.until_set(learner, 2)
        acked: list[Sent] = []
        for number in range(SWITCHES):
            epoch, address = self.master(learner)
            (killed,) = (each for each in members if each.client_address == address)
            (other,) = (each for each in members if each is not killed)
            with self.scenario(f"the master is killed (-9) under load: switch {number + 1}"):
                load = self.tool.put(1_000_000, self.topic)
                self.until_some(load.sent, 200)
                killed.kill9()
                self.tool.enough()
                load.wait()
                acked += load.acked
                until(
                    lambda epoch=epoch, address=address: self._moved(learner, epoch, address),
                    "the learner follows another master",
                    BOOT,
                    tell=learner.tail,
                )
                self.until_equal(other, learner)
                killed.start()
                self.until_set(learner, 2)
                self.assertEqual({"SEND_OK": 20}, self.tool.put(20, self.topic).wait())
        with self.scenario("byte-equal, every SEND_OK held, derived files as a rebuild"):
            epoch, address = self.master(learner)
            (last,) = (each for each in members if each.client_address == address)
            # A stock master tells the end of it with its next heartbeat.
            learner.until(
                lambda status: status["dispatchedOffset"] == status["maxOffset"],
                "the confirm offset of the last message",
            )
            self.assert_followed(last, learner, index=False)
            self.assert_holds(learner, acked)

    def _moved(self, learner: Node, epoch: int, address: str) -> bool:
        now, there = self.master(learner)
        return now > epoch and there != address
