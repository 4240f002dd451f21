"""Stock members behind a master of ours that stock controllers have elected."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.writer import Driver
from lab.stock.brokers import Broker
from lab.stock.controllers import StockController, controllers
from rmqha.store.tables import epoch_file
from rmqha.wire.store_layout import EPOCH_FILE_CHECKPOINT
from tests.interop.cases import BRISK, InteropTestCase

BOTH_OURS = "our elected master, our learner, stock controller"

STALE = 90.0
"""Seconds that a stock slave may take to find its master's HA port and be in the set."""


class ElectedDriver(Driver):
    """A master of ours that joins a set."""

    controllers = ""

    def launch(self) -> None:
        module = "tests.interop.elected_child"
        self.open([sys.executable, "-m", module, self.controllers, *self.write_conf()])

    def set(self) -> dict[str, Any]:
        found: dict[str, Any] = self.do("set")
        return found


class JavaMemberTests(InteropTestCase):
    """Our master, a stock slave and a stock controller."""

    version = "5.3.3"
    roles = "our elected master, Java slave, stock controller"
    long = True

    def labels(self, root: Path) -> dict[int, int]:
        """A store's labels, and where they start."""
        found = epoch_file.read(root / EPOCH_FILE_CHECKPOINT).labels or ()
        return {each.label: each.start for each in found}

    def in_sync(self, master: ElectedDriver, ids: list[int], timeout: float = STALE) -> None:
        until(
            lambda: master.set()["syncStateSet"] == ids,
            f"the SyncStateSet is {ids}",
            timeout,
            tell=lambda: f"{master.set()}\n{master.tail()}",
            pause=0.2,
        )

    def statuses(self, master: ElectedDriver, count: int, **how: Any) -> set[str]:
        """How some writes of ours ended."""
        return {write.status for write in master.put(count, **{"concurrency": 4, **how}).wait()}

    def led(self) -> tuple[StockController, ElectedDriver]:
        (controller,) = controllers(self.folder, 1)
        self._processes.append(controller)
        controller.launch()
        given = {
            **BRISK,
            "brokerRole": "SYNC_MASTER",
            "brokerName": "broker-a",
            "brokerClusterName": "interop",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "namesrvAddr": self.tool.names,
        }
        master = ElectedDriver(self.folder, "master", "elected", **given)
        master.controllers = controller.address
        self._processes.append(master)
        master.start()
        return controller, master

    def member(self, controller: StockController) -> Broker:
        return self.broker(
            "java-member",
            enableControllerMode="true",
            controllerAddr=controller.address,
            allAckInSyncStateSet="true",
        )

    def test_slave(self) -> None:
        """An empty stock slave joins, over labels and broken connections, is killed, comes back."""
        controller, master = self.led()
        with self.scenario("alone in the set: SLAVE_NOT_AVAILABLE at once"):
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master, 500, size=1200))
        stock = self.member(controller)
        learner = Node(
            self.folder,
            "slave",
            "learner",
            **BRISK,
            haListenPort=0,
            brokerId=100,
            brokerName="broker-a",
            brokerClusterName="interop",
            enableControllerMode="true",
            asyncLearner="true",
            controllerAddr=controller.address,
        )
        self._processes.append(learner)
        with self.scenario("our learner follows, and counts for nothing", BOTH_OURS):
            learner.start()
            learner.until_synced(master.status()["maxOffset"])
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master, 20))
            self.assertEqual([1], master.set()["syncStateSet"])
        with self.scenario("an empty stock slave gets every byte, counts and enters the set"):
            stock.start()
            self.in_sync(master, [1, 2])
            self.assertEqual({"PUT_OK"}, self.statuses(master, 1500, size=3000, concurrency=16))
        with self.scenario("a new epoch, a broken connection, no write between: the label comes"):
            stock.kill9()
            self.in_sync(master, [1])
            before = master.set()["masterEpoch"]
            self.assertGreater(master.do("lapse")["masterEpoch"], before)
            stock.start()
            for _ in range(2):
                self.in_sync(master, [1, 2])
                master.do("cut")
                self.in_sync(master, [1])
            self.in_sync(master, [1, 2])
            self.assertEqual({"PUT_OK"}, self.statuses(master, 300))
            for _ in range(2):
                master.do("cut")
                self.in_sync(master, [1])
                self.in_sync(master, [1, 2])
                self.assertEqual({"PUT_OK"}, self.statuses(master, 300))
            self.assertEqual(self.labels(master.root), self.labels(stock.root))
        with self.scenario("the stock slave is killed (-9) under load and comes back"):
            before = len(master.history.acked)
            burst = master.put(1_000_000, size=900, concurrency=8, rate=2000)
            until(lambda: len(master.history.acked) > before + 300, "load", 30, tell=master.tail)
            stock.kill9()
            self.in_sync(master, [1])
            master.enough()
            burst.wait()
            stock.start()
            self.in_sync(master, [1, 2])
            self.assertEqual({"PUT_OK"}, self.statuses(master, 300))
        with self.scenario("our learner has it all, and readers of it too", BOTH_OURS):
            end = master.status()["maxOffset"]
            learner.until_synced(end)
            learner.until(lambda status: status["dispatchedOffset"] == end, "the confirm offset")
            self.assertEqual([1, 2], master.set()["syncStateSet"])
            learner.term()
            self.assert_quiet(learner)
        with self.scenario("in the end byte-equal, labels too"):
            end = master.status()["maxOffset"]
            stock.until_max(end)
            self.assertEqual(self.labels(master.root), self.labels(stock.root))
            stock.stop()
            self.assertEqual(0, master.stop(), master.tail())
            self.assert_same_log(master, stock)
            self.assert_same_log(master, learner)
            self.assert_derived(stock, exact=False, index=False)
            self.assert_same_units(master, stock)

    def test_doubted(self) -> None:
        """A stock slave that has lost its labels cuts nothing, whatever it holds: it is fed, and
        does not count before it has begun anew.
        """
        controller, master = self.led()
        stock = self.member(controller).start()
        self.in_sync(master, [1, 2])
        self.assertEqual({"PUT_OK"}, self.statuses(master, 300))
        with self.scenario("a stock slave that has lost its epoch file is fed, and does not count"):
            stock.stop()
            self.in_sync(master, [1])
            for path in stock.root.glob(f"{EPOCH_FILE_CHECKPOINT}*"):
                path.unlink()
            stock.start()
            until(
                lambda: any(each["doubt"] for each in master.set()["members"]),
                "it is doubted",
                STALE,
                tell=master.tail,
                pause=0.2,
            )
            until(
                lambda: "no epoch labels" in master.set()["members"][0]["doubt"],
                "it has told its labels",
                tell=master.tail,
            )
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master, 100))
            stock.until_max(master.status()["maxOffset"])
            master.do("cut")
            until(lambda: master.set()["members"], "it is back", STALE, tell=master.tail)
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master, 100))
            stock.until_max(master.status()["maxOffset"])
            self.assertEqual([1], master.set()["syncStateSet"])
        with self.scenario("emptied, with its identity, it gets every byte and counts"):
            stock.stop()
            self.empty(stock)
            stock.start()
            self.in_sync(master, [1, 2])
            self.assertEqual({"PUT_OK"}, self.statuses(master, 100))
            stock.stop()
            self.assertEqual(0, master.stop(), master.tail())
            self.assert_same_log(master, stock)
