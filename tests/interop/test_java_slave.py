"""A stock slave behind our master, which it takes for one of its own."""

from __future__ import annotations

from lab.harness import compare_stores
from lab.harness.nodes import until
from lab.harness.writer import Driver
from lab.stock.brokers import Broker
from tests.interop.cases import InteropTestCase


class JavaBehindUsTests(InteropTestCase):
    roles = "our master, Java slave"

    def statuses(self, master: Driver, count: int, **how: object) -> set[str]:
        """How some writes of ours ended."""
        return {write.status for write in master.put(count, **{"concurrency": 4, **how}).wait()}

    def until_fed(self, master: Driver) -> None:
        """Wait until a write is acknowledged: stock slaves are silent for five seconds."""
        until(
            lambda: self.statuses(master, 1) == {"PUT_OK"},
            "the stock slave acknowledges",
            60,
            tell=master.tail,
            pause=0.2,
        )

    def follow(self, stock: Broker, master: Driver) -> None:
        """Give a stock slave its master, in its version's way."""
        if self.version < "5":
            stock.keys["haMasterAddress"] = f"127.0.0.1:{master.address[1]}"
        else:
            self.tool.register(master.address)

    def test_sync(self) -> None:
        """A SYNC master of ours gets a stock slave, and both lose their process."""
        master = self.our_master().start()
        stock = self.broker("java-slave", role="SLAVE")
        self.follow(stock, master)
        with self.scenario("our SYNC writes without a slave: SLAVE_NOT_AVAILABLE at once"):
            got = self.statuses(master, 4000, size=1200, concurrency=64)
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, got)
        with self.scenario("an empty stock slave joins under load and gets every byte from byte 0"):
            burst = master.put(1_000_000, size=800, rate=300, wait=False)
            stock.start()
            until(lambda: stock.max_offset() > 0, "first bytes", 60, tell=stock.tail, pause=0.1)
            master.enough()
            burst.wait()
            stock.until_max(master.status()["maxOffset"])
            self.assertEqual(0, stock.runtime()["commitLogMinOffset"])
        with self.scenario("our SYNC writes wait for it: PUT_OK over file rolls"):
            self.until_fed(master)
            self.assertEqual({"PUT_OK"}, self.statuses(master, 1500, size=3000, concurrency=16))
        with self.scenario("it stands still (SIGSTOP): FLUSH_SLAVE_TIMEOUT; it goes on: PUT_OK"):
            stock.freeze()
            self.assertEqual({"FLUSH_SLAVE_TIMEOUT"}, self.statuses(master, 4))
            stock.thaw()
            self.until_fed(master)
            self.assertEqual({"PUT_OK"}, self.statuses(master, 100))
        with self.scenario("our master is killed (-9) under load and comes back"):
            self.under_load(master, master)
            master.start()
            self.until_fed(master)
        with self.scenario("the stock slave, killed (-9) under load, holds every PUT_OK"):
            self.under_load(master, stock)
            self.assert_has(stock, master.history.acked)
            stock.start()
            self.until_fed(master)
        with self.scenario("in the end byte-equal; its queues say what our log says"):
            self.end(master, stock)
        with self.scenario("both stores open in DefaultMessageStore with all messages"):
            self.assert_opens_in_java(stock, index=False)
            self.assert_opens_in_java(master)

    def under_load(self, master: Driver, victim: Driver | Broker) -> None:
        """Kill one of them while writes go on and are acknowledged."""
        before = len(master.history.acked)
        burst = master.put(1_000_000, size=900, concurrency=8, rate=2000)
        until(lambda: len(master.history.acked) > before + 300, "load", 30, tell=master.tail)
        victim.kill9()
        if master.running:
            master.enough()
        burst.wait()

    def end(self, master: Driver, stock: Broker) -> None:
        """Stop both; the logs are byte-equal, and so are the queues."""
        stock.until_max(master.status()["maxOffset"])
        stock.stop()
        self.assertEqual(0, master.stop(), master.tail())
        self.assert_quiet(master)
        self.assert_same_log(master, stock)
        self.assert_derived(master, exact=True)
        self.assert_derived(stock, exact=False, index=False)
        self.assert_same_units(master, stock)
        for node in (master, stock):
            self.assert_has(node, master.history.acked)

    def test_ahead(self) -> None:
        """A stock slave that holds what our master does not is neither fed nor counted."""
        master = self.our_master().start()
        stock = self.broker("java-slave", role="SLAVE")
        self.follow(stock, master)
        self.statuses(master, 200)
        stock.start()
        stock.until_max(master.status()["maxOffset"])
        self.until_fed(master)
        stock.stop()
        end = stock_end = 0
        with self.scenario("a stock slave that is ahead is neither fed nor counted"):
            log = compare_stores.open_log(self.settings(stock))
            stock_end = log.end
            log.folder.close()
            other = self.our_master("other").start()
            self.follow(stock, other)
            stock.start()
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(other, 20))
            other.until(lambda status: status["closedConnections"], "a rejected report", 30)
            # Longer than the slave's now: it must not become right by waiting (D7).
            got = self.statuses(other, 800)
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, got)
            end = other.status()["maxOffset"]
            self.assertGreater(end, stock_end)
            for _ in range(3):
                self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(other, 20))
            self.assertEqual(stock_end, stock.max_offset(), "it was fed")
            master.stop()
            other.stop()


class JavaBehindUs4Tests(JavaBehindUsTests):
    version = "4.9.7"


class JavaBehindUs5Tests(JavaBehindUsTests):
    version = "5.3.3"
