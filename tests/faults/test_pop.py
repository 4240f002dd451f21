"""F53: messages that are handed out and acknowledged, while their master is killed, or replaced by
its slave.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, bodies, make_topic, send
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pop import PopMessageRequest
from tests.faults.harness import FaultTestCase
from tests.support.pop_load import Books, PopLoad

GROUPS, CLIENTS, EACH = 5, 10, 100
"""Groups that wait, clients of each, and pops of each client."""

ROOM = 1024
"""Most pops of a group that wait for a queue, or for all."""

QUIET = 5.0
"""Seconds for which nothing is sent."""

OPEN = {b"open %d" % number for number in range(20)}
"""Messages that are handed out, and not acknowledged."""

INVISIBLE = 15.0
"""Seconds for which each is nobody else's: longer than another master needs to take over."""

AGAIN = 3.0
"""Seconds behind that, or behind the new master's start, until it has come again."""

BUSY = 0.05
"""The share of a processor that a broker may need meanwhile."""


class PopTests(FaultTestCase):
    """Brokers under C{twistd}, and clients that keep their own books."""

    def assertAll(self, books: Books) -> None:
        """Each message was handed out, and none that was done with."""
        self.tell(str(books))
        self.maxDiff = None
        self.assertEqual(books.wrong, [], "done with, and handed out again")
        self.assertEqual(books.lost, set(), "never handed out, or not done with")

    def drain(self, load: PopLoad, master: Node) -> None:
        """Acknowledge what is left, when the master knows what that is: until then it hands out
        nothing, which a busy machine made longer than a drain waits.
        """
        master.until(lambda status: not status["remoting"]["timers"]["reading"], "it has read")
        load.drain(master.port)

    def test_killed(self) -> None:
        """A master that is killed again and again hands out each message, and none that is done
        with.
        """
        master = self.node("master", "master").start()
        load = PopLoad(random=self.random)
        with load.on(master.port) as books:
            self.killed_often(master, 4, 1.0, 4.0)
        self.drain(load, master)
        self.assertGreater(len(books.done), 100)
        self.assertAll(books)
        self.assertEqual([], master.complaints())

    def test_promoted(self) -> None:
        """So does a slave that takes over; what is open comes again when its time is over."""
        master = self.node("master", "master", brokerRole="SYNC_MASTER").start()
        slave = self.follower(master)
        load = PopLoad(random=self.random)
        with load.on(master.port) as books:
            self.passes(self.random.uniform(5.0, 8.0))
            times = self.opens(master)
            master.kill9()
        heir = self.heir(slave)
        self.comes_again(heir, *times)
        self.drain(load, heir)
        self.assertAll(books)
        for node in (slave, heir):
            self.assertEqual([], node.complaints())

    def opens(self, master: Node) -> tuple[float, float]:
        """Messages are handed out, and not acknowledged.

        @return: When the time of the first is over at the earliest, and of all.
        """
        with Remote(master.port) as client:
            self.assertEqual(client.ask(make_topic("Open", 1)).code, 0)
            for body in OPEN:
                self.assertEqual(client.ask(send("Open", body)).code, 0)
            began, found = time.time(), set[bytes]()
            until(lambda: found.update(self.popped(client)) or found == OPEN, "they are handed out")
        return began + INVISIBLE, time.time() + INVISIBLE

    def comes_again(self, heir: Node, first: float, over: float) -> None:
        """They come again, not before their time is over, and soon."""
        heir.until(lambda status: not status["remoting"]["timers"]["reading"], "it has read")
        began, found = time.time(), set[bytes]()
        with Remote(heir.port) as client:
            while found != OPEN:
                found |= self.popped(client)
                if found:
                    self.assertGreater(time.time(), first, found)
                self.assertLess(time.time(), max(over, began) + AGAIN, sorted(OPEN - found))
        self.tell(f"came again {time.time() - max(over, began):.2f} s after their time")

    def popped(self, client: Remote) -> set[bytes]:
        """What a pop is handed."""
        request = PopMessageRequest(
            consumer_group="opens",
            topic="Open",
            queue_id=-1,
            max_msg_nums=32,
            invisible_time=round(INVISIBLE * 1000),
            poll_time=100,
            born_time=0,
        )
        answer = client.ask(Command.request(RequestCode.POP_MESSAGE, request))
        return set() if answer.code else set(bodies(answer))


class WaitingTests(FaultTestCase):
    """Thousands of consumers that have nothing to do."""

    def pop(self, group: int) -> Command:
        request = PopMessageRequest(
            consumer_group=f"waiters{group}",
            topic="Popped",
            queue_id=-1,
            max_msg_nums=32,
            invisible_time=60_000,
            poll_time=120_000,
            born_time=0,
        )
        return Command.request(RequestCode.POP_MESSAGE, request)

    def until_waiting(self, node: Node, count: int) -> dict[str, int]:
        """Wait until so many pops do.

        @return: How many messages are not acknowledged, by group.
        """
        status = node.until(
            lambda status: status["remoting"]["pop"]["waiting"] == count, f"{count} wait"
        )
        unacked: dict[str, int] = status["remoting"]["pop"]["unacked"]
        return unacked

    def test_five_thousand(self) -> None:
        """Five thousand pops wait for nothing: that costs a broker nothing.  One more than there is
        room for is refused; a message goes to one of each group; who leaves waits no more.
        """
        master = self.node("master", "master").start()
        with Remote(master.port) as other, ExitStack() as opened:
            self.assertEqual(other.ask(make_topic("Popped", 4)).code, 0)
            for number in range(GROUPS * CLIENTS):
                client = opened.enter_context(Remote(master.port))
                for _ in range(EACH):
                    client.send(self.pop(number % GROUPS))
            waiting = GROUPS * CLIENTS * EACH
            self.until_waiting(master, waiting)
            before = master.processor_time()
            self.passes(QUIET)
            used = (master.processor_time() - before) / os.sysconf("SC_CLK_TCK") / QUIET
            self.tell(f"{waiting} waiting pops: {used:.1%} of a processor")
            self.assertLess(used, BUSY)
            free = ROOM - CLIENTS * EACH
            last = opened.enter_context(Remote(master.port))
            for _ in range(free):
                last.send(self.pop(0))
            self.until_waiting(master, waiting + free)
            self.assertEqual(other.ask(self.pop(0)).code, ResponseCode.POLLING_FULL)
            self.assertEqual(other.ask(send("Popped", b"one")).code, 0)
            unacked = self.until_waiting(master, waiting + free - GROUPS)
            self.assertEqual(unacked, {f"waiters{group}": 1 for group in range(GROUPS)})
        self.until_waiting(master, 0)
        self.assertEqual([], master.complaints())
