"""F41: delayed messages, while their master is stopped, killed, or replaced by its slave."""

from __future__ import annotations

import time
from collections import Counter

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, send
from tests.faults.harness import FaultTestCase, rounds

TOPIC = "Later"

#: Delays in seconds, so that messages come due all the time.
DELAYS = range(1, 9)

MESSAGES = 1600

#: What a killed master may deliver again, in seconds before its end, and what a busy machine may
#: add.
AGAIN, SLACK = 2.0, 1.5

LEVELS = {"messageDelayLevel": " ".join(f"{delay}s" for delay in DELAYS)}


class DelayTests(FaultTestCase):
    """Brokers under C{twistd} with messages of all levels."""

    def fill(self, master: Node) -> set[bytes]:
        """Send messages of all levels, and return their bodies."""
        levels = [1 + n % len(DELAYS) for n in range(MESSAGES)]
        self.random.shuffle(levels)
        sent = [f"{n:05d}".encode() for n in range(MESSAGES)]
        with Remote(master.port) as sender:
            answers = sender.ask_all(
                [send(TOPIC, body, delay=n) for n, body in zip(levels, sent, strict=True)]
            )
        self.assertEqual({0}, {answer.code for answer in answers})
        # A topic that was made in a killed broker's last second is made anew by its producers.
        topics = master.root / "config" / "topics.json"
        until(lambda: topics.exists() and TOPIC in topics.read_text(), "the topic is written")
        return set(sent)

    def until_delivered(self, node: Node) -> None:
        node.until(
            lambda status: (
                not any(
                    level["pending"] for level in status["remoting"]["delayed"]["levels"].values()
                )
            ),
            "all is delivered",
            max(DELAYS) + 20.0,
        )
        until(lambda: node.status()["dispatchedOffset"] == node.status()["maxOffset"], "dispatched")

    def offsets(self, node: Node) -> int:
        """How many messages of all levels a node counts as delivered."""
        levels = node.status()["remoting"]["delayed"]["levels"].values()
        return sum(level["offset"] for level in levels)

    def pause(self) -> None:
        self.passes(self.random.uniform(0.3, 2.0))

    def test_restarted(self) -> None:
        """Stopped and started again while it delivers, a master delivers each message once."""
        master = self.node("master", "master", **LEVELS).start()
        sent = self.fill(master)
        for _ in rounds(3):
            self.pause()
            master.term()
            master.start()
        self.until_delivered(master)
        found = self.copies(master, TOPIC)
        self.assertEqual(sent, set(found))
        self.assertEqual({1}, {len(copies) for copies in found.values()})
        self.assertEqual([], master.complaints())

    def test_killed(self) -> None:
        """Killed, it loses none, and delivers again only what it delivered just before."""
        master = self.node("master", "master", **LEVELS).start()
        sent = self.fill(master)
        kills = []
        for _ in rounds(3):
            self.pause()
            kills.append(time.time())
            master.kill9()
            master.start()
        self.until_delivered(master)
        found = self.copies(master, TOPIC)
        self.assertEqual(sent, set(found))
        for body, copies in found.items():
            for copy in copies[:-1]:
                stored = copy.store_timestamp / 1000
                before = min(kill - stored for kill in kills if kill - stored > -0.1)
                self.assertLess(before, AGAIN + SLACK, f"{body!r} came {len(copies)} times")
        self.tell(f"twice: {sum(len(copies) - 1 for copies in found.values())} of {MESSAGES}")
        self.assertEqual([], master.complaints())

    def test_promoted(self) -> None:
        """A slave that takes over loses none: it goes on where it knows the master was."""
        master = self.node("master", "master", **LEVELS, brokerRole="SYNC_MASTER").start()
        with Remote(master.port) as sender:
            # A topic that is younger than the last metadata would be unknown to the heir.
            sender.ask(send(TOPIC, b"first", queue_id=1))
        slave = self.follower(master, **LEVELS)
        sent = self.fill(master)
        self.pause()
        self.pause()
        master.kill9()
        known = self.offsets(slave)
        slave.until(lambda status: status["dispatchedOffset"] == status["confirmedOffset"], "done")
        held = Counter({body: len(copies) for body, copies in self.copies(slave, TOPIC).items()})
        self.assertGreaterEqual(held.total(), known, "it knows of no copy that it does not hold")
        heir = self.heir(slave, **LEVELS)
        self.until_delivered(heir)
        found = self.copies(heir, TOPIC)
        self.assertEqual(sent, set(found))
        again = sum(map(len, found.values())) - MESSAGES
        self.assertEqual(again, held.total() - known)
        self.tell(f"twice: {again} of {MESSAGES}")
        for node in (slave, heir):
            self.assertEqual([], node.complaints())
