"""Faults between our nodes and stock ones: F07, F19, F20, F22, F35, F46, and a bit that turned
over on the way.  What tests/faults does with nodes of ours only is done here with Java.
"""

from __future__ import annotations

import time

from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.harness.writer import Driver
from lab.stock.brokers import Broker, Sends
from tests.interop.cases import InteropTestCase, tool

MIB = 1 << 20

#: The largest body a broker takes by default.
LARGEST = 4 * MIB

#: Silence that ends a connection here, in seconds, and what may be added to it.
HOUSEKEEPING = 3.0
SLACK = 2.5

#: Both sides notice a dead link soon, and files have room for the largest messages.
KEYS: dict[str, object] = {
    "haHousekeepingInterval": 3000,
    "haSendHeartbeatInterval": 1000,
    "mappedFileSizeCommitLog": 16 * MIB,
    "maxMessageSize": LARGEST + MIB,
    "slaveTimeout": 2000,
}

#: What a 5.x master needs to wait for a slave at all.
SYNC: dict[str, object] = {"inSyncReplicas": 2, "totalReplicas": 2}

#: How a SYNC master says that nobody else holds the message.
NOT_HELD = {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}

#: The longest property that fits beside those a broker adds: the string may have 32,767.
MANY = 32_000


class LinkTests(InteropTestCase):
    """A SYNC Java master and our slave, with a bad network between."""

    roles = "Java master, our slave"

    def test_faults(self) -> None:
        """Fault after fault; nothing false is acknowledged, and in the end all is equal."""
        broker = self.broker(role="SYNC_MASTER", **SYNC, **KEYS).start()
        proxy = self.proxy(broker.address)
        slave = self.our_slave(proxy.address, **KEYS).start()
        self.tool.put(1, self.topic, wait=False).wait()
        self.until_equal(broker, slave)
        with self.scenario("F10: a bit turns over on the way: ``diverged`` there, fetched again"):
            self.flip(broker, proxy, slave)
        with self.scenario("F35: bodies of 4 MiB, batches, compressed, 32 KiB of properties"):
            self.large(broker, proxy, slave)
        with self.scenario("F20: reports are lost: no SEND_OK; data is lost: our slave reconnects"):
            self.one_way(broker, proxy, slave)
        with self.scenario("F19: parted for longer than either side's patience, and healed"):
            self.partition(broker, proxy, slave)
        with self.scenario("F22: the link breaks each second under load: no copy begins anew"):
            self.flapping(broker, proxy, slave)
        with self.scenario("F07: the Java master stands still (SIGSTOP): left, and found again"):
            self.standstill(broker, slave)
        with self.scenario("after all these faults: byte-equal, derived files too"):
            self.assert_followed(broker, slave)
            self.assertNotIn("ahead", slave.log())

    def until_promised(self, broker: Broker, slave: Node) -> None:
        """Wait until the slave holds all, and the master counts it."""
        self.until_equal(broker, slave)
        until(
            lambda: set(self.tool.put(4, self.topic).wait()) == {"SEND_OK"},
            "SEND_OK again",
            30,
            tell=lambda: f"{slave.tail()}\n{broker.tail()}",
        )

    def assert_not_held(self, sends: Sends) -> None:
        """None of these got the whole promise."""
        sends.wait()
        self.assertTrue(sends.sent)
        self.assertLessEqual({sent.status for sent in sends.sent}, NOT_HELD, sends.sent)

    def until_reconnected(self, slave: Node, before: int) -> None:
        """Wait until our slave has given its connection up, for silence."""
        slave.until(
            lambda status: status["upstream"]["reconnects"] > before,
            "the silent master left",
            HOUSEKEEPING + SLACK,
        )

    def flip(self, broker: Broker, proxy: Proxy, slave: Node) -> None:
        """One bit in a body of 400 kB, on this connection; no other until the state was seen."""
        before = slave.status()
        place = proxy.stats()["down"] + self.random.randrange(198_000, 202_000)
        proxy.set("down", flip=[place, self.random.randrange(8)])
        proxy.refuse(True)
        sends = self.tool.put(1, self.topic, kind="big", size=400_000, threads=1)
        found = slave.until_upstream("diverged")
        self.assert_not_held(sends)
        ((record,),) = (sent.places for sent in sends.sent)
        self.assertIn("bad record", found["upstream"]["reason"])
        self.assertIn(str(record), found["upstream"]["reason"])
        for offset in ("confirmedOffset", "dispatchedOffset"):
            self.assertLessEqual(before[offset], found[offset])
            self.assertLessEqual(found[offset], record)
        self.assertEqual(503, slave.health())
        self.assert_not_held(self.tool.put(2, self.topic, threads=2))
        proxy.refuse(False)
        self.until_promised(broker, slave)
        self.assertEqual(200, slave.health())

    def large(self, broker: Broker, proxy: Proxy, slave: Node) -> None:
        """The largest of every kind, cut to pieces on a link that is not the fastest."""
        proxy.set("both", delay=0.005, split=[1, 60_000])
        for kind, size, properties in (
            ("big", LARGEST, 0),
            ("big", LARGEST - 100_000, MANY),
            ("batch", LARGEST // 5 - 1000, 0),
            ("single", LARGEST, MANY),  # compressed: its body repeats
            ("single", 0, MANY),
        ):
            sends = self.tool.put(
                2, self.topic, kind=kind, size=max(size, 1), properties=properties, threads=1
            )
            self.assertEqual({"SEND_OK": 2}, sends.wait(), sends.sent)
        proxy.set("both")
        self.until_equal(broker, slave)

    def one_way(self, broker: Broker, proxy: Proxy, slave: Node) -> None:
        """The network passes one direction only."""
        proxy.set("up", swallow=True)
        self.assert_not_held(self.tool.put(3, self.topic, threads=3))
        proxy.set("up")
        proxy.cut()
        self.until_promised(broker, slave)
        before = slave.status()["upstream"]["reconnects"]
        proxy.set("down", swallow=True)
        self.assert_not_held(self.tool.put(3, self.topic, threads=3))
        self.until_reconnected(slave, before)
        proxy.set("down")
        self.until_promised(broker, slave)

    def partition(self, broker: Broker, proxy: Proxy, slave: Node) -> None:
        """Nothing passes until the slave has left; then everything does again."""
        before = slave.status()["upstream"]["reconnects"]
        proxy.part(True)
        self.assert_not_held(self.tool.put(3, self.topic, threads=3))
        self.until_reconnected(slave, before)
        self.assert_not_held(self.tool.put(3, self.topic, threads=3))
        proxy.part(False)
        self.until_promised(broker, slave)

    def flapping(self, broker: Broker, proxy: Proxy, slave: Node) -> None:
        """A break each second; there is progress between them."""
        said = len(slave.log())
        load = self.tool.put(1_000_000, self.topic, wait=False, threads=2, tell=False)
        held = slave.status()["maxOffset"]
        for _ in range(3):
            for _ in range(2):
                moment = time.monotonic() + 1.0
                until(lambda moment=moment: time.monotonic() > moment, "a second")
                proxy.cut()
            now = slave.status()["maxOffset"]
            self.assertGreater(now, held, "no progress in this window")
            held = now
        self.tool.enough()
        load.wait()
        self.until_promised(broker, slave)
        self.assertNotIn("-> bootstrapping", slave.log()[said:])

    def standstill(self, broker: Broker, slave: Node) -> None:
        """The master's process stops for a while."""
        said = len(slave.log())
        before = slave.status()["upstream"]["reconnects"]
        broker.freeze()
        self.until_reconnected(slave, before)
        self.assertNotEqual("in-sync", slave.status()["upstream"]["state"])
        broker.thaw()
        self.until_promised(broker, slave)
        self.assertNotIn("diverged", slave.log()[said:])


class SlaveLinkTests(InteropTestCase):
    """Our SYNC master and a Java slave, with a bad network between."""

    roles = "our master, Java slave"

    def test_faults(self) -> None:
        """One fault after the other, as with our own slave."""
        master = self.our_master(**KEYS).start()
        proxy = self.proxy(master.address)
        stock = self.broker("java-slave", role="SLAVE", **KEYS)
        if self.version < "5":
            stock.keys["haMasterAddress"] = f"127.0.0.1:{proxy.address[1]}"
        else:
            self.tool.register(proxy.address)
        self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master, 10))
        stock.start()
        self.until_fed(master)
        with self.scenario("F35: bodies of 4 MiB with 32 KiB of properties get PUT_OK"):
            proxy.set("both", delay=0.005, split=[1, 60_000])
            got = self.statuses(master, 4, size=LARGEST, properties=MANY)
            self.assertEqual({"PUT_OK"}, got)
            proxy.set("both")
        with self.scenario("F20: its reports are lost: no PUT_OK; dropped; it comes back"):
            proxy.set("up", swallow=True)
            self.assertEqual({"FLUSH_SLAVE_TIMEOUT"}, self.statuses(master, 3, concurrency=3))
            master.until(
                lambda status: status["closedConnections"].get("silent"),
                "the slave dropped",
                HOUSEKEEPING + SLACK,
            )
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master, 3))
            proxy.set("up")
            proxy.cut()
            self.until_fed(master)
        with self.scenario("F19: parted for longer than either side's patience, and healed"):
            proxy.part(True)
            until(
                lambda: self.statuses(master, 1) == {"SLAVE_NOT_AVAILABLE"},
                "the slave dropped",
                HOUSEKEEPING + SLACK,
            )
            proxy.part(False)
            self.until_fed(master)
        with self.scenario("after these faults: byte-equal, and Java serves all of it"):
            self.assertEqual({"PUT_OK"}, self.statuses(master, 100, concurrency=8))
            stock.until_max(master.status()["maxOffset"])
            stock.stop()
            self.assertEqual(0, master.stop(), master.tail())
            self.assert_quiet(master)
            self.assert_same_log(master, stock)
            self.assert_derived(master, exact=True)
            self.assert_same_units(master, stock)
            self.assert_opens_in_java(stock)

    def statuses(self, master: Driver, count: int, **how: object) -> set[str]:
        """How some writes of ours ended."""
        return {write.status for write in master.put(count, **how).wait()}

    def until_fed(self, master: Driver) -> None:
        until(
            lambda: self.statuses(master, 1) == {"PUT_OK"},
            "the stock slave acknowledges",
            60,
            tell=master.tail,
            pause=0.2,
        )


class MixedTests(InteropTestCase):
    """F46: versions beside and after one another."""

    version = "5.3.3"
    older = "4.9.7"
    long = True

    def setUp(self) -> None:
        """Find the older peers too."""
        super().setUp()
        tool(self.older)

    def test_beside(self) -> None:
        """Slaves of all kinds behind our master: a write waits for each of them."""
        roles = f"our master; Java {self.older}, Java {self.version} and our slave"
        with self.scenario("F46: SYNC writes wait for all three; byte-equal", roles):
            keys = {"haReplicaIdentity": "connection", "inSyncReplicas": 4}
            master = self.our_master(**keys).start()
            new = self.broker("new", role="SLAVE", brokerId=1)
            self.tool.register(master.address)
            old = self.broker("old", of=self.older, role="SLAVE", brokerId=2)
            old.keys["haMasterAddress"] = f"127.0.0.1:{master.address[1]}"
            ours = self.our_slave(master.address, brokerId=3).start()
            # Started together: each needs its seconds.
            for broker in (new, old):
                broker.launch()
            until(
                lambda: {write.status for write in master.put(1).wait()} == {"PUT_OK"},
                "all acknowledge",
                90,
                tell=lambda: f"{new.tail()}\n{old.tail()}",
                pause=0.2,
            )
            burst = master.put(2000, size=2000, concurrency=16).wait()
            self.assertEqual({"PUT_OK"}, {write.status for write in burst})
            end = master.status()["maxOffset"]
            ours.until_synced(end)
            for broker in (new, old):
                broker.until_max(end)
                broker.stop()
            ours.term()
            self.assertEqual(0, master.stop(), master.tail())
            self.assert_quiet(master, ours)
            for node in (new, old, ours):
                self.assert_same_log(master, node)
                self.assert_same_units(master, node)

    def test_after(self) -> None:
        """A newer Java opens a master's store, then ours does, while our slave follows."""
        roles = f"Java {self.older}, then Java {self.version}, then our master; our slave"
        with self.scenario("F46: the master is upgraded twice, our slave goes on", roles):
            old = self.broker("old", of=self.older).start()
            place = {"listenPort": old.port, "haListenPort": old.port + 1, "root": old.root}
            slave = self.our_slave(old.address).start()
            self.write(old, 200)
            self.until_equal(old, slave)
            old.stop()
            new = self.broker("new", **place)
            new.port = old.port
            new.start()
            self.write(new, 200)
            self.until_equal(new, slave)
            new.stop()
            ours = self.our_master(**place).start()
            until(
                lambda: {write.status for write in ours.put(1).wait()} == {"PUT_OK"},
                "our slave acknowledges",
                60,
                tell=slave.tail,
            )
            burst = ours.put(200, topic=self.topic, concurrency=8).wait()
            self.assertEqual({"PUT_OK"}, {write.status for write in burst})
            slave.until_synced(ours.status()["maxOffset"])
            slave.term()
            self.assertEqual(0, ours.stop(), ours.tail())
            self.assert_quiet(ours, slave)
            for state in ("diverged", "ahead", "below-min"):
                self.assertNotIn(f"-> {state}", slave.log())
            self.assert_same_log(ours, slave)
            self.assert_derived(slave, exact=True)
            self.assert_same_units(ours, slave)

    def write(self, broker: Broker, count: int) -> None:
        """Messages of a stock producer of the broker's own version."""
        for kind in ("single", "batch", "delay"):
            statuses = broker.tool.put(count, self.topic, kind=kind).wait()
            self.assertEqual({"SEND_OK": count}, statuses)


class Link4Tests(LinkTests):
    version = "4.9.7"


class Link5Tests(LinkTests):
    version = "5.3.3"


class SlaveLink4Tests(SlaveLinkTests):
    version = "4.9.7"


class SlaveLink5Tests(SlaveLinkTests):
    version = "5.3.3"
