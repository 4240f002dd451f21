"""Members of a set that cannot reach each other, or not the controllers."""

from __future__ import annotations

from tests.interop.linked_cases import LinkedTestCase


class PartitionTests(LinkedTestCase):
    """Two members of ours, with a network around each."""

    full_only = ("test_back_in_its_epoch",)

    def test_master_without_controllers(self) -> None:
        """The master loses the controllers alone: it is replaced, and takes no write meanwhile."""
        master, other, links = self.linked()
        with self.scenario("the master is cut off from the controllers: fenced, another leads"):
            load = self.load()
            links.part(True, controllers=True)
            self.until_state(other, "leading")
            self.until_state(master, "fenced")
            self.until_alone(load)
            self.assertEqual(self.state(master), "fenced")
            links.part(False, controllers=True)
            self.until_state(master, "following")
            self.until_in_sync(other, 2)
            self.until_again(load)
            self.enough(load)
        self.assert_settled([master, other])

    def test_back_in_its_epoch(self) -> None:
        """A master is killed with writes that reached nobody, and is back before the controllers
        miss it: readers are not given these, as another one may be elected without them, and is.
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
