"""Clients that send, pop and acknowledge while brokers die, and keep their own books."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from threading import Event, Lock, Thread

from attrs import define, field

from lab.harness.remote import Remote, make_topic, send
from rmqha.broker.pop.handles import PopHandle
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from tests.support.popping import handed_out

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
    @ivar unknown: Acks that were not answered, or not in time: it may come again or not.
    @ivar wrong: What was handed out though it was done with before that was asked for.
    """

    sent: set[bytes] = field(factory=set)
    handed: Counter[bytes] = field(factory=Counter)
    done: dict[bytes, float] = field(factory=dict)
    unknown: set[bytes] = field(factory=set)
    wrong: list[str] = field(factory=list)
    lock: Lock = field(factory=Lock)

    @property
    def lost(self) -> set[bytes]:
        """What never came, or was not done with and did not come again."""
        return self.sent - self.done.keys() - self.unknown

    def __str__(self) -> str:
        often = dict(sorted(Counter(self.handed.values()).items()))
        return (
            f"acknowledged sends {len(self.sent)}, acks {len(self.done)}, late or not answered "
            f"{len(self.unknown - self.done.keys())}, by how often they were handed out {often}; "
            f"lost {len(self.lost)}, of them never handed out {len(self.lost - self.handed.keys())}"
            f"; done with and handed out again {len(self.wrong)}"
        )


@define(eq=False, kw_only=True)
class PopLoad:
    """Such clients.

    @ivar broker: The broker's name.
    """

    random: Random
    topic: str = "Popped"
    group: str = "poppers"
    broker: str = "broker-a"
    queues: int = 4
    books: Books = field(factory=Books, init=False)
    _end: Event = field(factory=Event, init=False)

    @contextmanager
    def on(self, port: int) -> Iterator[Books]:
        """Have them work meanwhile."""
        with Remote(port) as client:
            answer = client.ask(make_topic(self.topic, self.queues))
            assert not answer.code, answer
        threads = [
            Thread(target=self._sends, args=(port,)),
            *(Thread(target=self._consumes, args=(port, share)) for share in (0.7, 0.9)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield self.books
        finally:
            self._end.set()
            for thread in threads:
                thread.join()

    def _sends(self, port: int) -> None:
        """Send until it is enough."""
        number = 0
        while not self._end.is_set():
            bodies = [b"%06d" % n for n in range(number, number + 20)]
            number += 20
            try:
                with Remote(port) as sender:
                    for at, body in enumerate(bodies):
                        if not sender.ask(send(self.topic, body, at % self.queues)).code:
                            self.books.sent.add(body)
            except (OSError, EOFError):
                self._end.wait(0.1)
            self._end.wait(0.05)

    def _consumes(self, port: int, share: float) -> None:
        """Pop, and acknowledge a share of it, until it is enough."""
        while not self._end.is_set():
            try:
                with Remote(port) as client:
                    while not self._end.is_set():
                        self.consume(client, share)
            except (OSError, EOFError):
                self._end.wait(0.1)

    def consume(self, client: Remote, share: float, invisible: int = INVISIBLE) -> bool:
        """Pop once, and acknowledge a share of it.

        @param share: Of the rest a part gets another time; nothing is said of the others.
        @return: Whether there was anything.
        """
        asked = time.time()
        answer = client.ask(
            Command.request(
                RequestCode.POP_MESSAGE,
                PopMessageRequest(
                    consumer_group=self.group,
                    topic=self.topic,
                    queue_id=-1,
                    max_msg_nums=8,
                    invisible_time=invisible,
                    poll_time=300,
                    born_time=int(asked * 1000),
                ),
            )
        )
        if answer.code:
            time.sleep(0.05)
            return False
        for body, handle, topic in handed_out(answer, self.topic, self.group, self.broker):
            with self.books.lock:
                self.books.handed[body] += 1
                self.books.unknown.discard(body)
                if self.books.done.get(body, asked) < asked:
                    self.books.wrong.append(f"{body!r}: {topic} {handle}")
            choice = self.random.random()
            if choice < share:
                self._acknowledge(client, body, handle, topic)
            elif choice < share + (1 - share) / 2:
                client.ask(
                    Command.request(
                        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                        ChangeInvisibleTimeRequest(
                            consumer_group=self.group,
                            topic=topic,
                            queue_id=handle.queue_id,
                            handle=str(handle),
                            offset=handle.offset,
                            invisible_time=self.random.randrange(2 * invisible),
                        ),
                    )
                )
        return True

    def _acknowledge(self, client: Remote, body: bytes, handle: PopHandle, topic: str) -> None:
        """Say that a message is done with."""
        request = AckMessageRequest(
            consumer_group=self.group,
            topic=topic,
            queue_id=handle.queue_id,
            handle=str(handle),
            offset=handle.offset,
        )
        self.books.unknown.add(body)
        answer = client.ask(Command.request(RequestCode.ACK_MESSAGE, request))
        now = time.time()
        if not answer.code and now * 1000 < handle.pop_time + handle.invisible - LATE:
            with self.books.lock:
                self.books.done.setdefault(body, now)
        elif answer.code:
            self.books.unknown.discard(body)

    def drain(self, port: int, quiet: float = 3 * INVISIBLE / 1000) -> None:
        """Acknowledge what is left, until nothing comes for so many seconds."""
        last = time.monotonic()
        with Remote(port) as client:
            while time.monotonic() - last < quiet:
                if self.consume(client, 1.0):
                    last = time.monotonic()
