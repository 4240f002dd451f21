"""F53: messages that are handed out and acknowledged, while their master is killed, or replaced by
its slave.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from lab.harness.nodes import Node
from lab.harness.remote import Remote, make_topic, send
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
        """So does a slave that takes over."""
        master = self.node("master", "master", brokerRole="SYNC_MASTER").start()
        slave = self.follower(master)
        load = PopLoad(random=self.random)
        with load.on(master.port) as books:
            self.passes(self.random.uniform(5.0, 8.0))
            master.kill9()
        heir = self.heir(slave)
        self.drain(load, heir)
        self.assertAll(books)
        for node in (slave, heir):
            self.assertEqual([], node.complaints())


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
