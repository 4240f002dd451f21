"""Many idle sets on one real etcd: C{python -m lab.bench.etcd_scale [SETS] [SECONDS]}.

Three members a set ask as members of ours do while nothing happens: a keepalive each second, the
set each five, alarms each thirty, and a watch of it all the while.  They are no nodes: what is
measured is etcd.  Each has a connection of its own, and a second one for the watch.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from lab.bench.processes import all_descriptors, processor, processor_seconds
from lab.bench.report import percentile
from lab.harness.etcd import Etcd, etcd
from rmqha.controller.etcd.client import Answer, below, encoded
from rmqha.controller.etcd.etcd_membership import ALARMS_EVERY, INTERVAL
from rmqha.controller.set_watch import LOOK

MEMBERS = 3
TTL = 10
COUNTED = {
    "writes a second": "etcd_server_proposals_committed_total",
    "fsyncs a second": "etcd_disk_wal_fsync_duration_seconds_count",
    "of them, in fsyncs": "etcd_disk_wal_fsync_duration_seconds_sum",
    "elections in etcd, a second": "etcd_server_leader_changes_seen_total",
}
"""What etcd counts itself, by what is told of it a second."""

SETTLE = 10.0
"""Seconds before it is measured."""


def posted(path: str, body: Answer) -> bytes:
    """A request, as bytes."""
    content = json.dumps(body).encode()
    head = f"POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


@define(eq=False)
class Seen:
    """What came of all requests: milliseconds of those that were answered, and failures."""

    latencies: list[float] = field(factory=list)
    failures: Counter[str] = field(factory=Counter)


class Asking(Protocol):
    """One member's requests, one after the other, each as often as is said."""

    transport: Any
    REASON = re.compile(rb'"message":"([^"]*)"')

    def __init__(self, reactor: Any, seen: Seen, requests: dict[bytes, float]) -> None:
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
            self.seen.failures["not sent"] += 1
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
        found = re.search(rb"(?i)content-length: *(\d+)", head)
        if found is not None:
            size = int(found[1])
            whole = len(rest) >= size
        else:
            # In chunks: a keepalive's is one line.
            size = rest.find(b"0\r\n\r\n") + 5
            whole = size > 4
        if not end or not whole:
            return False
        body, self.buffer = rest[:size], rest[size:]
        line = head.partition(b"\r\n")[0]
        if not line.endswith(b"200 OK"):
            said = self.REASON.search(body)
            self.seen.failures[(said[1] if said else line).decode()] += 1
        self.seen.latencies.append(1000 * (self.reactor.seconds() - self.sent.pop(0)))
        return True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """That is a failure, unless it is the end."""
        self.seen.failures["connection ended"] += 1
        for call in self.calls:
            if call.running:
                call.stop()


class Watching(Protocol):
    """One member's watch."""

    transport: Any

    def __init__(self, request: bytes) -> None:
        self.request = request

    def connectionMade(self) -> None:
        self.transport.write(self.request)


def member(one: Etcd, number: int, name: str) -> tuple[dict[bytes, float], bytes]:
    """Register a member, and say what it asks, and its watch."""
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


def measure(one: Etcd, reactor: Any, sets: int, seconds: float) -> dict[str, float]:
    """Run them for a while, and say what there is to say, by name."""
    seen = Seen()
    kept: list[Protocol] = []
    for each in range(sets):
        for number in range(1, MEMBERS + 1):
            requests, watch = member(one, number, f"set-{each}")
            kept += [Asking(reactor, seen, requests), Watching(watch)]
    found: dict[str, float] = {"sets": sets}
    before: dict[str, float] = {}

    def now() -> dict[str, float]:
        return {
            "": time.monotonic(),
            "etcd, % of a core": 100 * processor_seconds(one.pid),
            "its threads wait for one, %": 100 * processor(one.pid, 1),
            "this program, % of a core": 100 * time.process_time(),
            **{name: one.counted(counter) for name, counter in COUNTED.items()},
        }

    def begin() -> None:
        seen.latencies.clear()
        seen.failures.clear()
        before.update(now())

    def end() -> None:
        ended = now()
        span = ended.pop("") - before.pop("")
        found["requests a second"] = len(seen.latencies) / span
        found.update({name: (value - before[name]) / span for name, value in ended.items()})
        found["etcd, MB of memory"] = one.memory() / 1e6
        for name, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0)):
            found[f"{name}, ms"] = percentile(seen.latencies, share)
        found.update(seen.failures)
        reactor.stop()

    # Not all in one moment: that would be a queue of its own.
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", one.port)
    for place, made in enumerate(kept):
        reactor.callLater(SETTLE / 2 * place / len(kept), connectProtocol, endpoint, made)
    reactor.callLater(SETTLE, begin)
    reactor.callLater(SETTLE + seconds, end)
    reactor.run()
    return found


def main(arguments: list[str]) -> int:
    """Measure, and print it."""
    from twisted.internet import reactor

    sets = int(arguments[0]) if arguments else 300
    seconds = float(arguments[1]) if arguments[1:] else 60.0
    needed = 2 * MEMBERS * sets + 100
    with tempfile.TemporaryDirectory(prefix="rmqha-scale-") as folder, all_descriptors() as most:
        if most < needed:
            sys.stderr.write(f"{sets} sets need {needed} descriptors, and {most} are allowed\n")
            return 1
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
