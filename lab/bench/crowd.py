"""Ten thousand clients with nothing to do: what they cost, how fast they are let in, and what
somebody else notices.

They are plain sockets.  Each says once who it is, as every client does (request 34), and waits
for the answer; no more than L{WINDOW} are on their way at a time.
"""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time

from attrs import define, field

from lab.bench.beside import Field
from lab.bench.processes import all_descriptors, memory
from lab.bench.report import Row, compared, limited, spread
from lab.bench.serving import Pair, pairs, turns
from rmqha.store.files.descriptors import open_limit
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

CLIENTS = 10_000
OTHERS = 1000
"""Descriptors left for everything but queues."""

WINDOW = 200

GOAL = 20
"""KiB a connection may cost."""

UNHARMED = 1.25
"""What the others' median may grow to, in parts of what it is without idle clients."""

SENDS = 5000
SETTLE = 3.0
ROUNDS = 3


@define
class Seen:
    """What was seen of one pair, a value a round.

    @ivar each: Bytes of anonymous memory for a connection.
    @ivar accepted: Connections a second.
    @ivar alone: The others' p50 in microseconds, and p99: without idle clients;
        C{meanwhile}: while they come; C{beside}: while they are there.
    """

    each: list[float] = field(factory=list)
    accepted: list[float] = field(factory=list)
    alone: list[tuple[float, float]] = field(factory=list)
    meanwhile: list[tuple[float, float]] = field(factory=list)
    beside: list[tuple[float, float]] = field(factory=list)


class Crowd(threading.Thread):
    """Clients that come, in a thread of their own.

    @ivar rate: Connections a second, when it has ended.
    @ivar error: Why there are fewer than wanted.
    """

    def __init__(self, address: tuple[str, int], count: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.count = count
        self.clients: list[socket.socket] = []
        self.rate = 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        """Connect all clients, some at a time, and measure the rate."""
        begun = time.perf_counter()
        try:
            for first in range(0, self.count, WINDOW):
                self._come(range(first, min(first + WINDOW, self.count)))
        except Exception as error:
            self.error = error
        self.rate = self.count / (time.perf_counter() - begun)

    def _come(self, numbers: range) -> None:
        new = []
        for number in numbers:
            client = socket.create_connection(self.address, 30.0)
            self.clients.append(client)
            new.append(client)
            client.sendall(_heartbeat(number))
        for client in new:
            frames, answers = FrameDecoder(), list[Command]()
            while not answers:
                data = client.recv(4096)
                if not data:
                    raise AssertionError("an idle client's connection was closed")
                answers = frames.receive(data)
            if answers[0].code != 0:
                raise AssertionError(f"a heartbeat was answered {answers[0]}")

    def leave(self) -> None:
        for client in self.clients:
            client.close()


def _heartbeat(number: int) -> bytes:
    says = {
        "clientID": f"127.0.0.1@idle-{number}",
        "producerDataSet": [{"groupName": "idle"}],
        "consumerDataSet": [],
    }
    return encode(Command.request(RequestCode.HEART_BEAT, body=json.dumps(says).encode()))


def run(where: Field, until: float) -> list[Row]:
    """Measure all rows about idle clients.

    @param until: Seconds of the run after which no more rounds begin.
    """
    seen: dict[str, Seen] = {}
    # Who has few files gives clients what it keeps for slaves and queues that are not there.
    with all_descriptors() as most, pairs(where.folder, where.tool, haMaxConnections=16) as both:
        count = min(CLIENTS, most - OTHERS - open_limit(most))
        empty = {}
        for pair in both:
            # Some come and go first: what the first connection makes once is no connection's.
            pair.send(4 * SENDS, 8)
            _leave(_crowd(pair, 100))
            empty[pair.name] = memory(pair.master.pid, "RssAnon")
        for number in range(1 if where.quick else ROUNDS):
            if number and time.monotonic() - where.begun > until:
                break
            for pair in turns(both, number):
                one = seen.setdefault(pair.name, Seen())
                _round(pair, count, empty[pair.name], one)
                print(
                    f"{pair.name}: {one.each[-1] / 1024:.1f} KiB, {one.accepted[-1]:.0f}/s; others'"
                    f" p50 and p99 {one.alone[-1]}, {one.meanwhile[-1]}, {one.beside[-1]} us",
                    flush=True,
                )
    return _rows(count, seen["Ours"], seen["Java"])


def _crowd(pair: Pair, count: int) -> Crowd:
    crowd = Crowd(pair.address, count)
    crowd.start()
    return crowd


def _leave(crowd: Crowd) -> None:
    crowd.join()
    crowd.leave()
    if crowd.error is not None:
        raise crowd.error
    time.sleep(SETTLE)


def _round(pair: Pair, count: int, empty: int, seen: Seen) -> None:
    seen.alone.append(_others(pair, SENDS))
    crowd = _crowd(pair, count)
    try:
        meanwhile = []
        while crowd.is_alive():
            meanwhile.append(_others(pair, 500))
        time.sleep(SETTLE)
        seen.each.append((memory(pair.master.pid, "RssAnon") - empty) / count)
        seen.beside.append(_others(pair, SENDS))
    finally:
        _leave(crowd)
    seen.accepted.append(crowd.rate)
    seen.meanwhile.append(
        (statistics.median(p50 for p50, _ in meanwhile), max(p99 for _, p99 in meanwhile))
    )


def _others(pair: Pair, count: int) -> tuple[float, float]:
    sends = pair.send(count, 1)
    return sends.p50, sends.p99


def _rows(count: int, ours: Seen, java: Seen) -> list[Row]:
    rows = [
        limited(
            f"{count:,} idle client connections, RssAnon of the master for each",
            "KiB",
            [size / 1024 for size in ours.each],
            GOAL,
            beside="stock master " + spread([size / 1024 for size in java.each], "KiB"),
        ),
        compared(
            "the same, accepted and answered a heartbeat while another sends",
            "clients/s",
            ours.accepted,
            java.accepted,
            1.0,
        ),
    ]
    for part, name in ((0, "p50"), (1, "p99")):
        alone, meanwhile, beside = (
            ([times[part] for times in kind(ours)], [times[part] for times in kind(java)])
            for kind in (lambda s: s.alone, lambda s: s.meanwhile, lambda s: s.beside)
        )
        grown = statistics.median(beside[0]) / statistics.median(alone[0])
        rows.append(
            Row(
                what=f"one other producer's {name}: beside them, as they come, without them",
                ours="; ".join(spread(times[0], "us") for times in (beside, meanwhile, alone)),
                beside="stock pair "
                + "; ".join(spread(times[1], "us") for times in (beside, meanwhile, alone)),
                ratio=f"{grown:.2f} of without",
                goal=f"<= {UNHARMED:g}x" if part == 0 else "",
                met=grown <= UNHARMED if part == 0 else None,
            )
        )
    return rows
