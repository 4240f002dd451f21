"""Producers write to both masters while each slave copies; and slaves come, go, and begin anew."""

from __future__ import annotations

import shutil
import time

from tests.faults.walkthrough.cluster import AT_ONCE, GROUP, TOPIC, WalkthroughCase, until_all

SLAVE_NOT_AVAILABLE = 11
"""The answer's code: stored, and nobody to wait for."""


class CopyingTests(WalkthroughCase):
    def test_two_masters(self) -> None:
        """A client's messages go to both masters, each is on the right slave as it is answered,
        and a consumer gets all of them, once.
        """
        client = self.client()
        consumer = client.consume(TOPIC, GROUP)
        sent = self.produce(client, 200)
        held = {name: self.held(slave) for name, slave in self.slaves.items()}
        self.assertEqual(set(sent), set(held["broker-a"]) | set(held["broker-b"]))
        for name, master in self.masters.items():
            self.assertGreater(len(held[name]), 50, name)
            self.assertEqual(held[name], self.held(master))
        until_all(sent, lambda: consumer.bodies, "all consumed")
        self.assertEqual(sorted(sent), sorted(consumer.bodies))
        self.end_all_well()


class SlaveTests(WalkthroughCase):
    """A slave dies; one master is SYNC, the other ASYNC."""

    more = {"broker-b": {"master": {"brokerRole": "ASYNC_MASTER"}}}

    def test_slave_killed(self) -> None:
        """Without its slave the SYNC master says so at once, each time; the ASYNC one never
        notices; with the slave back all is as before.
        """
        self.assertEqual({0: 20}, self.direct(self.masters["broker-a"], 20))
        client = self.client()
        self.produce(client, 20)
        for slave in self.slaves.values():
            slave.kill9()
        self.masters["broker-a"].until(lambda status: not status["replicas"], "nobody")
        for broker, code in (("broker-a", SLAVE_NOT_AVAILABLE), ("broker-b", 0)):
            begun = time.monotonic()
            self.assertEqual({code: 20}, self.direct(self.masters[broker], 20))
            self.assertLess(time.monotonic() - begun, AT_ONCE, broker)
        # This client tries again where all that was promised was not done.
        new = self.bodies(40)
        answers = client.send(TOPIC, new)
        sure = {body for body, one in zip(new, answers, strict=True) if one.status == "SEND_OK"}
        self.assertGreater(len(sure), 10, self.problems(answers))
        self.assertLessEqual(sure, set(self.held(self.masters["broker-b"])))
        for slave in self.slaves.values():
            slave.start()
        self.until_copied()
        self.until_replica("broker-a")
        self.assertEqual({0: 20}, self.direct(self.masters["broker-a"], 20))
        self.end_all_well()


class NewSlaveTests(WalkthroughCase):
    def test_from_nothing(self) -> None:
        """An empty slave that knows the name server alone gets everything from the first byte,
        under load, and counts for SYNC from then on.
        """
        client = self.client()
        sent = self.produce(client, 100)
        old = self.slaves["broker-a"]
        self.assertEqual(0, max(old.term(), 0))
        shutil.rmtree(old.root)
        new = self.slaves["broker-a"] = self.node("broker-a", "slave", "broker-a-new", brokerId=2)
        new.launch()
        # Until it is there the other pair takes what this one cannot promise.
        client.send(TOPIC, self.bodies(100))
        self.until_copied("broker-a")
        self.until_replica("broker-a")
        self.assertEqual({0: 20}, self.direct(self.masters["broker-a"], 20))
        found = set(self.held(new)) | set(self.held(self.slaves["broker-b"]))
        self.assertLessEqual(set(sent), found)
        self.end_all_well()

    def test_moved(self) -> None:
        """A slave that is moved with its log fetches only what it missed."""
        client = self.client()
        sent = self.produce(client, 100)
        self.until_copied("broker-a")
        old = self.slaves["broker-a"]
        had = old.status()["maxOffset"]
        old.term()
        moved = self.slaves["broker-a"] = self.node("broker-a", "slave", "broker-a-moved")
        shutil.copytree(old.root, moved.root)
        self.assertEqual({SLAVE_NOT_AVAILABLE: 20}, self.direct(self.masters["broker-a"], 20))
        moved.start()
        self.until_copied("broker-a")
        upstream = moved.status()["upstream"]
        self.assertFalse(upstream["bootstrapping"])
        self.assertGreater(upstream["probes"], 0)
        self.assertGreater(moved.status()["maxOffset"], had)
        self.assertLessEqual(
            set(sent), set(self.held(moved)) | set(self.held(self.slaves["broker-b"]))
        )
        self.end_all_well()
