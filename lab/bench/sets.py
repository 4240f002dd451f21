"""Measure sets of three members beside stock ones, a pair and, where that is installed, with etcd,
and write lab/bench/RESULTS-sets.md: C{python -m lab.bench.sets}, with the options of
L{lab.bench.table}.

All is started anew for each round: nine members at a time would share the processors.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import define, field

from lab.bench.sends import BODY, MANY, WARM_MESSAGES, Target, figures
from lab.bench.serving import QUEUES, ours
from lab.bench.stock import STOCK, Stock
from lab.bench.table import GIB, Bench, Field, Figure, Row, Seen, Turn
from lab.harness.etcd import PROGRAM, etcd
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, send
from lab.stock.brokers import BOOT
from lab.stock.controllers import VERSION, answered, asking, controllers, java_member, our_member
from rmqha.errors import RmqhaError
from rmqha.wire.remoting.codes import ResponseCode

MEMBERS, LEASE = 3, 3
"""Of a set; and seconds of a lease in etcd."""

LONGEST = 120.0
"""Seconds that any change may take."""

SET, PAIR, JAVA = "our set of three", "our classic pair", "a stock set of three"
ETCD = "our set of three with etcd"

Members = Sequence[Node | Stock]
"""The first one leads."""

Contender = tuple[Field, Callable[[Field], Members]]
"""Where its members are, and what starts them."""


def _with_controller(where: Field, *, java: bool) -> Members:
    folder, tool = where.folder, where.tool
    (controller,) = group = controllers(folder, 1)
    members: list[Node | Stock] = []
    asked = asking(group)

    def reached() -> int:
        state = answered(asked.current())
        return 0 if state is None else len(state.in_sync)

    controller.launch()
    controller.until_so(lambda: answered(asked.find_leader()), "it leads", BOOT)
    for number in range(MEMBERS):
        name = f"member-{number}"
        if java:
            members.append(java_member(folder, tool, name, group, Stock))
        else:
            members.append(our_member(folder, tool, name, group, **STOCK))
        # One by one: whoever comes first is the master.
        members[-1].launch()
        members[-1].until_so(lambda: reached() == len(members), "it is in sync", LONGEST)
    return members


def _with_etcd(where: Field) -> Members:
    folder, tool = where.folder, where.tool
    (one,) = etcd(folder, 1)
    keys: dict[str, Any] = {**STOCK, "controllerType": "etcd", "etcdAddresses": one.address}
    keys["etcdLeaseSeconds"] = LEASE
    members: list[Node] = []

    def reached() -> int:
        led = members[0].status()["controller"]["set"]
        return 0 if led is None else len(led["syncStateSet"])

    for number in range(MEMBERS):
        members.append(our_member(folder, tool, f"member-{number}", (), **keys).start())
        members[-1].until_so(lambda: reached() == len(members), "it is in sync", LONGEST)
    return members


def _pair(where: Field) -> Members:
    pair = ours(where.folder, where.tool, True)
    pair.start()
    return [pair.master, pair.slave]


def _contenders(where: Field, *, pair: bool) -> dict[str, Contender]:
    starts: dict[str, Callable[[Field], Members]] = {SET: partial(_with_controller, java=False)}
    starts |= {PAIR: _pair} if pair else {}
    starts[JAVA] = partial(_with_controller, java=True)
    if PROGRAM is not None:
        starts[ETCD] = _with_etcd
    return {name: (where, start) for name, start in starts.items()}


def _write(contender: Contender, turn: Turn) -> Seen:
    """SYNC writes of a stock producer."""
    where, start = contender
    writes = 1000 if turn.quick else 10_000
    with where.cleared():
        master, slave, *_ = start(where)
        topic = f"BenchSet{turn.number}"
        target = Target(tool=where.tool, topic=topic, master=master, slave=slave)
        target.make(f"127.0.0.1:{master.port}", QUEUES)
        return target.sync_writes(writes, WARM_MESSAGES)


THREADS, WARM = 4, 2000
"""Clients that write to a set, and their writes before anything is done to it."""

PATIENCE, PAUSE = 1.0, 0.01
"""Seconds after which a member that does not answer is left alone, and before the next is tried."""


@define(eq=False)
class SetLoad:
    """Clients that go to the next member as soon as one does not answer with success, where stock
    ones ask for routes every half a minute; and when each write was answered so, by which port.
    """

    ports: Sequence[int]
    acks: list[tuple[float, int]] = field(init=False, factory=list)
    _over: threading.Event = field(init=False, factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(n,)) for n in range(THREADS)]
        try:
            for thread in threads:
                thread.start()
            until(lambda: len(self.acks) > WARM, "writes are acknowledged", LONGEST)
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _write(self, queue: int) -> None:
        at = 0
        while not self._over.is_set():
            port = self.ports[at % len(self.ports)]
            with contextlib.suppress(OSError, RmqhaError), Remote(port) as remote:
                while not self._over.is_set():
                    answer = remote.ask(send("BenchSwitch", bytes(BODY), queue), PATIENCE)
                    if answer.code != ResponseCode.SUCCESS:
                        break
                    self.acks.append((time.monotonic(), port))
            at += 1
            self._over.wait(PAUSE)

    def after(self, when: float, not_by: int) -> float | None:
        """When a write was acknowledged first after another moment, by another member than one."""
        found = (ack for ack, port in list(self.acks) if ack > when and port != not_by)
        return min(found, default=None)


def _kill(contender: Contender, turn: Turn) -> Seen:
    where, start = contender
    with where.cleared():
        members = start(where)
        load = SetLoad([member.port for member in members])
        with load.running():
            master, at = members[0], time.monotonic()
            master.kill9()
            found: float = until(
                lambda: load.after(at, master.port), "by another", LONGEST, tell=master.tail
            )
        return {"killed": found - at}


KILLED = "kill -9 of the master until a write is answered 0"

BENCH = Bench(
    name="bench-sets",
    rows=[
        Row(
            name="switches",
            set_up=partial(_contenders, pair=False),
            load=_kill,
            figures=[
                Figure("killed", KILLED, "s"),
                Figure(
                    "killed",
                    f"{KILLED}, with etcd and a lease of {LEASE} s",
                    "s",
                    LEASE + 0.5,
                    most=True,
                    ours=ETCD,
                    beside=None,
                ),
            ],
            warm=0,
            until=900.0,
        ),
        Row(
            name="writes",
            set_up=partial(_contenders, pair=True),
            load=_write,
            figures=[
                figure
                for name, what, goals in (
                    ("many", f"SYNC writes, {MANY} producers", {"rate": 0.9}),
                    ("one", "SYNC writes, one producer", {}),
                )
                for whose, beside, some in (
                    (SET, PAIR, goals),
                    (SET, JAVA, {}),
                    (ETCD, PAIR, goals),
                )
                for figure in figures(
                    name,
                    what if whose == SET else f"{what}, with etcd",
                    ("rate", "p50"),
                    ours=whose,
                    beside=beside,
                    **some,
                )
            ],
            warm=0,
            until=1500.0,
        ),
    ],
    needed=2 * GIB,
    limit=2400.0,
    versions=(VERSION,),
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
