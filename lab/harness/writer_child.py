"""The child side of L{lab.harness.writer}: a node whose parent says what it writes.

It is twistd's own service tree, made by the same C{makeService} from the same command
line, with a pipe beside it.  For tests of faults it can be told to fall over at a
chosen place, to have a slow or broken disk, or a wrong clock.

Run it as C{python -m lab.harness.writer_child --role master --conf FILE [--die PLACE:COUNT]}.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import define, field
from twisted.application.service import MultiService
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted.python.failure import Failure

from lab.harness import kill_points
from lab.harness.json_child import Commands
from rmqha.errors import MessageIllegal, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.net import lean_reactor
from rmqha.roles import tap
from rmqha.store.files.fsync import FsyncInThread
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message
from rmqha.wire.names import KEYS, UNIQUE_KEY, WAIT

#: Writes begun in one reactor turn, where nothing is waited for.
TURN = 64

#: Seconds between two tries while writes are refused.
REFUSED_PAUSE = 0.02


def body_of(key: str, size: int) -> bytes:
    """A body that tells whose it is, wherever it is cut."""
    line = f"{key} ".encode()
    return (line * (size // len(line) + 1))[:size]


@define(eq=False)
class Burst:
    """One C{put} command: a number of writes, some of them at one time."""

    driven: Driven
    number: int
    first: int
    count: int
    size: int = 1024
    topic: str = "Demo"
    queues: int = 4
    concurrency: int = 1
    wait: bool = True
    rate: float = 0.0
    tell: bool = True
    properties: int = 0
    under_way: int = 0
    statuses: dict[str, int] = field(factory=dict)
    micros: list[int] = field(factory=list)
    begun: float = field(factory=time.perf_counter)
    next: int = field(init=False)
    end: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.next, self.end = self.first, self.first + self.count

    def more(self) -> None:
        """Begin as many writes as may be under way now."""
        begun = 0
        if self.driven.enough:
            self.end = min(self.end, self.next)
        while self.under_way < self.concurrency and self.next < self.end:
            if self.rate:
                due = self.begun + (self.next - self.first) / self.rate
                late = due - time.perf_counter()
                if late > 0:
                    self.driven.reactor.callLater(late, self.more)
                    return
            if begun == TURN:
                self.driven.reactor.callLater(0, self.more)
                return
            begun += 1
            self.next += 1
            if not self.write(self.next - 1):
                self.driven.reactor.callLater(REFUSED_PAUSE, self.more)
                return
        if self.next == self.end and not self.under_way:
            self.next += 1  # once
            seconds = time.perf_counter() - self.begun
            answer = {"statuses": self.statuses, "seconds": seconds, "micros": self.micros}
            self.driven.commands.say(self.number, done=True, answer=answer)

    def write(self, n: int) -> bool:
        """Begin one write, and say whether the store took it."""
        driven = self.driven
        key = f"W{n:012d}"
        properties = encode(
            {
                KEYS: f"k{n % 997:03d}",
                UNIQUE_KEY: key,
                WAIT: str(self.wait).lower(),
                **({"MORE": "p" * self.properties} if self.properties else {}),
            }
        )
        message = Message(
            topic=self.topic,
            queue_id=n % self.queues,
            body=body_of(key, self.size),
            properties=properties,
            born_timestamp=int(time.time() * 1000),
            born_host=("127.0.0.1", 40000),
            store_host=("127.0.0.1", driven.listen_port),
        )
        started = time.perf_counter()
        try:
            result = driven.node.writer.put(message, wait=self.wait)
        except (NotWritable, MessageIllegal, AttributeError) as error:
            self.told(n, key, {"status": "REFUSED", "error": f"{type(error).__name__}: {error}"})
            return False
        self.under_way += 1
        result.addBoth(self.ended, n, key, started)
        return True

    def ended(self, result: PutResult | Failure, n: int, key: str, started: float) -> None:
        micros = int((time.perf_counter() - started) * 1e6)
        self.under_way -= 1
        if isinstance(result, Failure):
            error = f"{result.type.__name__}: {result.getErrorMessage()}"
            self.told(n, key, {"status": "FAILED", "error": error})
        else:
            receipt = result.receipt
            self.micros.append(micros)
            self.told(
                n,
                key,
                {
                    "status": result.status.value,
                    "begin": receipt.begin,
                    "end": receipt.end,
                    "message_id": receipt.message_id,
                    "queue_offset": receipt.queue_offset,
                    "micros": micros,
                },
            )
        # By way of the reactor: answers may come in the middle of `more`.
        if self.under_way == self.concurrency - 1 or self.next >= self.end:
            self.driven.reactor.callLater(0, self.more)

    def told(self, n: int, key: str, what: dict[str, Any]) -> None:
        """Report one write to the parent."""
        status = what["status"]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if self.tell:
            about = {"n": n, "key": key, "topic": self.topic, "queue": n % self.queues}
            self.driven.commands.say(self.number, **about, **what)


class Driven:
    """The node, the pipe, and what can be asked for."""

    def __init__(self, node: Any, reactor: Any) -> None:
        self.node, self.reactor = node, reactor
        self.listen_port = node.settings.broker.listen_port
        self.commands = Commands(
            reactor,
            {
                "put": self.put,
                "enough": self.no_more,
                "stop": self.stop,
                "sync": self.sync,
                "clock": self.clock,
                "lateness": self.lateness,
            },
        )
        self.enough = False
        self.late = 0.0
        self._due = 0.0
        self._watch = LoopingCall(self._look)
        self._watch.clock = reactor

    def put(self, number: int, **what: Any) -> None:
        """Write; every result is told as it comes."""
        self.enough = False
        Burst(self, number, **what).more()

    def no_more(self, number: int) -> str:
        """Begin no write that has not begun."""
        self.enough = True
        return "enough"

    def stop(self, number: int) -> str:
        self.reactor.callLater(0, self.reactor.stop)
        return "stopping"

    def sync(self, number: int, how: str, seconds: float = 0.0, every: int = 1) -> str:
        """Make the disk C{normal}, C{slow}, or C{fail} with EIO at each so-many-th fsync."""
        count = 0

        def sync(fd: int) -> None:
            nonlocal count
            count += 1
            if count % every == 0:
                if how == "slow":
                    time.sleep(seconds)
                elif how == "fail":
                    raise OSError(5, "Input/output error (made up)")
            os.fdatasync(fd)

        self.node.store.flusher.fsync = FsyncInThread(deferToThread, sync)
        return how

    def clock(self, number: int, offset: float) -> float:
        """Set the wall clock of this process, in seconds from the real one."""
        time.time = lambda: _true_time() + offset
        return offset

    def lateness(self, number: int) -> float:
        """How late the reactor was at worst since this was last asked, in seconds."""
        if not self._watch.running:
            self._due = self.reactor.seconds()
            self._watch.start(0.01, now=False)
        late, self.late = self.late, 0.0
        return late

    def _look(self) -> None:
        now = self.reactor.seconds()
        self.late = max(self.late, now - self._due - 0.02)
        self._due = now


_true_time: Callable[[], float] = time.time


def main(arguments: list[str]) -> int:
    """Start the node as twistd does, and listen to the parent."""
    lean_reactor.install()
    from twisted.internet import reactor

    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    places = []
    while arguments and arguments[0] == "--die":
        _, place, *arguments = arguments
        places.append(place)
    options = tap.Options()
    options.parseOptions(arguments)
    node: Any = tap.makeService(options)
    for place in places:
        kill_points.install(place, node, partial(os.kill, os.getpid(), signal.SIGKILL))
    driven = Driven(node, reactor)
    commands = driven.commands
    StandardIO(commands, reactor=reactor)
    whole = MultiService()
    node.setServiceParent(whole)
    node.ready.addCallbacks(
        lambda _: commands.say(None, news="ready"),
        lambda failure: commands.say(None, news="failed", error=failure.getErrorMessage()),
    )
    whole.startService()
    reactor.addSystemEventTrigger("before", "shutdown", whole.stopService)
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
