"""Timer messages between brokers of ours and stock ones: in one store, and as master and slave."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from struct import unpack, unpack_from

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, bodies, pull, send
from lab.stock.brokers import Broker
from lab.stock.clients import java_client
from rmqha.wire.names import UNIQUE_KEY
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.interop.cases import InteropTestCase
from tests.interop.test_metadata import OF_THEIRS, ROUND
from tests.interop.test_switchover import SYNC
from tests.support import client

COUNT, STEP = 60, 500
"""How many messages, and milliseconds from one to the next."""

LAST = COUNT * STEP / 1000
"""Seconds until the last one is due."""

RECALLED = 5
"""How many more are due then, and are taken back."""

BEHIND = 5.0
"""Seconds after which a stock slave, which asks every three, has heard how far its master is."""


class TimerTestCase(InteropTestCase):
    """Messages that come one after the other, while brokers change."""

    def our_node(self, root: Path | None = None) -> Node:
        keys = {**OF_THEIRS, "namesrvAddr": self.tool.names, "recallMessageEnable": "true"}
        master = Node(self.folder, "master", "master", root=root, **keys)
        self._processes.append(master)
        return master.start()

    def makes_topic(self, port: int) -> None:
        """Send what is not to wait."""
        with Remote(port) as sender:
            made = sender.ask(send(self.topic, b"first"))
        self.assertEqual(0, made.code, made.remark)

    def sends(self, port: int) -> None:
        with Remote(port) as sender:
            asked = [send(self.topic, b"%d" % n, later=(n + 1) * STEP) for n in range(COUNT)]
            for answer in sender.ask_all(asked):
                self.assertEqual(0, answer.code, answer.remark)
            for n in range(RECALLED):
                timer = send(self.topic, b"recalled %d" % n, later=COUNT * STEP)
                timer.ext["i"] += f"{UNIQUE_KEY}\x01recalled{n}\x02"
                answer = sender.ask(timer)
                self.assertEqual(0, answer.code, answer.remark)
                ext = {"topic": self.topic, "recallHandle": answer.ext["recallHandle"]}
                answer = sender.ask(Command(code=RequestCode.RECALL_MESSAGE, ext=ext))
                self.assertEqual(0, answer.code, answer.remark)

    def copies(self, port: int) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        offset = 0
        with Remote(port) as reader:
            while not (answer := reader.ask(pull(self.topic, "g", offset))).code:
                offset = int(answer.ext["nextBeginOffset"])
                found.update(bodies(answer))
        return found

    def until_all(self, node: Node | Broker) -> Counter[bytes]:
        """Wait until all came that should; what was taken back does not, as those of its time."""
        until(
            lambda: len(self.copies(node.port)) > COUNT,
            "all come",
            LAST + 60,
            tell=lambda: f"{len(self.copies(node.port)) - 1} of {COUNT}: {node.tail()}",
            pause=0.5,
        )
        time.sleep(2.5)
        found = self.copies(node.port)
        self.assertEqual({b"first", *(b"%d" % n for n in range(COUNT))}, found.keys())
        return found

    def checkpoint(self, port: int) -> tuple[int, ...]:
        """What a broker answers to 60."""
        with Remote(port) as sender:
            answer = sender.ask(Command.request(RequestCode.GET_TIMER_CHECK_POINT))
        return unpack(">7q", answer.body)

    def assertTwice(self, found: Counter[bytes], most: int, what: str) -> None:
        """At most so many came again."""
        again = sum(found.values()) - len(found)
        self.tell_of(f"{what}: {again} of {COUNT} came again")
        self.assertLessEqual(again, most)

    def tell_of(self, line: str) -> None:
        """Say it in the test's output."""
        print(line)  # noqa: T201


class TimerTests(TimerTestCase):
    """5.3.3."""

    version = "5.3.3"
    roles = "timer messages"
    long = True

    def stock(self, **keys: object) -> Broker:
        """A stock broker with a timer, not started."""
        return self.broker(timerWheelEnable="true", recallMessageEnable="true", **keys)

    def test_slave(self) -> None:
        """A stock slave of our master follows it, and goes on as the master."""
        with self.scenario("a Java slave's timer follows our master, and delivers the rest later"):
            master, slave = self.our_node(), self.stock(name="java-slave", role="SLAVE")
            # A stock slave asks for topics when it starts, and then a minute later.
            self.makes_topic(master.port)
            slave.start()
            until(
                lambda: self.topic in client.topic_names(slave.client_address),
                "it has the topic",
                ROUND,
                pause=0.5,
            )
            self.sends(master.port)

            # A recall is a timer message, too.
            most = COUNT + 2 * RECALLED
            until(lambda: self.checkpoint(slave.port)[3] == most, "it has the count", 40, pause=0.2)
            for _ in range(3):
                done, _, _, count, *_ = self.checkpoint(master.port)
                self.assertEqual(most, count)
                until(
                    lambda done=done: self.checkpoint(slave.port)[0] >= done,
                    "the checkpoint follows",
                    BEHIND,
                    pause=0.1,
                )
            self.until_equal_logs(master, slave)
            master.term()
            slave.stop()
            slave.keys |= {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
            slave.start()
            self.assertTwice(self.until_all(slave), 12, "stock slave of ours as master")

    def test_ours_of_theirs(self) -> None:
        """Our slave of a stock master that is killed goes on, and delivers nothing twice."""
        with self.scenario("our slave delivers the rest of a Java master's timer messages"):
            master = self.stock(role="SYNC_MASTER", **SYNC).start()
            given = {**OF_THEIRS, "namesrvAddr": self.tool.names}
            slave = self.our_slave(master.address, **given).start()
            slave.until_synced(master.max_offset())
            self.makes_topic(master.port)
            self.sends(master.port)
            until(lambda: len(self.copies(master.port)) > COUNT // 4, "some come", LAST, pause=0.2)
            master.kill9()
            heir = self.our_heir(slave, **given)
            self.assertTwice(self.until_all(heir), 0, "our slave of a stock master")
        for node in (slave, heir):
            self.assertEqual([], node.complaints(), node.log()[-20_000:])

    def until_equal_logs(self, master: Node, slave: Broker) -> None:
        """Wait until the slave's log is as long."""
        until(
            lambda: slave.runtime()["commitLogMaxOffset"] == master.status()["maxOffset"],
            "the same log",
            60,
            tell=lambda: f"{slave.runtime()} {master.status()['maxOffset']}",
            pause=0.2,
        )

    def test_their_store(self) -> None:
        """Ours goes on where a stock broker was killed."""
        with self.scenario("timer messages of a store that a Java master left"):
            java = self.stock(role="ASYNC_MASTER").start()
            self.makes_topic(java.port)
            self.sends(java.port)
            until(lambda: len(self.copies(java.port)) > COUNT // 4, "some come", LAST, pause=0.2)
            before = self.copies(java.port)
            java.kill9()
            ours = self.our_node(java.root)
            found = self.until_all(ours)
            self.assertTwice(found, sum(before.values()) - len(before), "ours on a stock store")

    def test_our_store(self) -> None:
        """A stock broker goes on where ours was stopped; only what lies behind the first that waits
        comes again.
        """
        with self.scenario("timer messages of a store that ours left"):
            ours = self.our_node()
            self.makes_topic(ours.port)
            self.sends(ours.port)
            until(lambda: len(self.copies(ours.port)) > COUNT // 4, "some come", LAST, pause=0.2)
            ours.term()
            self.goes_on(ours, "a stock broker on our store")

    def test_our_killed_store(self) -> None:
        """The same where ours was killed: then the first that waits may be one of some seconds
        before.
        """
        with self.scenario("timer messages of a store where ours was killed"):
            ours = self.our_node()
            self.makes_topic(ours.port)
            self.sends(ours.port)
            until(lambda: len(self.copies(ours.port)) > COUNT // 4, "some come", LAST, pause=0.2)
            ours.kill9()
            self.goes_on(ours, "a stock broker on our killed store")

    def goes_on(self, ours: Node, what: str) -> None:
        """A stock broker is started on our store."""
        told = (ours.root / "config" / "timercheck").read_bytes()
        java = self.stock(role="ASYNC_MASTER", root=ours.root).start()
        first = unpack_from(">q", told, 16)[0]
        found = self.until_all(java)
        again = [int(body) for body, count in found.items() if count > 1]
        self.assertGreaterEqual(min(again, default=first), first)
        self.assertTwice(found, COUNT - first, what)


class OldConsumerTests(TimerTestCase):
    """A consumer of 4.9.7, which knows of no timer."""

    version = "4.9.7"
    roles = "timer messages"
    long = True

    def test_old_consumer(self) -> None:
        """What is due comes to it as any message: each once, none early."""
        with self.scenario("timer messages of ours to a push consumer"):
            ours = self.our_node()
            self.makes_topic(ours.port)
            consumer = java_client(self.tool, self.tool.names).consume(self.topic, "g")
            began = int(time.time() * 1000)
            self.sends(ours.port)
            got = consumer.until_got([str(n) for n in range(COUNT)], LAST + 60)
            self.assertEqual(COUNT, len(got))
            early = {each.body: began + (int(each.body) + 1) * STEP - each.stored for each in got}
            self.assertLessEqual(max(early.values()), 0, early)
            consumer.stop()
