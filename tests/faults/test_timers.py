"""F41: timer messages, while their master is killed, or replaced by its slave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from lab.harness.nodes import Node
from lab.harness.remote import Remote, send
from rmqha.wire.names import TIMER_DELIVER, TIMER_ROLLS
from tests.faults.harness import FaultTestCase, rounds

TOPIC = "Timed"

LONGEST = 4.0
"""Seconds until the last message is due."""

TOGETHER = 20
"""Messages that are sent at a time, each tenth of a second at most."""

BURST = 3000
"""Messages that are due at one moment."""


class TimerTests(FaultTestCase):
    """Brokers under C{twistd}, and a client that keeps its own books."""

    def sends(self, master: Node, sent: set[bytes], end: Event) -> None:
        """Send until it is enough; what was answered 0 counts."""
        number = 0
        while not end.is_set():
            bodies = [b"%06d" % n for n in range(number, number + TOGETHER)]
            number += TOGETHER
            later = [self.random.randrange(1, round(LONGEST * 1000)) for _ in bodies]
            try:
                with Remote(master.port) as sender:
                    answers = sender.ask_all(
                        [
                            send(TOPIC, body, later=ms)
                            for body, ms in zip(bodies, later, strict=True)
                        ]
                    )
            except (OSError, EOFError):
                end.wait(0.1)
                continue
            sent.update(
                body for body, answer in zip(bodies, answers, strict=True) if not answer.code
            )
            end.wait(0.1)

    @contextmanager
    def under_load(self, master: Node) -> Iterator[set[bytes]]:
        """Send meanwhile.

        @return: What was answered 0, as soon as it was.
        """
        sent: set[bytes] = set()
        end = Event()
        sender = Thread(target=self.sends, args=(master, sent, end))
        sender.start()
        try:
            yield sent
        finally:
            end.set()
            sender.join()

    def until_delivered(self, node: Node) -> None:
        """Wait until none is left: what is stored anew is pending again only when it is
        dispatched.
        """
        node.until(
            lambda status: (
                not status["remoting"]["timers"]["reading"]
                and not status["remoting"]["timers"]["pending"]
                and status["dispatchedOffset"] == status["maxOffset"]
            ),
            "all is delivered",
            LONGEST + 30.0,
        )

    def assertOnce(self, node: Node, sent: set[bytes]) -> None:
        """What was acknowledged came once, and not before its time."""
        found = self.copies(node, TOPIC)
        counts = Counter(map(len, found.values()))
        self.tell(f"acknowledged {len(sent)}, came {len(found)}, by how often {dict(counts)}")
        self.assertEqual(sent - found.keys(), set(), "lost")
        self.assertEqual({1}, counts.keys(), "twice")
        for (record,) in found.values():
            self.assertGreaterEqual(
                record.store_timestamp, int(record.properties[TIMER_DELIVER]), record.body
            )

    def test_killed(self) -> None:
        """Killed again and again while it delivers, a master loses none, and none comes twice."""
        master = self.node("master", "master").start()
        with self.under_load(master) as sent:
            self.killed_often(master, 4, 1.5, 3.0)
        self.assertGreater(len(sent), 200)
        self.until_delivered(master)
        self.assertOnce(master, sent)
        self.assertEqual([], master.complaints())

    def test_killed_while_it_stores_anew(self) -> None:
        """The same where most are stored anew on the way, once or twice: their time is beyond a
        window that is short.
        """
        keys = {"timerRollWindowSlot": 7, "timerPrecisionMs": 200}
        master = self.node("master", "master", **keys).start()
        with self.under_load(master) as sent:
            self.killed_often(master, 4, 1.5, 3.0)
        self.until_delivered(master)
        self.assertOnce(master, sent)
        rolls = Counter(
            record.properties.get(TIMER_ROLLS, "0")
            for (record,) in self.copies(master, TOPIC).values()
        )
        self.tell(f"how often they were stored anew: {dict(rolls)}")
        self.assertGreater(rolls["2"], 20)
        self.assertEqual([], master.complaints())

    def test_killed_in_a_burst(self) -> None:
        """Killed while it delivers thousands of one moment, a master has delivered the first ones,
        and delivers the others, once.
        """
        master = self.node("master", "master").start()
        sent: set[bytes] = set()
        for number in rounds(3):
            bodies = [b"%02d%06d" % (number, n) for n in range(BURST)]
            due = round(time.time() * 1000) + 4000
            with Remote(master.port) as sender:
                commands = [send(TOPIC, body, later=1) for body in bodies]
                for command in commands:
                    command.ext["i"] = f"{TIMER_DELIVER}\x01{due}\x02"
                answers = sender.ask_all(commands)
            self.assertEqual({0}, {answer.code for answer in answers})
            sent.update(bodies)
            self.passes(due / 1000 - time.time() + self.random.uniform(0.0, 0.03))
            master.kill9()
            master.start()
            self.until_delivered(master)
        self.assertOnce(master, sent)
        self.assertEqual([], master.complaints())
        stored: dict[bytes, list[int]] = {}
        for body, (record,) in self.copies(master, TOPIC).items():
            stored.setdefault(body[:2], []).append(record.store_timestamp)
        cut = sum(max(times) - min(times) > 300 for times in stored.values())
        self.tell(f"killed in the midst of a burst: {cut} times of {len(stored)}")

    def test_promoted(self) -> None:
        """A slave that takes over delivers the rest, and nothing again."""
        master = self.node("master", "master", brokerRole="SYNC_MASTER").start()
        slave = self.follower(master)
        with self.under_load(master) as sent:
            self.passes(self.random.uniform(5.0, 8.0))
            master.kill9()
        heir = self.heir(slave)
        self.until_delivered(heir)
        self.assertOnce(heir, sent)
        for node in (slave, heir):
            self.assertEqual([], node.complaints())
