"""Many idle sets on one real etcd: C{python -m lab.bench.etcd_scale [SETS] [SECONDS]}.

Three members a set ask as members of ours do while nothing happens: a keepalive each second, the
set each five, alarms each thirty, and a watch of it all the while.  They are no nodes: what is
measured is etcd.  Each has a connection of its own, and a second one for the watch.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from lab.harness.etcd import Etcd, etcd
from rmqha.controller.etcd.client import Answer, below, encoded
from rmqha.controller.etcd.etcd_membership import ALARMS_EVERY, INTERVAL
from rmqha.controller.set_watch import LOOK

MEMBERS = 3
TTL = 10
COUNTED = (
    "etcd_server_proposals_committed_total",
    "etcd_disk_wal_fsync_duration_seconds_count",
    "etcd_disk_wal_fsync_duration_seconds_sum",
    "etcd_server_leader_changes_seen_total",
)
"""What etcd counts itself, that is told."""

SETTLE = 10.0
"""Seconds before it is measured."""


def posted(path: str, body: Answer) -> bytes:
    """A request, as bytes."""
    content = json.dumps(body).encode()
    head = f"POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


@define(eq=False)
class Seen:
    """What came of all requests.

    @ivar latencies: Of those that were answered, in seconds.
    @ivar skipped: How many were not sent, as the one before was not answered.
    @ivar failures: Answers that are none, by what was said.
    """

    latencies: list[float] = field(factory=list)
    skipped: int = 0
    failures: Counter[str] = field(factory=Counter)


class Asking(Protocol):
    """One member's requests, one after the other.

    @ivar requests: What is asked, and each how many seconds.
    """

    REASON = re.compile(rb'"message":"([^"]*)"')

    def __init__(self, reactor: IReactorTime, seen: Seen, requests: dict[bytes, float]) -> None:
        self.reactor, self.seen, self.requests = reactor, seen, requests
        self.calls: list[LoopingCall] = []
        self.sent: list[float] = []
        self.buffer = b""

    def connectionMade(self) -> None:
        """Begin each at a moment of its own."""
        for request, seconds in self.requests.items():
            call = LoopingCall(self.ask, request)
            call.clock = self.reactor
            self.calls.append(call)
            self.reactor.callLater(random.uniform(0, seconds), call.start, seconds)

    def ask(self, request: bytes) -> None:
        """Send one behind what is under way."""
        if len(self.sent) > 1:
            self.seen.skipped += 1
            return
        self.sent.append(self.reactor.seconds())
        self.transport.write(request)

    def dataReceived(self, data: bytes) -> None:
        """See how long it took."""
        self.buffer += data
        while self._answer():
            pass

    def _answer(self) -> bool:
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return False
        lines = head.lower().split(b"\r\n")
        sizes = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
        if sizes:
            if len(rest) < sizes[0]:
                return False
            self.buffer = rest[sizes[0] :]
        else:
            # In chunks: a keepalive's is one line.
            _, end, self.buffer = rest.partition(b"0\r\n\r\n")
            if not end:
                self.buffer = head + b"\r\n\r\n" + rest
                return False
        if not lines[0].endswith(b"200 ok"):
            said = self.REASON.search(rest)
            self.seen.failures[(said[1] if said else lines[0]).decode()] += 1
        self.seen.latencies.append(self.reactor.seconds() - self.sent.pop(0))
        return True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """That is a failure, unless it is the end."""
        self.seen.failures["connection ended"] += 1
        for call in self.calls:
            if call.running:
                call.stop()


class Watching(Protocol):
    """One member's watch."""

    def __init__(self, request: bytes) -> None:
        self.request = request

    def connectionMade(self) -> None:
        """Begin."""
        self.transport.write(self.request)


class Made(ClientFactory):
    """Makes one of them."""

    noisy = False

    def __init__(self, make: Callable[[], Protocol]) -> None:
        self.make = make

    def buildProtocol(self, addr: Any) -> Protocol:
        return self.make()


def member(one: Etcd, number: int, name: str) -> tuple[dict[bytes, float], bytes]:
    """Register a member.

    @return: What it asks, and its watch.
    """
    prefix = f"/rmqha/scale/{name}/"
    lease = one.ask("lease/grant", TTL=str(TTL))["ID"]
    value = {"token": "0" * 32, "address": f"10.0.0.{number}:10911"}
    puts: dict[str, tuple[Answer, Answer]] = {
        f"ids/{number}": ({**value, "run": 1}, {}),
        f"live/{number}": ({**value, "vote": None}, {"lease": lease}),
        "set": ({"master": 1, "masterEpoch": 1, "inSync": [1, 2, 3], "setEpoch": 3}, {}),
    }
    for key, (content, more) in puts.items():
        one.ask("kv/put", key=encoded(prefix + key), value=encoded(json.dumps(content)), **more)
    asked = {
        posted("lease/keepalive", {"ID": lease}): INTERVAL,
        posted("kv/range", below(prefix)): LOOK,
        posted("maintenance/alarm", {"action": "GET"}): ALARMS_EVERY,
    }
    return asked, posted("watch", {"create_request": below(prefix)})


def waited(pid: int) -> float:
    """How long the threads of a process could have run, and had no core, in seconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[1]) for each in threads) / 1e9


def measure(one: Etcd, reactor: Any, sets: int, seconds: float) -> dict[str, float]:
    """Run them for a while.

    @return: What there is to say, by name.
    """
    seen, kept = Seen(), []
    for each in range(sets):
        for number in range(1, MEMBERS + 1):
            requests, watch = member(one, number, f"set-{each}")

            def asking(requests: dict[bytes, float] = requests) -> Asking:
                return Asking(reactor, seen, requests)

            def watching(watch: bytes = watch) -> Watching:
                return Watching(watch)

            kept += [Made(asking), Made(watching)]
    found: dict[str, float] = {}
    before: list[tuple[float, ...]] = []

    def now() -> tuple[float, ...]:
        counted = map(one.counted, COUNTED)
        used = one.processor_time(), waited(one.pid), time.process_time()
        return time.monotonic(), *used, *counted

    def begin() -> None:
        seen.latencies.clear()
        seen.failures.clear()
        seen.skipped = 0
        before.append(now())

    def end() -> None:
        ended = now()
        span, ticks, waiting, own, written, syncs, syncing, elected = (
            after - first for after, first in zip(ended, before[0], strict=True)
        )
        times = sorted(seen.latencies)
        found.update(
            {
                "sets": sets,
                "requests a second": len(times) / span,
                "writes a second": written / span,
                "ms a fsync of its log": 1000 * syncing / max(1.0, syncs),
                "elections in etcd": elected,
                "etcd, % of a core": 100 * ticks / os.sysconf("SC_CLK_TCK") / span,
                "its threads wait for one, %": 100 * waiting / span,
                "etcd, MB of memory": one.memory() / 1e6,
                "median, ms": 1000 * times[len(times) // 2],
                "p99, ms": 1000 * times[len(times) * 99 // 100],
                "longest, ms": 1000 * times[-1],
                "this program, % of a core": 100 * own / span,
                "not sent": seen.skipped,
                **seen.failures,
            }
        )
        reactor.stop()

    # Not all in one moment: that would be a queue of its own.
    for place, factory in enumerate(kept):
        port = one.port
        reactor.callLater(
            SETTLE / 2 * place / len(kept), reactor.connectTCP, "127.0.0.1", port, factory
        )
    reactor.callLater(SETTLE, begin)
    reactor.callLater(SETTLE + seconds, end)
    reactor.run()
    return found


def main(arguments: list[str]) -> int:
    """Measure, and print it."""
    from twisted.internet import reactor

    sets = int(arguments[0]) if arguments else 300
    seconds = float(arguments[1]) if arguments[1:] else 60.0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * MEMBERS * sets + 100
    if hard < needed:
        sys.stderr.write(f"{sets} sets need {needed} descriptors, and {hard} are allowed\n")
        return 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    with tempfile.TemporaryDirectory(prefix="rmqha-scale-") as folder:
        (one,) = etcd(Path(folder), 1)
        try:
            found = measure(one, reactor, sets, seconds)
        finally:
            one.kill9()
    for name, value in found.items():
        sys.stdout.write(f"{name:32}{value:10.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
