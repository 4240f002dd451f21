"""A master of ours lost acknowledged bytes, and gets them from a stock slave's HA port."""

from __future__ import annotations

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker
from tests.interop.cases import InteropTestCase
from tests.interop.test_metadata import OF_THEIRS

LOST = 300 << 10
"""Bytes that are cut off the master's log."""


class LostTailTests(InteropTestCase):
    """Our SYNC master, Java slave, a Java producer."""

    roles = "our master, Java slave"

    def pair(self) -> tuple[Node, Broker]:
        """A pair in sync. On one host the master has to be told a stock slave's HA port."""
        stock = self.broker("java-slave", role="SLAVE")
        host, port = stock.address
        keys = {
            **OF_THEIRS,
            "brokerRole": "SYNC_MASTER",
            "namesrvAddr": self.tool.names,
            "haTailSources": f"{host}:{port}",
        }
        master = Node(self.folder, "master", "master", **keys)
        self._processes.append(master)
        self.addCleanup(self.tool.do, "leave", BOOT, namesrv=self.tool.names)
        if self.version < "5":
            stock.keys["haMasterAddress"] = f"127.0.0.1:{master.ha_port}"
        self.serve(master)
        stock.start()
        self.until_fed(master)
        return master, stock

    def serve(self, master: Node) -> None:
        """Start a master, and wait until clients find it."""
        master.start()
        until(
            lambda: f"127.0.0.1:{master.port}" in self.tool.registered(self.tool.names),
            "our master is registered",
            BOOT,
            tell=master.tail,
            pause=0.1,
        )

    def until_fed(self, master: Node) -> None:
        """Wait until the stock slave acknowledges a write."""
        until(
            lambda: self.tool.put(1, self.topic).wait() == {"SEND_OK": 1},
            "the stock slave acknowledges",
            60,
            tell=master.tail,
            pause=0.2,
        )

    def lose(self, master: Node) -> int:
        """Kill a master under which all is written and acknowledged, cut its log, and return where
        that
        ended; what it has written down of that log stays.
        """
        end = int(master.status()["maxOffset"])
        # What was on its disk is proven by its own files.
        master.until(lambda status: status["published"]["durable"] == end, "published")
        master.kill9()
        size = int(str(master.keys["mappedFileSizeCommitLog"]))
        for start in range((end - LOST) // size * size, end, size):
            first, last = max(start, end - LOST), min(start + size, end)
            with open(master.root / "commitlog" / f"{start:020d}", "r+b") as file:
                file.seek(first - start)
                file.write(bytes(last - first))
        return end

    def assert_back(self, master: Node, stock: Broker, end: int) -> None:
        """A master that serves has all of its log again, from the stock slave."""
        status = master.status()
        fetch = status["tailFetch"]
        host, port = stock.address
        self.assertEqual((end, None), (status["maxOffset"], status["lostTail"]), master.tail())
        self.assertEqual(("done", f"{host}:{port}"), (fetch["state"], fetch["source"]))
        self.assertEqual(end - status["recovery"]["end"], fetch["bytes"])
        self.assertGreaterEqual(fetch["bytes"], LOST)

    def test_fetched(self) -> None:
        """What was acknowledged is served again, and the master opens not before that."""
        master, stock = self.pair()
        sends = self.tool.put(1700, self.topic)
        self.assertEqual({"SEND_OK": 1700}, sends.wait())
        acked = sends.acked
        with self.scenario("our master, killed (-9), lost acknowledged bytes: from the HA port"):
            end = self.lose(master)
            self.serve(master)
            self.assert_back(master, stock, end)
        with self.scenario("the Java slave follows again: SEND_OK"):
            self.until_fed(master)
            sends = self.tool.put(300, self.topic)
            self.assertEqual({"SEND_OK": 300}, sends.wait())
            acked += sends.acked
        with self.scenario("it stands still (SIGSTOP) while its master starts: that waits for it"):
            master.keys["haTailFetchTimeout"] = 60_000
            end = self.lose(master)
            stock.freeze()
            master.launch()
            master.until(lambda status: status["tailFetch"] is not None, "asking")
            status = master.status()
            self.assertEqual("recovering", status["state"])
            self.assertIn("asking replicas", status["reason"])
            self.assertLess(status["maxOffset"], end)
            self.assertEqual(503, master.health("readyz"))
            stock.thaw()
            master.until(lambda status: status["state"] != "recovering", "open")
            self.assert_back(master, stock, end)
        with self.scenario("in the end byte-equal, every SEND_OK held on both sides"):
            self.until_fed(master)
            stock.until_max(master.status()["maxOffset"])
            stock.stop()
            master.term()
            self.assert_quiet(master)
            self.assert_same_log(master, stock)
            self.assert_derived(master, exact=True)
            for each in (master, stock):
                self.assert_holds(each, acked)


class LostTail4Tests(LostTailTests):
    version = "4.9.7"


class LostTail5Tests(LostTailTests):
    version = "5.3.3"
