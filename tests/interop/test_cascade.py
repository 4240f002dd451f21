"""A Java master, our slave behind it, and another slave behind ours."""

from __future__ import annotations

from lab.harness.nodes import Node, until
from lab.stock.brokers import Broker
from tests.interop.cases import InteropTestCase

#: What a 5.x master needs to wait for a slave at all.
SYNC: dict[str, object] = {"inSyncReplicas": 2, "totalReplicas": 2}

FILE = 1 << 20


class CascadeTests(InteropTestCase):
    def fill(self, broker: Broker, files: int) -> None:
        """Write until the log has so many files, waiting for nobody."""
        count = files * FILE // 4000 + 1
        sends = self.tool.put(count, self.topic, kind="big", size=4000, wait=False, tell=False)
        self.assertEqual({"SEND_OK": count}, sends.wait(), sends.sent[:1])
        for kind in ("batch", "delay", "transaction"):
            self.tool.put(20, self.topic, kind=kind, size=300, wait=False).wait()
        self.assertGreater(broker.max_offset(), files * FILE)

    def kill_middle(self, broker: Broker, middle: Node) -> None:
        """Kill the slave in the middle under load; it comes back."""
        load = self.tool.put(1_000_000, self.topic, wait=False)
        self.until_some(load.sent, 200)
        middle.kill9()
        self.until_some(load.sent, 200)
        middle.start()
        self.until_some(load.sent, 200)
        self.tool.enough()
        load.wait()
        self.until_equal(broker, middle)

    def end(self, broker: Broker, middle: Node) -> None:
        """Stop master and middle; their logs are byte-equal, and so is what is derived."""
        middle.term()
        broker.stop()
        self.assert_quiet(middle)
        self.assert_same_log(broker, middle)
        self.assert_derived(middle, exact=True)
        self.assert_same_units(broker, middle)

    def test_ours(self) -> None:
        """Java, ours, ours: all bytes, live, through deaths of each, and equal in the end."""
        roles = "Java master, our slave, our slave behind it"
        broker = self.broker(role="SYNC_MASTER", **SYNC).start()
        self.fill(broker, 3)
        middle = self.our_slave(broker.address, "middle")
        last = self.our_slave(middle.address, "last")
        with self.scenario("cascade: two empty slaves in a row get every byte from byte 0", roles):
            last.start()
            middle.start()
            self.until_equal(broker, middle)
            self.until_equal(broker, last)
            self.assertEqual(0, last.status()["minOffset"])
        with self.scenario("cascade: SEND_OK with our slave alone; the one behind follows", roles):
            self.assertEqual({"SEND_OK": 200}, self.tool.put(200, self.topic).wait())
            self.until_equal(broker, last)
            last.kill9()
            self.assertEqual({"SEND_OK": 200}, self.tool.put(200, self.topic).wait())
            last.start()
            self.until_equal(broker, last)
        with self.scenario("cascade: the slave in the middle is killed (-9) under load", roles):
            self.kill_middle(broker, middle)
            self.until_equal(broker, last)
        with self.scenario("cascade: the Java master is killed (-9) and comes back", roles):
            broker.kill9()
            middle.until_upstream("connecting")
            (row,) = middle.status()["replicas"]
            self.assertEqual(0, row["lagBytes"])
            broker.start()
            self.tool.put(20, self.topic, wait=False).wait()
            self.until_equal(broker, middle)
            self.until_equal(broker, last)
        with self.scenario("cascade: byte-equal in the end, and so are queues", roles):
            last.term()
            self.end(broker, middle)
            self.assert_quiet(last)
            self.assert_same_log(middle, last)
            self.assert_derived(last, exact=True)

    def test_java(self) -> None:
        """Java, ours, Java: the same, as far as a stock slave can."""
        roles = "Java master, our slave, Java slave behind it"
        broker = self.broker().start()
        self.fill(broker, 2)
        middle = self.our_slave(broker.address, "middle").start()
        self.until_equal(broker, middle)
        # Under the master's own name a 5.x slave would learn the master's HA address.
        stock = self.broker("last", role="SLAVE", brokerName="broker-b")
        if self.version < "5":
            stock.keys["haMasterAddress"] = f"127.0.0.1:{middle.ha_port}"
        else:
            self.tool.register(middle.address, "broker-b")
        with self.scenario("cascade: an empty stock slave gets every byte from byte 0", roles):
            stock.start()
            stock.until_max(self.until_equal(broker, middle))
            self.assertEqual(0, stock.runtime()["commitLogMinOffset"])
        with self.scenario("cascade: the stock slave follows live, and is reported", roles):
            self.tool.put(500, self.topic, size=3000).wait()
            end = self.until_equal(broker, middle)
            stock.until_max(end)
            until(
                lambda: [row["acked"] for row in middle.status()["replicas"]] == [end],
                "its report",
                tell=middle.tail,
            )
        with self.scenario("cascade: the slave in the middle is killed (-9) under load", roles):
            self.kill_middle(broker, middle)
            stock.until_max(self.until_equal(broker, middle))
        with self.scenario("cascade: byte-equal in the end, and so are queues", roles):
            stock.stop()
            self.end(broker, middle)
            self.assert_same_log(middle, stock)
            self.assert_same_units(middle, stock)


class Cascade4Tests(CascadeTests):
    version = "4.9.7"


class Cascade5Tests(CascadeTests):
    version = "5.3.3"
