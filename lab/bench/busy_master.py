"""What a master's processor pays for other kinds of writes than plain ones, for its metrics, for
clients that speak TLS, and for those that sign.

Requests go over one connection each, in turn, as many on their way as a producer with so many
threads has there.  What is told is the master's processor time: writes a second are also the
client's and the machine's.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from attrs import define, evolve, field

from lab.bench.processes import processor
from lab.bench.sends import BODY
from lab.bench.stock import STOCK
from lab.bench.table import Field, Figure, Row, Seen, Turn
from lab.harness.certificates import Authority
from lab.harness.nodes import Node
from lab.harness.remote import SOON, commit, make_topic, send
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import ONEWAY, Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.headers.clients import EndTransactionRequest
from rmqha.wire.remoting.json_body import write
from rmqha.wire.remoting.signature import Credentials


@define(eq=False)
class Connection:
    """A connection to a master that has started.

    @ivar tls: How it is encrypted, if it is.
    """

    node: Node
    tls: ssl.SSLContext | None = field(default=None, kw_only=True)
    _socket: socket.socket = field(init=False)
    _decoder: FrameDecoder = field(factory=FrameDecoder, init=False)

    def __attrs_post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.node.port), SOON)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            self._socket = self.tls.wrap_socket(self._socket)

    def close(self) -> None:
        self._socket.close()

    def ask(self, requests: Sequence[bytes], window: int, step: int = 1) -> None:
        """Send requests, some at a time, and wait for the answers, all of which have to be good.

        @param window: How many are on their way.
        @param step: How many of them are answered together, by one.
        """
        self._socket.sendall(b"".join(requests[:window]))
        at, left = window, len(requests) // step
        while left:
            next_ones: list[bytes] = []
            for answer in self._decoder.receive(self._socket.recv(1 << 20)):
                if answer.code:
                    raise AssertionError(f"answered {answer.code}: {answer.remark}")
                left -= 1
                next_ones += self.after(answer)
                next_ones += requests[at : at + step]
                at += step
            self._socket.sendall(b"".join(next_ones))

    def after(self, answer: Command) -> Sequence[bytes]:
        """What an answer is followed by."""
        return ()

    def cost(self, requests: Sequence[bytes], window: int, step: int = 1) -> float:
        """@return: Microseconds of the master's processor time for each."""
        used = processor(self.node.pid)
        self.ask(requests, window, step)
        return 1e6 * (processor(self.node.pid) - used) / len(requests)


TOPIC, QUEUES = "BenchBusy", 8

WINDOW = 32
"""Requests on their way: threads of a producer."""

BATCH = 32
"""Messages of a batch."""

_PROPERTIES = {"KEYS": "order 17", "UNIQ_KEY": "7F0000010000000000000000000000AA", "WAIT": "true"}


def _sent(number: int, body: bytes = bytes(BODY), **more: str) -> Command:
    told = "\x02".join(f"{name}\x01{value}" for name, value in (_PROPERTIES | more).items())
    command = send(TOPIC, body, number % QUEUES)
    command.ext |= {"i": told}
    command.opaque = number
    return command


def _half(number: int) -> Command:
    command = _sent(number, TRAN_MSG="true", PGROUP="bench")
    command.ext["f"] = "4"
    return command


def batch_of(bodies: Sequence[bytes], properties: Sequence[bytes]) -> bytes:
    """The body of a batch."""
    return b"".join(
        (22 + len(body) + len(told)).to_bytes(4, "big")
        + bytes(12)
        + len(body).to_bytes(4, "big")
        + body
        + len(told).to_bytes(2, "big")
        + told
        for body, told in zip(bodies, properties, strict=True)
    )


def _batch(number: int) -> Command:
    told = "\x02".join(f"{name}\x01{value}" for name, value in _PROPERTIES.items()).encode()
    body = batch_of([bytes(BODY)] * BATCH, [told] * BATCH)
    command = evolve(_sent(number, body), code=RequestCode.SEND_BATCH_MESSAGE)
    command.ext |= {"m": "true", "i": "WAIT\x01true\x02"}
    return command


def _oneway(number: int) -> Command:
    """One that is answered behind so many that are not: so it is known when they have come."""
    return evolve(_sent(number), flag=ONEWAY if number % WINDOW else 0)


KINDS: dict[str, tuple[Callable[[int], Command], float, int]] = {
    "plain": (_sent, 1.0, 1),
    "transactions": (_half, 5.0, 2),
    "batches": (_batch, 20.0, 16),
    "delayed": (partial(_sent, DELAY="5"), 1.2, 1),
    "timers": (partial(_sent, TIMER_DELAY_SEC="3600"), 1.5, 1),
    "one-way": (_oneway, 1.0, 1),
}
"""How one of each kind is made, what it costs at most, of a plain message, and how many times fewer
are sent, as they take longer."""


@define(eq=False)
class Producer(Connection):
    """Sends one kind."""

    kind: str

    def round(self, count: int) -> Seen:
        make, _, fewer = KINDS[self.kind]
        numbers = range(count // fewer // WINDOW * WINDOW)
        made = [self.framed(make(number)) for number in numbers]
        cost = self.cost(made, WINDOW, WINDOW if self.kind == "one-way" else 1)
        time.sleep(0.05)  # its messages are dispatched, and flushed
        return {"cost": cost}

    def framed(self, command: Command) -> bytes:
        return encode(command)

    def after(self, answer: Command) -> Sequence[bytes]:
        if self.kind != "transactions":
            return ()
        header = EndTransactionRequest(
            producer_group="bench",
            tran_state_table_offset=int(answer.ext["queueOffset"]),
            commit_log_offset=int(answer.ext["msgId"][-16:], 16),
            commit_or_rollback=8,
            msg_id=_PROPERTIES["UNIQ_KEY"],
        )
        return [encode(Command(code=RequestCode.END_TRANSACTION, flag=ONEWAY, ext=to_ext(header)))]


ACCOUNT = Credentials("operator", "change-this-secret")


class Signing(Producer):
    """Says who it is."""

    def framed(self, command: Command) -> bytes:
        ACCOUNT.sign(command)
        return encode(command)


def _producers(where: Field) -> dict[str, Producer]:
    """Of all kinds, to one SYNC pair."""
    master = Node(where.folder, "master", **STOCK, brokerRole="SYNC_MASTER").start()
    slave = Node(where.folder, "slave", master=master.address, **STOCK).start()
    slave.until_upstream("in-sync")
    opened = where.opened.enter_context
    found = {kind: opened(closing(Producer(master, kind))) for kind in KINDS}
    found["plain"].ask([encode(make_topic(TOPIC, QUEUES))], 1)
    return found


def _masters(
    where: Field, masters: Mapping[str, tuple[Node, Callable[[Node, str], Producer]]]
) -> dict[str, Producer]:
    """Masters without slaves, and a producer for each."""
    found = {
        name: where.opened.enter_context(closing(make(node.start(), "plain")))
        for name, (node, make) in masters.items()
    }
    for each in found.values():
        each.ask([each.framed(make_topic(TOPIC, QUEUES))], 1)
    return found


def _counting(where: Field) -> dict[str, Producer]:
    """A master as it is, and one that counts nothing (L{lab.bench.without_child})."""
    plain = Node(where.folder, "master", "without", **STOCK)
    plain.program = ("-m", "lab.bench.without_child")
    counts = Node(where.folder, "master", "with", **STOCK)
    return _masters(where, {"with metrics": (counts, Producer), "without": (plain, Producer)})


def _guarded(where: Field) -> dict[str, Producer]:
    """A master that takes TLS alone, one whose clients sign, and one as it is."""
    folder = where.folder
    authority = Authority(folder)
    key, certificate = authority.certificate("node")
    tls: dict[str, Any] = {"tlsMode": "enforcing", "tlsKeyPath": key, "tlsCertPath": certificate}
    context = ssl.create_default_context(cafile=authority.root)
    context.check_hostname = False
    accounts = folder / "plain_acl.yml"
    said = {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key, "admin": True}
    accounts.write_text(json.dumps({"accounts": [said]}), encoding="utf-8")  # which is YAML, too
    signs = Node(folder, "master", "signs", **STOCK, aclEnable="true", aclPlainFile=accounts)
    masters: dict[str, tuple[Node, Callable[[Node, str], Producer]]] = {
        "TLS": (Node(folder, "master", "tls", **STOCK, **tls), partial(Producer, tls=context)),
        "access control": (signs, Signing),
        "neither": (Node(folder, "master", "neither", **STOCK), Producer),
    }
    return _masters(where, masters)


SCRAPED, PIECE = 1000, 250
"""Topics of a master that is scraped, and requests that are sent together to fill it."""

REST = 2.5
"""Seconds after which a broker has looked up what a scrape left out."""


def _places() -> list[tuple[str, int]]:
    return [(f"BenchTopic{n:04d}", queue) for n in range(SCRAPED) for queue in range(QUEUES)]


def _scraped(where: Field) -> dict[str, Connection]:
    """A master with many topics."""
    node = Node(where.folder, "master").start()
    load = where.opened.enter_context(closing(Connection(node)))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    load.ask([encode(Command(code=code, body=write(GroupConfig(group_name="g0"))))], 1)
    load.ask([encode(make_topic(topic, QUEUES)) for topic, at in _places() if not at], PIECE)
    for _ in range(7):
        load.ask([encode(send(topic, bytes(100), at)) for topic, at in _places()], PIECE)
    time.sleep(REST)  # until all of it is in the queues
    return {"ours": load}


def _scrape(load: Connection, turn: Turn) -> Seen:
    """Milliseconds of a scrape when all groups have moved in all queues, which is dearest: when the
    oldest message of each was stored has to be looked up again; and of one when none has.
    """
    offset = turn.number + 1
    load.ask([encode(commit(topic, "g0", offset, at)) for topic, at in _places()], PIECE)
    found = {}
    for name in ("moved", "unmoved"):
        begun = time.perf_counter()
        url = f"http://127.0.0.1:{load.node.admin_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read()
        found[name] = 1000 * (time.perf_counter() - begun)
        told = text.count(b"rocketmq_consumer_lag_messages{")
        if told < SCRAPED:
            raise AssertionError(f"{told} groups are told, of {SCRAPED}")
        time.sleep(REST)
    return found


_WHAT = f"a scrape of {SCRAPED:,} topics of {QUEUES} queues, each read by a group"


def _cost(what: str, goal: float, ours: str = "", beside: str = "") -> Figure:
    """Of L{Producer.round}."""
    return Figure("cost", what, "us", goal, most=True, ours=ours, beside=beside, quiet=True)


ROWS = [
    Row(
        name="metrics",
        set_up=_counting,
        load=lambda producer, turn: producer.round(4096 if turn.number < 0 else 16_384),
        figures=[_cost(f"a message of {BODY} bytes, the master's processor", 1.01)],
        rounds=75,
    ),
    Row(
        name="guarded",
        set_up=_guarded,
        load=lambda producer, turn: producer.round(4096 if turn.quick else 16_384),
        figures=[
            _cost(
                f"a message of {BODY} bytes with {what}, the master's processor",
                1.15,
                what,
                "neither",
            )
            for what in ("TLS", "access control")
        ],
        rounds=12,
    ),
    Row(
        name="metrics",
        set_up=_scraped,
        load=_scrape,
        figures=[
            Figure("moved", f"{_WHAT}, that moved in all of them", "ms", 50, most=True),
            Figure("unmoved", f"{_WHAT}, that did not move", "ms", 50, most=True),
        ],
    ),
    Row(
        name="kinds",
        set_up=_producers,
        load=lambda producer, turn: producer.round(4096 if turn.quick else 16_384),
        figures=[
            _cost(
                f"{kind}, {BODY} bytes, SYNC, {WINDOW} on their way: the master's processor, each",
                goal,
                kind,
                "plain",
            )
            for kind, (_, goal, _) in KINDS.items()
            if kind != "plain"
        ],
        rounds=12,
    ),
]
