"""Clients of a set that notice at once when its master is another one: they write, one message
after the other, and commit how far they have read.

Stock clients ask for routes every half a minute; these go to the next member as soon as one does
not answer with success.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from attrs import define, field, frozen

from lab.harness.remote import Remote, commit, progress, send
from rmqha.errors import RmqhaError
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.headers.offsets import OffsetAnswer

THREADS = 4
BODY = b"x" * 1024
TOPIC, GROUP = "BenchSwitch", "BenchReaders"

PATIENCE = 1.0
"""Seconds after which a member that does not answer is left alone."""

PAUSE = 0.01
"""Seconds before the next member is tried."""


@frozen
class Ack:
    """A write that was answered with success.

    @ivar when: In the monotonic clock's seconds.
    @ivar port: Whose client port it was.
    """

    when: float
    port: int


@define(eq=False)
class SetLoad:
    """Writes to whichever member takes them, until it is stopped.

    @ivar ports: The members' client ports.
    @ivar acks: As they came.
    @ivar committed: When each offset was committed, from 1 on, at the first master.
    """

    ports: Sequence[int]
    acks: list[Ack] = field(init=False, factory=list)
    committed: list[float] = field(init=False, factory=list)
    _threads: list[threading.Thread] = field(init=False, factory=list)
    _over: threading.Event = field(init=False, factory=threading.Event)

    def start(self) -> None:
        for queue in range(THREADS):
            thread = threading.Thread(target=self._write, args=(queue,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, queue: int) -> None:
        at = 0
        while not self._over.is_set():
            port = self.ports[at % len(self.ports)]
            with contextlib.suppress(OSError, RmqhaError), Remote(port) as remote:
                while not self._over.is_set() and self._one(remote, port, queue):
                    pass
            at += 1
            self._over.wait(PAUSE)

    def _one(self, remote: Remote, port: int, queue: int) -> bool:
        if remote.ask(send(TOPIC, BODY, queue), PATIENCE).code != ResponseCode.SUCCESS:
            return False
        self.acks.append(Ack(time.monotonic(), port))
        if queue == 0 and port == self.acks[0].port:
            # One reader of one queue, as far as it was written; a successor is told nothing.
            number = len(self.committed) + 1
            if remote.ask(commit(TOPIC, GROUP, number), PATIENCE).code == ResponseCode.SUCCESS:
                self.committed.append(time.monotonic())
        return True

    def after(self, when: float, not_by: int) -> float | None:
        """When a write was acknowledged first after another moment, by another member than one.

        @param not_by: Its client port.
        """
        found = (ack.when for ack in list(self.acks) if ack.when > when and ack.port != not_by)
        return min(found, default=None)

    def repeated(self, port: int, when: float) -> float:
        """How much of the consumption before a moment a member does not know of.

        @param port: The member's client port.
        @return: Seconds.
        """
        with Remote(port) as remote:
            answer = remote.ask(progress(TOPIC, GROUP))
        known = 0
        if answer.code == ResponseCode.SUCCESS:
            known = answer.custom(OffsetAnswer).offset
        before = [each for each in self.committed if each <= when]
        return before[-1] - before[max(known, 1) - 1] if known < len(before) else 0.0
