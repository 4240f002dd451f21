"""Our slave behind a stock master, which knows nothing of it."""

from __future__ import annotations

from lab.harness.nodes import Node, until
from lab.stock.brokers import Broker
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from tests.interop.cases import InteropTestCase

FILE = 1 << 20

#: What a 5.x master needs to wait for a slave at all.
SYNC: dict[str, object] = {"inSyncReplicas": 2, "totalReplicas": 2}

#: How a stock SYNC master says that nobody holds the message.
NOT_HELD = {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}


class BehindJavaTests(InteropTestCase):
    roles = "Java master, our slave"

    def every_kind(self, wait: bool = True) -> None:
        """Some of every kind of message that a stock producer can send."""
        kinds = [
            ("batch", 300),
            ("delay", 200),
            ("transaction", 200),
            ("transaction-rollback", 200),
        ]
        for kind, size in [*kinds, ("single", 0), ("single", 9000), ("big", 100_000)]:
            count = 6 if kind == "big" else 20
            size = max(size, 1)
            statuses = self.tool.put(count, self.topic, kind=kind, size=size, wait=wait).wait()
            if wait:
                self.assertEqual({"SEND_OK": count}, statuses, kind)

    def fill(self, broker: Broker, files: int) -> None:
        """Write until the log has so many files, waiting for nobody."""
        self.tool.put(3, self.topic, size=10, wait=False).wait()
        count = files * FILE // 4500 + 1
        sends = self.tool.put(count, self.topic, kind="big", size=4000, wait=False, tell=False)
        self.assertEqual({"SEND_OK": count}, sends.wait(), sends.sent[:1])
        self.every_kind(wait=False)
        self.assertGreater(broker.max_offset(), files * FILE)

    def give_back(self, broker: Broker) -> None:
        """A consumer fails with some messages.  Its group's name is as long as it may be, so
        that 5.x keeps them in records of its second version.
        """
        group = "long-" + "g" * (150 if self.version >= "5" else 80)
        sends = self.tool.put(5, self.topic)
        self.assertEqual({"SEND_OK": 5}, sends.wait())
        self.tool.back(broker, group, [place for sent in sends.sent for place in sent.places])

    def assert_given_back(self, slave: Node) -> None:
        """What was given back is in a stopped slave's log, and in the queues of its topic."""
        topics = {row.topic for row in self.log_rows(slave) if row.topic.startswith("%RETRY%")}
        length = 7 + 5 + (150 if self.version >= "5" else 80)
        self.assertEqual({length}, {len(topic) for topic in topics})
        self.assertLessEqual(topics, {name.split("/")[0] for name in self.units(slave)})

    def test_sync(self) -> None:
        """A SYNC master with a log of many files gets a slave, and both lose their process."""
        broker = self.broker(role="SYNC_MASTER", **SYNC).start()
        with self.scenario("SYNC: the master fills several files before it has a slave"):
            self.fill(broker, 5)
        slave = self.our_slave(broker.address)
        with self.scenario("SYNC: an empty slave joins under load and gets every byte from byte 0"):
            load = self.tool.put(1_000_000, self.topic, size=500, wait=False)
            slave.start()
            slave.until_upstream("in-sync", "catching-up", timeout=60)
            self.until_some(load.sent, 200)
            self.tool.enough()
            load.wait()
            self.until_equal(broker, slave)
            self.assertEqual(0, slave.status()["minOffset"])
        with self.scenario("SYNC: sends of every kind get SEND_OK"):
            self.every_kind()
            self.give_back(broker)
            self.until_equal(broker, slave)
        with self.scenario("SYNC: no SEND_OK while our slave stands still (SIGSTOP)"):
            slave.freeze()
            held = self.tool.put(2, self.topic, threads=2)
            held.wait()
            slave.thaw()
            self.assertLessEqual({sent.status for sent in held.sent}, NOT_HELD, held.sent)
            self.until_equal(broker, slave)
            self.assertEqual({"SEND_OK": 20}, self.tool.put(20, self.topic).wait())
        with self.scenario("SYNC: our slave, killed (-9) under load, holds every SEND_OK"):
            self.kill_slave(slave)
        with self.scenario("SYNC: the Java master is killed (-9) under load and comes back"):
            self.kill_master(broker, slave)
        with self.scenario("SYNC: byte-equal, derived files as a rebuild and as the master's"):
            self.assert_followed(broker, slave, index=False)
            self.assert_given_back(slave)

    def kill_slave(self, slave: Node) -> None:
        """Kill our slave; what was acknowledged before must be in its log as it lies there."""
        load = self.tool.put(1_000_000, self.topic)
        self.until_some(load.sent, 300)
        slave.kill9()
        self.tool.enough()
        load.wait()
        self.assertGreater(len(load.acked), 200)
        # Whatever was acknowledged after the kill must be held as well.
        self.assert_holds(slave, load.acked)
        first = slave.root / "commitlog" / f"{0:020d}"
        written = first.stat().st_mtime_ns
        slave.start()
        slave.until_upstream("in-sync")
        self.assertEqual(written, first.stat().st_mtime_ns, "it began anew")
        self.assertEqual({"SEND_OK": 20}, self.tool.put(20, self.topic).wait())

    def kill_master(self, broker: Broker, slave: Node) -> None:
        """Kill the master; it comes back with what it has mapped, and our slave with it."""
        load = self.tool.put(1_000_000, self.topic)
        self.until_some(load.sent, 200)
        broker.kill9()
        self.tool.enough()
        load.wait()
        broker.start()
        self.until_equal(broker, slave)
        until(
            lambda: set(self.tool.put(5, self.topic).wait()) == {"SEND_OK"},
            "SEND_OK again",
            60,
            tell=slave.tail,
        )

    def test_async(self) -> None:
        """An ASYNC master with a stock slave and ours: both end up the same."""
        broker = self.broker(role="ASYNC_MASTER").start()
        stock = self.broker("java-slave", role="SLAVE", master=broker.address, brokerId=1).start()
        slave = self.our_slave(broker.address, brokerId=2).start()
        # A stock slave that joins empty gets the master's last file only: let it be the first.
        self.tool.put(1, self.topic).wait()
        stock.until_max(broker.max_offset())
        with self.scenario(
            "ASYNC: a stock slave and ours side by side follow every kind of message",
            "Java master, Java slave and our slave",
        ):
            self.fill(broker, 3)
            self.give_back(broker)
            end = self.until_equal(broker, slave)
            stock.until_max(end)
        with self.scenario("ASYNC: the master is stopped and started (clean)"):
            broker.stop()
            broker.start()
            self.tool.put(50, self.topic, size=2000).wait()
            end = self.until_equal(broker, slave)
            stock.until_max(end)
        with self.scenario("ASYNC: our slave is killed (-9) under load and goes on"):
            load = self.tool.put(1_000_000, self.topic, tell=True)
            self.until_some(load.sent, 200)
            slave.kill9()
            self.until_some(load.sent, 100)
            slave.start()
            self.until_some(load.sent, 100)
            self.tool.enough()
            load.wait()
            end = self.until_equal(broker, slave)
            stock.until_max(end)
        with self.scenario(
            "ASYNC: our slave's log and derived files equal the stock slave's, byte and unit",
            "Java master, Java slave and our slave",
        ):
            stock.stop()
            self.assert_followed(broker, slave)
            self.assert_same_log(stock, slave)
            self.assert_same_units(stock, slave)
            self.assert_given_back(slave)

    def test_large(self) -> None:
        """Messages of 4 MiB, which leave large blanks."""
        most = 4 << 20
        big = {"mappedFileSizeCommitLog": 16 << 20, "maxMessageSize": most + 1024}
        broker = self.broker(role="SYNC_MASTER", **SYNC, **big).start()
        slave = self.our_slave(broker.address, **big).start()
        with self.scenario("SYNC: messages of 4 MiB get SEND_OK, with blank tails of megabytes"):
            self.tool.put(1, self.topic, wait=False).wait()
            self.until_equal(broker, slave)
            sends = self.tool.put(8, self.topic, kind="big", size=most - 600, threads=1)
            self.assertEqual({"SEND_OK": 8}, sends.wait(), sends.sent[:1])
            self.assert_followed(broker, slave)


class PartedFromJavaTests(InteropTestCase):
    """A Java master that lost its log's end."""

    roles = "Java master, our slave"

    def lose_tail(self, broker: Broker, keep: int) -> None:
        """What a power cut does to a stopped broker: its log ends at C{keep}."""
        settings = broker.settings()
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        cut(folder, keep)
        folder.close()

    def part(self, role: str) -> tuple[Broker, Node, int]:
        """A pair whose stopped master came back without its last messages: the master, running; our
        slave,
        stopped; the end of what both share.
        """
        broker = self.broker(role=role, **SYNC).start()
        slave = self.our_slave(broker.address).start()
        self.tool.put(1, self.topic, wait=False).wait()
        self.until_equal(broker, slave)
        self.tool.put(1500, self.topic, size=1000, tell=False).wait()
        sends = self.tool.put(40, self.topic, size=1000)
        sends.wait()
        self.until_equal(broker, slave)
        slave.term()
        broker.stop()
        keep = sorted(place for sent in sends.sent for place in sent.places)[20]
        self.lose_tail(broker, keep)
        broker.start()
        self.assertEqual(keep, broker.max_offset())
        return broker, slave, keep

    def parted(self, role: str) -> None:
        """Ahead, then diverged, then cut and equal again; nothing is acknowledged meanwhile."""
        short = "SYNC" if role == "SYNC_MASTER" else "ASYNC"
        with self.scenario(f"{short}: the master lost its log's tail: our slave is ``ahead``"):
            broker, slave, keep = self.part(role)
            slave.start()
            found = slave.until_upstream("ahead")
            self.assertIn(str(keep), found["upstream"]["reason"])
            held = found["maxOffset"]
        with self.scenario(f"{short}: while we are ahead nothing is acknowledged for us"):
            statuses = self.tool.put(3, self.topic, size=10, threads=3).wait()
            if role == "SYNC_MASTER":
                self.assertLessEqual(set(statuses), NOT_HELD)
        with self.scenario(f"{short}: when the master has outgrown us, we are ``diverged``"):
            self.tool.put(60, self.topic, size=1000, wait=False).wait()
            self.assertGreater(broker.max_offset(), held)
            slave.term()
            slave.start()
            found = slave.until_upstream("diverged")
            self.assertEqual(held, found["maxOffset"])
            self.assertEqual(503, slave.health())
        with self.scenario(f"{short}: with ``truncate`` the tail is put aside; byte-equal"):
            slave.term()
            slave.keys["haDivergencePolicy"] = "truncate"
            slave.start()
            self.until_equal(broker, slave)
            (kept,) = slave.cuts
            self.assertGreaterEqual(kept.stat().st_size, held - keep)
            if role == "SYNC_MASTER":
                self.assertEqual({"SEND_OK": 20}, self.tool.put(20, self.topic).wait())
            self.until_equal(broker, slave)
            slave.term()
            broker.stop()
            self.assert_quiet(slave)
            self.assert_same_log(broker, slave)
            # The master's index lacks what it wrote below its old end: it believes that
            # it had indexed that.
            self.assert_derived(slave, exact=True)
            self.assert_same_units(broker, slave)

    def test_sync(self) -> None:
        """A SYNC master."""
        self.parted("SYNC_MASTER")

    def test_async(self) -> None:
        """An ASYNC master."""
        self.parted("ASYNC_MASTER")

    def test_byte(self) -> None:
        """One byte of a property, which no checksum covers, is another on the master."""
        with self.scenario("ASYNC: one byte differs where no checksum looks: ``diverged`` there"):
            broker = self.broker(role="ASYNC_MASTER").start()
            slave = self.our_slave(broker.address).start()
            sends = self.tool.put(1500, self.topic, size=1000)
            sends.wait()
            self.until_equal(broker, slave)
            slave.term()
            broker.stop()
            place = sorted(place for sent in sends.sent for place in sent.places)[-10]
            changed = self.change(broker, place)
            broker.start()
            held = slave.start().status()["maxOffset"]
            found = slave.until_upstream("diverged")
            self.assertIn(str(changed), found["upstream"]["reason"])
            self.assertIn(f"{changed - changed % FILE:020d}", found["upstream"]["reason"])
            self.assertEqual(held, found["maxOffset"])
        with self.scenario("ASYNC: and with ``truncate`` it is byte-equal again"):
            slave.term()
            slave.keys["haDivergencePolicy"] = "truncate"
            slave.start()
            self.until_equal(broker, slave)
            self.assertEqual(1, len(slave.cuts))
            slave.term()
            broker.stop()
            self.assert_same_log(broker, slave)
            self.assert_derived(slave, exact=True)
            self.assert_quiet(slave)

    def change(self, broker: Broker, place: int) -> int:
        """Change one byte of the value of a record's property C{origin}, and return its offset."""
        log = broker.settings().commitlog / f"{place - place % FILE:020d}"
        with open(log, "r+b") as file:
            file.seek(place % FILE)
            record = file.read(4000)
            at = place % FILE + record.index(b"origin\x01single") + 7
            file.seek(at)
            file.write(b"z")
        return place - place % FILE + at

    def test_below_min(self) -> None:
        """The master has deleted the files that our slave needs next."""
        with self.scenario("ASYNC: the master deleted what we need next: ``below-min``"):
            broker = self.broker(role="ASYNC_MASTER").start()
            slave = self.our_slave(broker.address).start()
            self.tool.put(100, self.topic, size=1000).wait()
            held = self.until_equal(broker, slave)
            slave.term()
            sends = self.tool.put(1200, self.topic, kind="big", size=4000, tell=False)
            self.assertEqual({"SEND_OK": 1200}, sends.wait())
            broker.stop()
            logs = sorted(broker.settings().commitlog.iterdir())
            for path in logs[:2]:
                path.unlink()
            broker.start()
            slave.start()
            found = slave.until_upstream("below-min", timeout=60)
            self.assertEqual(held, found["maxOffset"])
            self.assertIn(f"ours ends at {held}", found["upstream"]["reason"])
        with self.scenario(
            "ASYNC: with ``rebootstrap`` the old log is kept aside, the rest copied"
        ):
            slave.term()
            (first,) = (slave.root / "commitlog").iterdir()
            kept = first.read_bytes()[:held]
            slave.keys["haDivergencePolicy"] = "rebootstrap"
            slave.start()
            self.until_equal(broker, slave)
            self.assertEqual(2 * FILE, slave.status()["minOffset"])
            slave.term()
            broker.stop()
            (aside,) = (slave.root / "commitlog.aside").iterdir()
            self.assertEqual(kept, aside.read_bytes()[:held], "the old log is not as it was")
            self.assert_same_log(broker, slave, first=2 * FILE)
            self.assert_derived(slave, exact=True)
            self.assert_quiet(slave)


class BehindJava4Tests(BehindJavaTests):
    version = "4.9.7"


class BehindJava5Tests(BehindJavaTests):
    version = "5.3.3"


class PartedFromJava4Tests(PartedFromJavaTests):
    version = "4.9.7"
    full_only = ("test_async",)


class PartedFromJava5Tests(PartedFromJavaTests):
    version = "5.3.3"
    full_only = ("test_async", "test_byte")
