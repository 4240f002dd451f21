"""Consumers that read from a slave: because they lag, and because the master is away."""

from __future__ import annotations

import signal
import statistics
import threading
import time

from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Follower, Remote, bodies, commit, progress, pull, send
from rmqha.logfiles import json_table
from rmqha.wire.remoting.codes import ResponseCode
from tests.faults.harness import BRISK, FaultTestCase, rounds

TOPIC, GROUP = "Orders", "billing"

KIB = 1 << 10

BODY = 1000

#: Memory of these brokers: a hundred messages.
HELD = 128 * KIB

#: Groups that commit.
GROUPS = 200

#: Seconds from a commit to its being on the disk, at most, and what a busy machine may add.
WRITTEN, SLACK = 5.0, 1.5

#: What is well below the five seconds after which a stock slave looks, in seconds.
AT_ONCE = 1.0


class ReadingCase(FaultTestCase):
    """A name server, a master and a slave under C{twistd}."""

    def serve(self, count: int, **keys: object) -> None:
        """Start a pair that has so many messages."""
        self.names = NameServer(self.folder)
        self._processes.append(self.names)
        self.names.start()
        told = {
            **BRISK,
            "namesrvAddr": self.names.client_address,
            "registerNameServerPeriod": 10_000,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "slaveReadEnable": "true",
            "accessMessageInMemoryBytes": HELD,
            **keys,
        }
        self.primary = Node(self.folder, "master", **{**told, "brokerRole": "SYNC_MASTER"})
        self._processes.append(self.primary)
        self.primary.start()
        self.copy = self.slave(self.primary.address, **told)
        self.copy.start()
        self.synced()
        self.sent: list[bytes] = []
        self.write(count)
        self.synced()

    def synced(self) -> None:
        """Wait until the slave has what the master has."""
        self.copy.until_synced(self.primary.status()["maxOffset"])

    def write(self, count: int) -> None:
        """Send messages; each must be on the slave as it is answered."""
        new = [f"{len(self.sent) + n:06d}".encode().ljust(BODY, b".") for n in range(count)]
        with Remote(self.primary.port) as sender:
            answers = sender.ask_all([send(TOPIC, body) for body in new])
        self.assertEqual({0}, {answer.code for answer in answers}, answers[-1])
        self.sent += new

    def consumer(self) -> Follower:
        found = Follower({0: self.primary.port, 1: self.copy.port}, TOPIC, GROUP)
        self.addCleanup(found.close)
        return found

    def told(self, node: Node) -> int:
        """How far the group is in the words of one broker; -1 if it does not know."""
        with Remote(node.port) as client:
            answer = client.ask(progress(TOPIC, GROUP))
        return int(answer.ext["offset"]) if answer.code == 0 else -1

    def quiet(self, *nodes: Node) -> None:
        """They said nothing that has no name."""
        for node in nodes:
            self.assertEqual([], node.complaints(), node.log()[-20_000:])


class SlaveReadTests(ReadingCase):
    def test_lagging(self) -> None:
        """A consumer that lags is sent to the slave, and back as it has caught up."""
        self.serve(500)
        consumer = self.consumer()
        consumer.run(lambda: len(consumer.got) >= len(self.sent))
        self.assertEqual(self.sent, consumer.got)
        at = [consumer.places.index(1), consumer.places.index(1) + consumer.places.count(1)]
        self.assertEqual(
            [0] * at[0] + [1] * (at[1] - at[0]) + [0] * (len(self.sent) - at[1]), consumer.places
        )
        # The first answer says to go, and within a hundred messages of the end it is back.
        self.assertLess(at[0], 40)
        self.assertLess(at[1], 500)
        self.assertGreater(at[1], 500 - HELD // BODY)
        self.assertEqual(0, consumer.which)
        self.quiet(self.primary, self.copy)

    def test_wake(self) -> None:
        """Who waits at the slave has a message as soon as the slave has."""
        self.serve(1)
        took = []
        with Remote(self.copy.port) as waiting:
            for _ in range(5):
                waiting.send(pull(TOPIC, GROUP, len(self.sent), wait=15))
                # It is being held before anything comes.
                with self.assertRaises(TimeoutError):
                    waiting.heard(0.2)
                begun = time.monotonic()
                self.write(1)
                answer = waiting.heard()
                took.append(time.monotonic() - begun)
                self.assertEqual([self.sent[-1]], bodies(answer))
        self.tell("woken after " + ", ".join(f"{1000 * each:.1f}" for each in took) + " ms")
        self.assertLess(statistics.median(took), AT_ONCE)

    def test_master_away(self) -> None:
        """While the master is away a consumer goes on at the slave and commits there; when it is
        back the consumer is too, with nothing lost, and nobody's position turned back.
        """
        self.serve(300)
        consumer = self.consumer()
        consumer.run(lambda: len(consumer.got) >= 100)
        self.assertEqual(0, consumer.commit())
        until(lambda: self.told(self.copy) >= 0, "the slave has heard of the group", 30)
        self.primary.kill9()
        consumer.run(lambda: len(consumer.got) >= 250)
        self.assertEqual(1, consumer.commit())
        at_slave = self.told(self.copy)
        self.assertEqual(consumer.offset, at_slave)
        self.primary.start()
        until(
            lambda: self.told(self.primary) >= at_slave,
            "the master knows what the slave was told",
            40,
            tell=lambda: f"{self.told(self.primary)} of {at_slave}\n{self.primary.tail()}",
        )
        self.copy.until_upstream("in-sync")
        self.write(100)
        lowest = self.watched()
        consumer.run(lambda: len(consumer.got) >= len(self.sent))
        self.assertEqual(self.sent, consumer.got)
        self.assertEqual(0, consumer.commit())
        self.passes(11.0)  # whatever slaves copy from their masters they have copied by now
        for node, seen in lowest():
            self.assertGreaterEqual(seen, at_slave, f"turned back at the {node.name}")
        self.assertEqual(len(self.sent), self.told(self.primary))
        self.assertEqual(len(self.sent), self.told(self.copy))
        self.quiet(self.primary, self.copy)

    def watched(self) -> object:
        """Look at both sides' group position; call what is returned for each one's lowest."""
        lowest = {self.primary: 1 << 60, self.copy: 1 << 60}
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.1):
                for node in lowest:
                    lowest[node] = min(lowest[node], self.told(node))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()

        def stop() -> list[tuple[Node, int]]:
            over.set()
            thread.join()
            return list(lowest.items())

        return stop


class ProgressTests(ReadingCase):
    def test_killed(self) -> None:
        """Killed at any moment, a master or a slave, the positions in its table are those of one
        moment, not more than some seconds before; and it begins with those at least.
        """
        self.serve(4000)
        begin = 1
        for node in (self.primary, self.copy):
            for _ in rounds(1):
                begin = self.killed(node, begin)

    def served(self, node: Node) -> bool:
        """Whether a broker answers: a master that was away first asks its slaves."""
        with Remote(node.port) as client:
            return client.ask(progress(TOPIC, "nobody")).code != ResponseCode.SERVICE_NOT_AVAILABLE

    def killed(self, node: Node, begin: int) -> int:
        """Commit one number after the other for all groups, in their order, kill the broker
        meanwhile, and
        return a number that was not yet committed.
        """
        groups = [f"group-{number:03d}" for number in range(GROUPS)]
        life = self.random.uniform(WRITTEN + 0.5, WRITTEN + 3)
        done: dict[int, float] = {}
        killer = threading.Timer(life, lambda: node.signal(signal.SIGKILL))
        killer.start()
        try:
            with Remote(node.port) as client:
                for number in range(begin, len(self.sent)):
                    answers = client.ask_all([commit(TOPIC, name, number) for name in groups])
                    self.assertEqual({0}, {answer.code for answer in answers})
                    done[number] = time.monotonic()
        except OSError:
            pass
        killer.join()
        node.wait()
        ended = time.monotonic()
        table = json_table.read(node.root / "config" / "consumerOffset.json")
        assert table is not None
        found = [table["offsetTable"][f"{TOPIC}@{name}"][0] for name in groups]
        last = max(done)
        self.tell(f"{node.name} was killed at {last}, has {found[0]} to {found[-1]}")
        self.assertEqual(sorted(found, reverse=True), found, "of one moment")
        self.assertLessEqual(found[0] - found[-1], 1, "of one moment")
        long_ago = [number for number, when in done.items() if when < ended - WRITTEN - SLACK]
        self.assertGreaterEqual(found[-1], max(long_ago, default=0))
        self.assertLessEqual(found[0], last + 1)
        node.start()
        until(lambda: self.served(node), "it serves again", tell=node.tail)
        with Remote(node.port) as client:
            asked = client.ask_all([progress(TOPIC, name) for name in groups])
        told = [int(answer.ext["offset"]) for answer in asked]
        # The journal has more than the table; and a slave may have heard more from its master
        # meanwhile, or told it more.
        self.assertGreaterEqual(min(told), found[-1])
        self.assertLessEqual(max(told), last + 1)
        return last + 2
