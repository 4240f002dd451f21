"""Clients that send, pop and acknowledge while brokers die, and keep their own books."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from random import Random
from threading import Event, Lock, Thread

from attrs import define, field

from lab.harness.remote import Remote, make_topic, send
from rmqha.broker.pop.handles import PopHandle
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
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


NOTHING_DONE = {ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_BUSY}
"""What an ack is answered by who is no master, and by one that still reads: the message comes
again.  Another refusal may be of one that is stored, as a send's.
"""

_Handed = tuple[bytes, PopHandle, str]


class Elsewhere(Exception):
    """Who was asked is no master."""


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
    @ivar invisible: Milliseconds for which a message is nobody else's.
    @ivar kept: The share of messages that are acknowledged after the next ones came.
    """

    random: Random
    topic: str = "Popped"
    group: str = "poppers"
    broker: str = "broker-a"
    queues: int = 4
    invisible: int = INVISIBLE
    kept: float = 0.0
    books: Books = field(factory=Books, init=False)
    _end: Event = field(factory=Event, init=False)

    @contextmanager
    def on(self, *ports: int) -> Iterator[Books]:
        """Have them work meanwhile.

        @param ports: Of the master; or of all that may be it, the first one is.
        """
        with Remote(ports[0]) as client:
            answer = client.ask(make_topic(self.topic, self.queues))
            assert not answer.code, answer
        threads = [
            Thread(target=self._sends, args=(ports,)),
            *(Thread(target=self._consumes, args=(ports, share)) for share in (0.7, 0.9)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield self.books
        finally:
            self._end.set()
            for thread in threads:
                thread.join()

    def _sends(self, ports: tuple[int, ...]) -> None:
        """Send until it is enough."""
        number = 0
        for port in cycle(ports):
            if self._end.is_set():
                return
            try:
                with Remote(port) as sender:
                    while not self._end.wait(0.05):
                        for at in range(20):
                            number += 1
                            body = b"%06d" % number
                            if sender.ask(send(self.topic, body, at % self.queues)).code:
                                raise Elsewhere
                            self.books.sent.add(body)
            except (OSError, EOFError, Elsewhere):
                self._end.wait(0.1)

    def _consumes(self, ports: tuple[int, ...], share: float) -> None:
        """Pop, and acknowledge a share of it, until it is enough."""
        kept: list[_Handed] = []
        for port in cycle(ports):
            if self._end.is_set():
                return
            try:
                with Remote(port) as client:
                    while not self._end.is_set():
                        self.consume(client, share, kept=kept)
            except (OSError, EOFError, Elsewhere):
                self._end.wait(0.1)

    def consume(
        self,
        client: Remote,
        share: float,
        invisible: int = 0,
        kept: list[_Handed] | None = None,
    ) -> bool:
        """Pop once, and acknowledge a share of it.

        @param share: Of the rest a part gets another time; nothing is said of the others.
        @param invisible: For how long, if not for as long as usual.
        @param kept: What came before, and is acknowledged later than this.
        @return: Whether there was anything.
        @raise Elsewhere: If this is no master.
        """
        asked, invisible = time.time(), invisible or self.invisible
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
        if answer.code == ResponseCode.NO_PERMISSION:
            raise Elsewhere
        found: list[_Handed] = []
        if not answer.code:
            found = handed_out(answer, self.topic, self.group, self.broker)
        with self.books.lock:
            for body, handle, topic in found:
                self.books.handed[body] += 1
                self.books.unknown.discard(body)
                if self.books.done.get(body, asked) < asked:
                    self.books.wrong.append(f"{body!r}: {topic} {handle}")
        if kept:
            self._acknowledge(client, kept)
            kept.clear()
        acked: list[_Handed] = []
        for body, handle, topic in found:
            choice = self.random.random()
            if kept is not None and choice < self.kept:
                kept.append((body, handle, topic))
            elif choice < share:
                acked.append((body, handle, topic))
            elif choice < share + (1 - share) / 2:
                # A stock broker that is asked within the millisecond of the pop names both check
                # points alike, and takes the ack of the first for both: it loses the message.
                while time.time() * 1000 < handle.pop_time + 1:
                    time.sleep(0.001)
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
        # Of some pops each waits for the answer to the one before.
        size = self.random.choice((1, len(acked) or 1))
        for first in range(0, len(acked), size):
            self._acknowledge(client, acked[first : first + size])
        if not found:
            time.sleep(0.05)
        return bool(found)

    def _acknowledge(self, client: Remote, some: list[_Handed]) -> None:
        """Say together that messages are done with."""
        asked = []
        for _, handle, topic in some:
            request = AckMessageRequest(
                consumer_group=self.group,
                topic=topic,
                queue_id=handle.queue_id,
                handle=str(handle),
                offset=handle.offset,
            )
            asked.append(Command.request(RequestCode.ACK_MESSAGE, request))
        bodies = {body for body, _, _ in some}
        # An ack before this one was not answered, and may be stored.
        maybe_done = bodies & self.books.unknown
        self.books.unknown |= bodies
        answers, now = client.ask_all(asked), time.time()
        numbers = {command.opaque: each for command, each in zip(asked, some, strict=True)}
        for answer in answers:
            body, handle, _ = numbers[answer.opaque]
            if not answer.code and now * 1000 < handle.pop_time + handle.invisible - LATE:
                with self.books.lock:
                    self.books.done.setdefault(body, now)
            elif answer.code in NOTHING_DONE and body not in maybe_done:
                self.books.unknown.discard(body)

    def drain(self, port: int, quiet: float = 0.0) -> None:
        """Acknowledge what is left, until nothing comes for so many seconds, or for longer than
        anything waits.
        """
        last, quiet = time.monotonic(), quiet or 3 * self.invisible / 1000
        with Remote(port) as client:
            while time.monotonic() - last < quiet:
                if self.consume(client, 1.0):
                    last = time.monotonic()
