"""SYNC writes of a stock producer through a set of three members of ours, with a controller and,
where that is installed, with etcd; through a classic pair of ours, and through a set of three stock
members, in turn.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from lab.bench.catchup import STOCK
from lab.bench.report import Row, compared
from lab.bench.sends import BODY, MANY, PATIENCE, WARM_MESSAGES, Round, Target, of
from lab.bench.stock import Peer, Stock
from lab.bench.switches import MEMBERS, RunningSet
from lab.harness.etcd import PROGRAM, etcd
from lab.harness.nodes import Node, until
from lab.stock.brokers import SMALL
from lab.stock.controllers import our_member

GOAL = 0.9
"""Of the classic pair's speed."""

SET, PAIR, JAVA = "our set of three", "our classic pair", "a stock set of three"
ETCD = "our set of three with etcd"


@frozen
class Contender:
    """Who is written to.

    @ivar stop: Ends it, and deletes what it stored.
    """

    master: Node | Stock
    slave: Node | Stock
    stop: Callable[[], None]


def run(folder: Path, tool: Peer, writes: int, rounds: int, stop: float) -> list[Row]:
    """Measure the rows about a set's SYNC writes.

    @param writes: Writes of one producer in one round.
    @param stop: When to begin no more rounds, in the monotonic clock's seconds.
    """
    found: dict[str, list[Round]] = {SET: [], PAIR: [], JAVA: []}
    rows = [(SET, PAIR), (SET, JAVA)]
    if PROGRAM is not None:
        found[ETCD] = []
        rows.append((ETCD, PAIR))
    for number in range(rounds):
        if number and time.monotonic() > stop:
            break
        for name, seen in list(found.items())[:: -1 if number % 2 else 1]:
            contender = _started(folder / f"{name.replace(' ', '-')}-{number}", tool, name)
            try:
                seen.append(_round(contender, tool, f"BenchSet{number}", writes))
            finally:
                contender.stop()
            print(f"{name}: {seen[-1]}", flush=True)
    return [
        compared(
            what if ours == SET else f"{what}, with etcd",
            unit,
            *of(path, found[ours], found[name]),
            None if name == JAVA else 1 / GOAL if most else GOAL,
            most=most,
            beside=name,
        )
        for path, what, unit, most in (
            ("one.p50", f"SYNC writes, one producer, {BODY} bytes, p50", "us", True),
            ("many.rate", f"SYNC writes, {MANY} producers", "writes/s", False),
        )
        for ours, name in rows
    ]


def _started(folder: Path, tool: Peer, name: str) -> Contender:
    if name == PAIR:
        return _pair(folder, tool)
    if name == ETCD:
        return _with_etcd(folder, tool)
    members = RunningSet(folder, tool, "ours" if name == SET else "Java")
    try:
        members.start()
    except BaseException:
        members.stop()
        raise
    master = members.master()
    slave = next(member for member in members.members if member is not master)
    return Contender(master, slave, members.stop)


def _pair(folder: Path, tool: Peer) -> Contender:
    keys = {**STOCK, "brokerName": SMALL["brokerName"], "namesrvAddr": tool.names}
    keys |= {"brokerClusterName": SMALL["brokerClusterName"], "brokerIP1": "127.0.0.1"}
    master = Node(folder, "master", **{**keys, "brokerRole": "SYNC_MASTER"})
    slave = Node(folder, "slave", master=master.address, **keys)

    def stop() -> None:
        for node in (slave, master):
            node.kill9()
        shutil.rmtree(folder, ignore_errors=True)

    try:
        master.start()
        slave.start()
    except BaseException:
        stop()
        raise
    return Contender(master, slave, stop)


def _with_etcd(folder: Path, tool: Peer) -> Contender:
    folder.mkdir(parents=True)
    (one,) = etcd(folder, 1)
    keys: dict[str, Any] = {**STOCK, "controllerType": "etcd", "etcdAddresses": one.address}
    members = [our_member(folder, tool, f"member-{n}", (), **keys) for n in range(MEMBERS)]

    def stop() -> None:
        for process in (*members, one):
            process.kill9()
        shutil.rmtree(folder, ignore_errors=True)

    def in_sync(status: dict[str, Any], count: int) -> bool:
        led = status["controller"]["set"]
        return led is not None and len(led["syncStateSet"]) == count

    try:
        for count, member in enumerate(members, 1):
            member.start()
            # One by one: whoever comes first is the master.
            members[0].until(lambda status, n=count: in_sync(status, n), f"{count} in sync")
    except BaseException:
        stop()
        raise
    return Contender(members[0], members[1], stop)


def _round(contender: Contender, tool: Peer, topic: str, writes: int) -> Round:
    target = Target(tool=tool, topic=topic, master=contender.master, slave=contender.slave)
    target.make(f"127.0.0.1:{contender.master.port}", queues=8)
    until(target.answered, "writes are acknowledged", PATIENCE, tell=target.slave.tail, pause=0.2)
    target.warm_up(min(WARM_MESSAGES, 30 * writes))
    many = target.send(2 * writes, MANY)
    target.send(writes // 4, 1)
    return Round(target.send(writes, 1), many)
