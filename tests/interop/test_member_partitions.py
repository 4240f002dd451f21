"""
Members of a set that cannot reach each other, or not the controllers.
"""

from __future__ import annotations

from lab.harness.nodes import until
from lab.stock.brokers import BOOT, Sends
from tests.interop.linked_cases import LinkedTestCase


class PartitionTests(LinkedTestCase):
    """
    Two members of ours, with a network around each.
    """

    full_only = (
        "test_master_without_anybody",
        "test_master_without_slave",
        "test_empty_member",
        "test_late_member",
        "test_back_in_its_epoch",
    )

    def until_alone(self, load: Sends) -> None:
        """
        Wait until writes are answered that there is no slave.
        """
        before = len(load.sent)
        until(
            lambda: any(each.status == "SLAVE_NOT_AVAILABLE" for each in list(load.sent)[before:]),
            "told that there is no slave",
            BOOT,
            tell=self.tool.tail,
        )

    def replaced(self, what: str, *, members: bool) -> None:
        """
        A master that no controller reaches is replaced, and takes no write meanwhile.
        """
        master, other, links = self.linked()
        with self.scenario(f"the master is cut off from {what}: fenced, another leads; healed"):
            load = self.load()
            links.part(True, controllers=True, members=members)
            self.until_state(other, "leading")
            self.until_state(master, "fenced")
            self.until_alone(load)
            self.assertEqual(self.state(master), "fenced")
            links.part(False, controllers=True, members=members)
            self.until_state(master, "following")
            self.until_in_sync(other, 2)
            self.until_again(load)
            self.enough(load)
        self.assert_settled([master, other])

    def test_master_without_controllers(self) -> None:
        """
        The master is cut off from the controllers, and not from the other member.
        """
        self.replaced("the controllers", members=False)

    def test_master_without_anybody(self) -> None:
        """
        It is cut off from both.
        """
        self.replaced("the controllers and the slave", members=True)

    def test_master_without_slave(self) -> None:
        """
        It is cut off from the other member: the SyncStateSet shrinks, nobody is elected.
        """
        master, other, links = self.linked()
        with self.scenario("the master is cut off from the slave: it leads on, alone; healed"):
            epoch = master.status()["controller"]["masterEpoch"]
            load = self.load()
            links.part(True, members=True)
            self.until_in_sync(master, 1)
            self.until_alone(load)
            links.part(False, members=True)
            self.until_in_sync(master, 2)
            self.until_again(load)
            self.enough(load)
            self.assertEqual(master.status()["controller"]["masterEpoch"], epoch)
        self.assert_settled([master, other])

    def test_empty_member(self) -> None:
        """
        A member without a log joins a set that has several log files, under load; its connection is
        cut again and again.
        """
        master, other, links = self.linked()
        third = self.ours("ours-3", self.decider)
        with self.scenario("an empty member joins under load, its connection cut ten times"):
            big = self.tool.put(1000, self.topic, size=4000)
            self.assertEqual({"SEND_OK": 1000}, big.wait())
            self.acked += big.acked
            load = self.load()
            links.replication.set("down", rate=1 << 20)
            third.launch()
            for _ in range(10):
                passed = links.replication.stats()["connections"]
                until(
                    lambda passed=passed: links.replication.stats()["connections"] > passed,
                    "another connection",
                    BOOT,
                    tell=third.tail,
                )
                links.replication.cut()
            links.replication.set("down")
            self.until_in_sync(master, 3)
            self.until_again(load)
            self.enough(load)
        self.assert_settled([master, other, third])

    def test_late_member(self) -> None:
        """
        A slave gets too little, or nothing that it says arrives: it leaves the SyncStateSet, and no
        write is answered by less than was promised; it comes back.
        """
        master, other, links = self.linked()
        for what, direction, fault in (
            ("gets 500 B/s", "down", {"rate": 500}),
            ("is not heard", "up", {"hold": True}),
        ):
            with self.scenario(f"a slave {what} under load: out of the SyncStateSet, then back"):
                load = self.load()
                links.replication.set(direction, **fault)
                self.until_in_sync(master, 1)
                self.assertEqual(self.state(master), "leading")
                links.replication.set(direction)
                self.until_in_sync(master, 2)
                self.until_again(load)
                self.enough(load)
        self.assert_settled([master, other])

    def test_back_in_its_epoch(self) -> None:
        """
        A master is killed with writes that reached nobody, and is back before the controllers miss
        it: readers are not given these, as another one may be elected without them, and is.
        """
        master, other, links = self.linked()
        with self.scenario(
            "the master is killed with writes of its own, back in its epoch, killed"
        ):
            epoch = master.status()["controller"]["masterEpoch"]
            load = self.load()
            links.replication.set("down", hold=True)
            master.until(
                lambda status: status["maxOffset"] > status["controller"]["confirmOffset"] + 2000,
                "more than the other one has",
            )
            self.enough(load)
            master.freeze()
            links.controllers.half_open("server")
            master.kill9()
            master.start()
            self.until_state(master, "leading")
            self.read()
            said = master.status()
            self.assertEqual(said["controller"]["masterEpoch"], epoch)
            self.assertGreater(said["maxOffset"], said["controller"]["confirmOffset"])
            master.kill9()
            links.replication.cut()
            links.replication.set("down")
            self.until_state(other, "leading")
            master.start()
            self.until_in_sync(other, 2)
        self.assert_settled([master, other])
