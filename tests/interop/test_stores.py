"""Stores that change hands between our nodes and stock brokers."""

from __future__ import annotations

from collections import Counter

from lab.harness.writer import Driver
from lab.stock.brokers import Broker, Row
from tests.interop.cases import InteropTestCase


class HandoverTests(InteropTestCase):
    """One store, opened in turn by our master and by a stock one."""

    roles = "one store in turn"

    def write(self, master: Driver, count: int) -> None:
        """Some writes of ours, of several sizes."""
        for size in (100, 1500, 20_000):
            burst = master.put(count, size=size, topic=self.topic, concurrency=8).wait()
            self.assertEqual({"PUT_OK"}, {write.status for write in burst}, master.tail())

    def serve(self, broker: Broker, wanted: list[Row]) -> None:
        """The running broker serves all of this test's topic that a stopped store had."""
        self.tool.do("topic", address=broker.client_address, topic=self.topic, queues=4)
        served = self.tool.pull(self.topic)
        lost = {row.place for row in wanted} - {row.place for row in served}
        if lost:
            again = {row.place for row in self.tool.pull(self.topic)}
            missing = [row for row in wanted if row.place in lost]
            self.fail(
                f"{len(served)} served, {len(missing)} of {len(wanted)} are not, "
                f"{len(lost - again)} when asked again; in queues "
                f"{Counter(row.queue for row in missing)}, from {missing[0]} to {missing[-1]}; "
                f"the broker: {broker.runtime()}\n{broker.tail()}"
            )
        self.assertEqual(wanted, served[: len(wanted)])

    def check(self, node: Driver | Broker, *, kill: bool = False, exact: bool = False) -> list[Row]:
        """A stopped, or killed, store is sound in our and Java's eyes: the topic's messages."""
        if not kill:
            self.assert_derived(node, exact=exact)
        self.assert_opens_in_java(node)
        return [row for row in self.log_rows(node) if row.topic == self.topic]

    def continue_in_java(self, broker: Broker, wanted: list[Row], *, kill: bool) -> None:
        """A stock master opens the store, serves what is there and goes on."""
        broker.start()
        self.serve(broker, wanted)
        for kind in ("single", "batch", "delay", "transaction"):
            statuses = self.tool.put(60, self.topic, kind=kind, size=900).wait()
            self.assertEqual({"SEND_OK": 60}, statuses)
        if kill:
            broker.kill9()
        else:
            broker.stop()

    def handover(self, *, kill: bool) -> None:
        """Ours, Java, ours, Java, ours; every time all that was there is still served."""
        how = "kill -9" if kill else "clean stop"
        ours = self.our_master(brokerRole="ASYNC_MASTER")
        java = self.broker(root=ours.root, role="ASYNC_MASTER")
        with self.scenario(f"{how}: a stock broker serves all of a store written by us"):
            ours.start()
            self.write(ours, 200)
            self.leave(ours, kill)
            wanted = self.check(ours, kill=kill, exact=True)
            self.assertEqual(600, len(wanted))
            self.continue_in_java(java, wanted, kill=kill)
        with self.scenario(f"{how}: continued by Java, it opens in ours, which goes on"):
            rows = self.log_rows(java)
            self.assert_continued(ours, rows)
            ours.start()
            self.write(ours, 50)
            self.leave(ours, kill)
            self.assertEqual(rows, self.log_rows(ours)[: len(rows)])
            wanted = self.check(ours, kill=kill)
        with self.scenario(f"{how}: and back in Java, and once more in ours"):
            self.continue_in_java(java, wanted, kill=kill)
            rows = self.log_rows(java)
            ours.start()
            self.write(ours, 10)
            self.assertEqual(0, ours.stop(), ours.tail())
            self.assertEqual(rows, self.log_rows(ours)[: len(rows)])
            self.check(ours)
            self.assert_quiet(ours)
            self.assert_has(ours, ours.history.acked)

    def leave(self, master: Driver, kill: bool) -> None:
        if kill:
            master.kill9()
        else:
            self.assertEqual(0, master.stop(), master.tail())

    def assert_continued(self, ours: Driver, rows: list[Row]) -> None:
        """What we wrote first is still where it was."""
        self.assert_has(ours, ours.history.acked)
        self.assertGreater(len(rows), len(ours.history.acked))

    def test_clean(self) -> None:
        """Everybody stops cleanly."""
        self.handover(kill=False)

    def test_killed(self) -> None:
        """Everybody is killed."""
        self.handover(kill=True)


class Handover4Tests(HandoverTests):
    version = "4.9.7"


class Handover5Tests(HandoverTests):
    version = "5.3.3"
