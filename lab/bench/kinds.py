"""What other kinds of writes cost a master beside plain ones: transactions (half message, end
one-way), batches, delayed, timer and one-way messages, in turn on one connection each of one SYNC
pair.

As many are on their way as a producer with so many threads has there.  What is told is the master's
processor time, because writes a second are also the client's and the machine's; other work of the
machine makes a round dearer and never cheaper, so the quiet rounds are compared
(L{lab.bench.busy_master}).
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from attrs import define, evolve, field

from lab.bench.busy_master import BODY, processor
from lab.bench.catchup import STOCK
from lab.bench.report import Row, spread
from lab.harness.nodes import Node
from lab.harness.remote import SOON, make_topic, send
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import ONEWAY, Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.headers.clients import EndTransactionRequest

TOPIC, QUEUES, GROUP = "BenchKinds", 8, "bench"

WINDOW = 32
"""Requests on their way: threads of a producer."""

BATCH = 32
"""Messages of a batch."""

GOALS = {"transactions": 5.0, "batches": 20.0, "delayed": 1.2, "timers": 1.5, "one-way": 1.0}
"""The most that one of a kind costs, of a plain message."""

_BODY = b"x" * BODY
_PROPERTIES = {"KEYS": "order 17", "UNIQ_KEY": "7F0000010000000000000000000000AA", "WAIT": "true"}


def _sent(number: int, body: bytes = _BODY, **more: str) -> Command:
    told = "\x02".join(f"{name}\x01{value}" for name, value in (_PROPERTIES | more).items())
    command = send(TOPIC, body, number % QUEUES)
    command.ext |= {"i": told}
    command.opaque = number
    return command


def _half(number: int) -> bytes:
    command = _sent(number, TRAN_MSG="true", PGROUP=GROUP)
    command.ext["f"] = "4"
    return encode(command)


def _batch(number: int) -> bytes:
    told = "\x02".join(f"{name}\x01{value}" for name, value in _PROPERTIES.items()).encode()
    size = 22 + BODY + len(told)
    one = b"".join(
        (
            size.to_bytes(4, "big"),
            bytes(12),
            BODY.to_bytes(4, "big"),
            _BODY,
            len(told).to_bytes(2, "big"),
            told,
        )
    )
    command = evolve(_sent(number, one * BATCH), code=RequestCode.SEND_BATCH_MESSAGE)
    command.ext |= {"m": "true", "i": "WAIT\x01true\x02"}
    return encode(command)


def _oneway(number: int) -> bytes:
    """One that is answered behind so many that are not: so it is known when they have come."""
    if number % WINDOW == 0:
        return encode(_sent(number))
    return encode(evolve(_sent(number), flag=ONEWAY))


def _end(answer: Command) -> bytes:
    header = EndTransactionRequest(
        producer_group=GROUP,
        tran_state_table_offset=int(answer.ext["queueOffset"]),
        commit_log_offset=int(answer.ext["msgId"][-16:], 16),
        commit_or_rollback=8,
        msg_id=_PROPERTIES["UNIQ_KEY"],
    )
    return encode(Command(code=RequestCode.END_TRANSACTION, flag=ONEWAY, ext=to_ext(header)))


KINDS: dict[str, Callable[[int], bytes]] = {
    "plain": lambda number: encode(_sent(number)),
    "transactions": _half,
    "batches": _batch,
    "delayed": lambda number: encode(_sent(number, DELAY="5")),
    "timers": lambda number: encode(_sent(number, TIMER_DELAY_SEC="3600")),
    "one-way": _oneway,
}


@define(eq=False)
class Producer:
    """One connection, on which one kind is sent.

    @ivar rates: Writes a second, of each round.
    @ivar costs: Microseconds of the master's processor time a write, of each round.
    """

    kind: str
    master: Node
    rates: list[float] = field(factory=list, init=False)
    costs: list[float] = field(factory=list, init=False)
    _socket: socket.socket = field(init=False)
    _decoder: FrameDecoder = field(factory=FrameDecoder, init=False)

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(("127.0.0.1", self.master.port), SOON)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def round(self, count: int, *, kept: bool = True) -> None:
        """Send so many.

        @param kept: Whether this is a round that counts.
        """
        made = [KINDS[self.kind](number) for number in range(count)]
        begun, used = time.perf_counter(), processor(self.master.pid)
        self._send(made)
        took, cost = time.perf_counter() - begun, processor(self.master.pid) - used
        if kept:
            self.rates.append(count / took)
            self.costs.append(1e6 * cost / count)

    def _send(self, made: list[bytes]) -> None:
        ends, step = self.kind == "transactions", WINDOW if self.kind == "one-way" else 1
        self._socket.sendall(b"".join(made[:WINDOW]))
        at, left = WINDOW, len(made) // step
        while left:
            next_ones = []
            for answer in self._decoder.receive(self._socket.recv(1 << 20)):
                if answer.code:
                    raise AssertionError(f"answered {answer.code}: {answer.remark}")
                left -= 1
                if ends:
                    next_ones.append(_end(answer))
                next_ones += made[at : at + step]
                at += step
            self._socket.sendall(b"".join(next_ones))


def run(folder: Path, count: int, rounds: int) -> list[Row]:
    """Measure the rows about kinds of writes.

    @param count: Plain writes of a round; of others fewer, as they take longer.
    """
    master = Node(folder / "m", "master", **STOCK, brokerRole="SYNC_MASTER")
    slave = Node(folder / "s", "slave", master=master.address, **STOCK)
    try:
        master.start()
        slave.start()
        slave.until_upstream("in-sync")
        producers = [Producer(kind, master) for kind in KINDS]
        for producer in producers:
            producer.__enter__()
        producers[0]._socket.sendall(encode(make_topic(TOPIC, QUEUES)))
        producers[0]._socket.recv(1 << 16)
        counts = [_count(producer.kind, count) for producer in producers]
        for number in range(-1, rounds):
            # In either order: what runs later finds a warmer machine.
            for producer, many in list(zip(producers, counts, strict=True))[
                :: 1 - 2 * (number % 2)
            ]:
                producer.round(many, kept=number >= 0)
                time.sleep(0.05)  # its messages are dispatched, and flushed
        for producer in producers:
            producer.__exit__()
        return _rows(producers)
    finally:
        slave.kill9()
        master.kill9()


def _count(kind: str, count: int) -> int:
    return count // {"batches": 16, "transactions": 2}.get(kind, 1) // WINDOW * WINDOW


def _rows(producers: Sequence[Producer]) -> list[Row]:
    plain, *others = producers
    base = _quiet(plain.costs)
    rows = [
        Row(
            what=f"a plain message of {BODY} bytes, SYNC, {WINDOW} on their way: the master's "
            "processor time",
            ours=f"{base:.1f} us in quiet rounds; {spread(plain.rates, '/s')}",
        )
    ]
    for other in others:
        cost = _quiet(other.costs)
        name = f"batches of {BATCH}" if other.kind == "batches" else other.kind
        rows.append(
            Row(
                what=f"the same, {name}",
                ours=f"{cost:.1f} us each; {spread(other.rates, '/s')}",
                beside=f"a plain message {base:.1f} us",
                ratio=f"{cost / base:.2f}",
                goal=f"<= {GOALS[other.kind]:g}x",
                met=cost / base <= GOALS[other.kind],
            )
        )
    return rows


def _quiet(costs: list[float]) -> float:
    """What a quarter of the rounds does not exceed."""
    return statistics.quantiles(costs, n=4)[0]
