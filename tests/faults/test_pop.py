"""F53: messages that are handed out and acknowledged, while their master is killed, or replaced by
its slave.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from attrs import define, field

from lab.harness.nodes import Node
from lab.harness.remote import Remote, make_topic, send
from rmqha.broker.pop.handles import PopHandle
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from tests.faults.harness import FaultTestCase
from tests.support.popping import handed_out

TOPIC, GROUP, QUEUES = "Popped", "poppers", 4

INVISIBLE = 3000
"""Milliseconds for which a message is nobody else's."""

LATE = 1000
"""Milliseconds before the end of that from which on an ack does not count: it may come too late."""


@define(eq=False)
class Books:
    """What a client was told.

    @ivar sent: What was answered 0, by body.
    @ivar handed: How often each was handed out.
    @ivar done: When an ack was answered 0 in time.
    @ivar unknown: Acks that were not answered.
    @ivar wrong: What was handed out though it was done with before that was asked for.
    """

    sent: set[bytes] = field(factory=set)
    handed: Counter[bytes] = field(factory=Counter)
    done: dict[bytes, float] = field(factory=dict)
    unknown: set[bytes] = field(factory=set)
    wrong: list[str] = field(factory=list)
    lock: Lock = field(factory=Lock)


class PopTests(FaultTestCase):
    """Brokers under C{twistd}, and clients that keep their own books."""

    def sends(self, master: Node, books: Books, end: Event) -> None:
        """Send until it is enough."""
        number = 0
        while not end.is_set():
            bodies = [b"%06d" % n for n in range(number, number + 20)]
            number += 20
            try:
                with Remote(master.port) as sender:
                    for at, body in enumerate(bodies):
                        if not sender.ask(send(TOPIC, body, at % QUEUES)).code:
                            books.sent.add(body)
            except (OSError, EOFError):
                end.wait(0.1)
            end.wait(0.05)

    def consumes(self, node: Node, books: Books, end: Event, share: float) -> None:
        """Pop, and acknowledge a share of it, until it is enough.

        @param share: Of the rest a part gets another time; nothing is said of the others.
        """
        while not end.is_set():
            try:
                with Remote(node.port) as client:
                    while not end.is_set():
                        self.consume(client, books, share)
            except (OSError, EOFError):
                end.wait(0.1)

    def consume(self, client: Remote, books: Books, share: float) -> bool:
        """Pop once.

        @return: Whether there was anything.
        """
        asked = time.time()
        answer = client.ask(
            Command.request(
                RequestCode.POP_MESSAGE,
                PopMessageRequest(
                    consumer_group=GROUP,
                    topic=TOPIC,
                    queue_id=-1,
                    max_msg_nums=8,
                    invisible_time=INVISIBLE,
                    poll_time=300,
                    born_time=int(asked * 1000),
                ),
            )
        )
        if answer.code:
            time.sleep(0.05)
            return False
        for body, handle, topic in handed_out(answer, TOPIC, GROUP, "broker-a"):
            with books.lock:
                books.handed[body] += 1
                if body in books.done and books.done[body] < asked:
                    books.wrong.append(f"{body!r}: {topic} {handle}")
            choice = self.random.random()
            if choice < share:
                self.acknowledge(client, books, body, handle, topic)
            elif choice < share + (1 - share) / 2:
                client.ask(
                    Command.request(
                        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                        ChangeInvisibleTimeRequest(
                            consumer_group=GROUP,
                            topic=topic,
                            queue_id=handle.queue_id,
                            handle=str(handle),
                            offset=handle.offset,
                            invisible_time=self.random.randrange(2 * INVISIBLE),
                        ),
                    )
                )
        return True

    def acknowledge(
        self, client: Remote, books: Books, body: bytes, handle: PopHandle, topic: str
    ) -> None:
        """Say that a message is done with."""
        request = AckMessageRequest(
            consumer_group=GROUP,
            topic=topic,
            queue_id=handle.queue_id,
            handle=str(handle),
            offset=handle.offset,
        )
        books.unknown.add(body)
        answer = client.ask(Command.request(RequestCode.ACK_MESSAGE, request))
        now = time.time()
        books.unknown.discard(body)
        if not answer.code and now * 1000 < handle.pop_time + handle.invisible - LATE:
            with books.lock:
                books.done.setdefault(body, now)

    def drain(self, node: Node, books: Books) -> None:
        """Acknowledge what is left, until nothing comes."""
        quiet = time.monotonic()
        with Remote(node.port) as client:
            while time.monotonic() - quiet < 3 * INVISIBLE / 1000:
                if self.consume(client, books, 1.0):
                    quiet = time.monotonic()

    def assertAll(self, books: Books) -> None:
        """Each message was handed out, and none that was done with."""
        left = books.sent - books.done.keys() - books.unknown
        often = Counter(books.handed.values())
        self.tell(
            f"acknowledged sends {len(books.sent)}, acks {len(books.done)}, by how often they were "
            f"handed out {dict(sorted(often.items()))}"
        )
        self.assertEqual(books.wrong, [], "done with, and handed out again")
        self.assertEqual(books.sent - books.handed.keys(), set(), "never handed out")
        self.assertEqual(left, set(), "did not come again")

    @contextmanager
    def under_load(self, node: Node) -> Iterator[Books]:
        """Clients that send, pop and acknowledge meanwhile."""
        with Remote(node.port) as client:
            self.assertEqual(client.ask(make_topic(TOPIC, QUEUES)).code, 0)
        books, end = Books(), Event()
        threads = [
            Thread(target=target, args=(node, books, end, *more))
            for target, more in ((self.sends, ()), (self.consumes, (0.7,)), (self.consumes, (0.9,)))
        ]
        for thread in threads:
            thread.start()
        try:
            yield books
        finally:
            end.set()
            for thread in threads:
                thread.join()

    def test_killed(self) -> None:
        """A master that is killed again and again hands out each message, and none that is done
        with.
        """
        master = self.node("master", "master").start()
        with self.under_load(master) as books:
            self.killed_often(master, 4, 1.0, 4.0)
        self.drain(master, books)
        self.assertGreater(len(books.done), 100)
        self.assertAll(books)
        self.assertEqual([], master.complaints())

    def test_promoted(self) -> None:
        """So does a slave that takes over."""
        master = self.node("master", "master", brokerRole="SYNC_MASTER").start()
        slave = self.follower(master)
        with self.under_load(master) as books:
            self.passes(self.random.uniform(5.0, 8.0))
            master.kill9()
        heir = self.heir(slave)
        self.drain(heir, books)
        self.assertAll(books)
        for node in (slave, heir):
            self.assertEqual([], node.complaints())
