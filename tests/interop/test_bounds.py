"""A stock master that lost its log's tail, and what our slave tells it then.

A stock SYNC master takes any first report for an acknowledgement.  So in these tests
somebody else is connected too, and reports nothing: a write that would be acknowledged
for a report of ours gets its chance.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from lab.harness.nodes import Node, until
from lab.harness.ports import free_ports
from lab.stock.brokers import Broker
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from tests.interop.cases import InteropTestCase
from tests.interop.test_java_master import FILE, NOT_HELD, SYNC

MIB = 1 << 20

#: A log with more than what a slave that knows nothing compares, and its files.
LARGE: dict[str, object] = {"mappedFileSizeCommitLog": 16 * MIB}


class BoundsTests(InteropTestCase):
    """Java SYNC master, our slave that is ahead."""

    roles = "Java master, our slave"

    def pair(self, **keys: object) -> tuple[Broker, Node]:
        """A SYNC master and our slave, in sync with a first message."""
        broker = self.broker(role="SYNC_MASTER", **SYNC, **keys).start()
        slave = self.our_slave(broker.address, **keys).start()
        self.tool.put(1, self.topic, wait=False).wait()
        self.until_equal(broker, slave)
        return broker, slave

    def lose_tail(self, broker: Broker, slave: Node, keep: int) -> None:
        """Both stop; the master comes back, and its log ends at C{keep}."""
        slave.term()
        broker.stop()
        settings = broker.settings()
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        cut(folder, keep)
        folder.close()
        broker.start()
        self.assertEqual(keep, broker.max_offset())

    @contextmanager
    def bystander(self, broker: Broker) -> Iterator[None]:
        """Somebody is connected as a slave, and reports nothing."""
        with socket.create_connection(broker.address, 5):
            yield

    def assert_not_acknowledged(self, broker: Broker) -> None:
        """Nobody holds what the master writes now, and it knows."""
        with self.bystander(broker):
            sends = self.tool.put(2, self.topic, size=10, threads=2)
            sends.wait()
        self.assertLessEqual({sent.status for sent in sends.sent}, NOT_HELD, sends.sent)

    def found_ahead(self, broker: Broker, slave: Node, reachable: bool) -> None:
        """A started slave finds out that it is ahead, and has told nothing that is not so."""
        end = broker.max_offset()
        upstream = slave.until_upstream("ahead", "diverged")["upstream"]
        # What was written since the tail was lost is not in our log, and may be compared.
        self.assertIn(upstream["state"], {"ahead", "diverged"})
        if upstream["state"] == "ahead":
            self.assertIn(f"the master ends at {end}, ours at", upstream["reason"])
        if reachable:
            boot = int(broker.runtime()["bootTimestamp"])
            self.assertEqual(("reachable", boot), self.port(upstream))
        else:
            self.assertIn("refused", upstream["clientPort"])
            self.assertIsNone(upstream["masterBootTimestamp"])
        self.assert_not_acknowledged(broker)

    def port(self, upstream: dict[str, object]) -> tuple[object, object]:
        """What is known from the client port."""
        return upstream["clientPort"], upstream["masterBootTimestamp"]

    def mended(self, broker: Broker, slave: Node, lost: int) -> None:
        """With C{truncate} both are equal again, and the tail is kept."""
        slave.term()
        slave.keys["haDivergencePolicy"] = "truncate"
        slave.start()
        self.until_equal(broker, slave)
        kept = sum(path.stat().st_size for path in slave.cuts)
        self.assertGreaterEqual(kept, lost)
        self.assertEqual({"SEND_OK": 20}, self.tool.put(20, self.topic).wait())
        self.until_equal(broker, slave)
        slave.term()
        broker.stop()
        self.assert_quiet(slave)
        self.assert_same_log(broker, slave)
        self.assert_derived(slave, exact=True)

    def test_lost_tail(self) -> None:
        """A tail of some files, the client port open and not, a master idle, silent and busy."""
        broker, slave = self.pair()
        self.tool.put(1500, self.topic, size=1000, tell=False).wait()
        sends = self.tool.put(100, self.topic, size=1000)
        self.assertEqual({"SEND_OK": 100}, sends.wait())
        held = self.until_equal(broker, slave)
        self.assertGreater(held, FILE)
        keep = sorted(place for sent in sends.sent for place in sent.places)[20]
        self.lose_tail(broker, slave, keep)
        with self.scenario("SYNC: a lost tail, the master idle: ``ahead``, nothing acknowledged"):
            slave.start()
            self.found_ahead(broker, slave, True)
        with self.scenario("SYNC: the same with a client port that cannot be reached"):
            slave.term()
            slave.keys["haMasterClientAddress"] = f"127.0.0.1:{free_ports(1)[0]}"
            slave.start()
            self.found_ahead(broker, slave, False)
            del slave.keys["haMasterClientAddress"]
        with self.scenario("SYNC: the same, the master silent (SIGSTOP) when it is asked"):
            slave.term()
            os.kill(broker.pid, signal.SIGSTOP)
            slave.start()
            slave.until(
                lambda status: "did not answer" in (status["upstream"] or {}).get("clientPort", ""),
                "no answer from the client port",
            )
            os.kill(broker.pid, signal.SIGCONT)
            slave.until(
                lambda status: status["upstream"]["clientPort"] == "reachable",
                "an answer from the client port",
                60,
            )
            self.found_ahead(broker, slave, True)
        with self.scenario("SYNC: the same, the master busy: ``ahead`` or ``diverged``"):
            slave.term()
            load = self.tool.put(1_000_000, self.topic, size=200, wait=False)
            self.until_some(load.sent, 20)
            slave.start()
            slave.until_upstream("ahead", "diverged")
            self.tool.enough()
            load.wait()
            self.assert_not_acknowledged(broker)
        with self.scenario("SYNC: and with ``truncate`` the tail is put aside; byte-equal"):
            self.mended(broker, slave, held - keep)

    def test_lost_more_than_is_compared(self) -> None:
        """A tail longer than what a slave that knows nothing would compare: only who asks
        the client port first stays below the master's end.
        """
        broker, slave = self.pair(**LARGE)
        first = self.tool.put(50, self.topic, size=1000)
        first.wait()
        self.tool.put(1300, self.topic, kind="big", size=70_000, wait=False, tell=False).wait()
        held = self.until_equal(broker, slave)
        keep = max(place for sent in first.sent for place in sent.places)
        self.assertGreater(held - keep, 70 * MIB)
        self.lose_tail(broker, slave, keep)
        with self.scenario("SYNC: the master lost 80 MiB: ``ahead``, nothing acknowledged"):
            slave.start()
            self.found_ahead(broker, slave, True)
        with self.scenario("SYNC: and with ``truncate`` the 80 MiB are put aside; byte-equal"):
            self.mended(broker, slave, held - keep)

    def test_joins(self) -> None:
        """An empty slave of a master that has deleted files goes where it is told."""
        broker = self.broker(role="ASYNC_MASTER").start()
        self.tool.put(1, self.topic, wait=False).wait()
        sends = self.tool.put(1500, self.topic, kind="big", size=4000, wait=False, tell=False)
        self.assertEqual({"SEND_OK": 1500}, sends.wait())
        broker.stop()
        for path in sorted(broker.settings().commitlog.iterdir())[:2]:
            path.unlink()
        broker.start()
        with self.scenario("ASYNC: an empty slave of a master with deleted files asks it where"):
            slave = self.our_slave(broker.address).start()
            until(lambda: broker.max_offset() > 4 * FILE, "files")
            self.until_equal(broker, slave)
            status = slave.status()
            self.assertEqual(2 * FILE, status["minOffset"])
            self.assertEqual(1, status["upstream"]["reconnects"])
            slave.term()
            broker.stop()
            self.assert_same_log(broker, slave, first=2 * FILE)
            self.assert_quiet(slave)


class Bounds4Tests(BoundsTests):
    version = "4.9.7"


class Bounds5Tests(BoundsTests):
    version = "5.3.3"
    full_only = ("test_joins",)
