"""What sets with etcd hand out (POP) and deliver at its time, while they move their master."""

from __future__ import annotations

import time
from collections import Counter
from itertools import cycle
from threading import Event, Thread

from attrs import define, field

from lab.harness.nodes import Node
from lab.harness.remote import Remote, send
from rmqha.wire.names import TIMER_DELIVER
from tests.faults.harness import rounds
from tests.faults.test_etcd import TTL, EtcdCase
from tests.support.pop_load import Elsewhere, PopLoad

INVISIBLE = 6000
"""Milliseconds for which a message is nobody else's: longer than it takes to elect somebody."""

KEPT = 0.3
"""The share of messages that are acknowledged after the next ones came, maybe by another master."""

LATER = (1, 8000)
"""In how many milliseconds timer messages are due, at random: before and after a move."""

MOVES = ("kill", "elect", "freeze", "elect", "stop", "elect")
"""How the master is moved, in turn."""


@define(eq=False)
class TimerLoad:
    """A client that sends timer messages to whoever is master.

    @ivar later: In how many milliseconds each is due.
    @ivar sent: What was answered 0.
    """

    ports: tuple[int, ...]
    later: list[int]
    topic: str = "Timed"
    sent: set[bytes] = field(factory=set)
    end: Event = field(factory=Event)
    _thread: Thread = field(init=False)

    def start(self) -> None:
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self.end.set()
        self._thread.join()

    def _run(self) -> None:
        number, later = 0, cycle(self.later)
        for port in cycle(self.ports):
            if self.end.is_set():
                return
            try:
                with Remote(port) as sender:
                    while not self.end.wait(0.02):
                        number += 1
                        body = b"%06d" % number
                        if sender.ask(send(self.topic, body, later=next(later))).code:
                            raise Elsewhere
                        self.sent.add(body)
            except (OSError, EOFError, Elsewhere):
                self.end.wait(0.1)


class ConsumingTests(EtcdCase):
    """Whoever leads hands out what it should, and delivers what is due."""

    def test_moves(self) -> None:
        """The master is killed, stopped, frozen, and others are elected, under load.  No message is
        lost; none that was acknowledged is handed out again; each timer message comes once, and not
        before its time.
        """
        self.etcd()
        master = self.set_of()
        ports = tuple(node.port for node in (master, *self.others(master)))
        pops = PopLoad(random=self.random, invisible=INVISIBLE, kept=KEPT)
        timers = TimerLoad(ports, [self.random.randrange(*LATER) for _ in range(1000)])
        timers.start()
        self.addCleanup(timers.stop)
        with pops.on(*ports) as books:
            for number in rounds(len(MOVES)):
                how = MOVES[number % len(MOVES)]
                self.passes(self.random.uniform(1.0, 4.0))
                moved = time.monotonic()
                heir = self.move(how)
                self.tell(f"{number}: {how}, {heir.name} after {time.monotonic() - moved:.1f} s")
            self.passes(2.0)
            timers.stop()
        assert self.load is not None
        self.load.stop()
        master = self.until_in_sync(3)
        pops.drain(master.port)
        self.tell(str(books))
        self.assertGreater(len(books.done), 100)
        self.assertEqual(books.wrong, [], "acknowledged, and handed out again")
        self.assertEqual(books.lost, set(), "never handed out, or not acknowledged")
        self.assertOnce(master, timers)
        self.check()

    def move(self, how: str) -> Node:
        """Have another member lead.

        @return: It.
        """
        master = self.until_in_sync(3)
        if how == "elect":
            heir = self.random.choice(self.others(master))
            self.done("elect", master.conf, "--id", self.id_of(heir))
        elif how == "freeze":
            master.freeze()
            self.passes(TTL)
            heir = self.until_led(master)
            master.thaw()
        else:
            {"kill": master.kill9, "stop": master.term}[how]()
            heir = self.until_led(master)
            master.start()
        assert self.load is not None
        self.load.first_after(time.monotonic(), *(node.name for node in self.others(master)))
        return heir

    def assertOnce(self, node: Node, timers: TimerLoad) -> None:
        """What was acknowledged came once, and not before its time."""
        node.until(
            lambda status: (
                timers.topic not in status["remoting"]["timers"]["pending"]
                and status["dispatchedOffset"] == status["maxOffset"]
            ),
            "all timers came",
        )
        found = self.copies(node, timers.topic)
        counts = Counter(map(len, found.values()))
        self.tell(f"timers: sent {len(timers.sent)}, came {len(found)}, how often {dict(counts)}")
        self.assertGreater(len(timers.sent), 100)
        self.assertEqual(timers.sent - found.keys(), set(), "lost")
        self.assertEqual({1}, counts.keys(), "twice")
        for (record,) in found.values():
            due = int(record.properties[TIMER_DELIVER])
            self.assertGreaterEqual(record.store_timestamp, due, record.body)
