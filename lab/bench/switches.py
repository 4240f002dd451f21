"""What clients notice when the master of a set is another one: a set of three stock members and one
of three of ours, each with a stock controller, in turn.

A master is killed, and one is cut off from everybody; by SIGSTOP, which looks the same from outside
as a network that passes nothing on.  In between nobody writes, and the members' processor time is
taken.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field, frozen

from lab.bench.catchup import STOCK
from lab.bench.idle import SETTLE
from lab.bench.processes import Span
from lab.bench.report import Row, spread
from lab.bench.set_load import SetLoad
from lab.bench.stock import Peer, Stock
from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT
from lab.stock.controllers import (
    StockController,
    answered,
    asking,
    controllers,
    java_member,
    our_member,
)
from rmqha.controller.coordinator import SetState
from rmqha.controller.group import ControllerGroup

MEMBERS = 3

WARM = 2000
"""Acknowledged writes before anything is done to a set."""

LONGEST = 120.0
"""Seconds that any change may take."""

Member = Node | Stock


@frozen(kw_only=True)
class Switch:
    """What was measured of one set, in seconds; of an idle member, percent of a core.

    @ivar killed: From a kill -9 of the master until a write was answered with success.
    @ivar whole: From there until all that live were in the SyncStateSet again.
    @ivar repeated: Consumption before the kill that the successor does not know of.
    @ivar parted: From a cut of the master until a write was answered with success.
    @ivar idle: The most that a member used that is not the master.
    """

    killed: float
    whole: float
    repeated: float
    parted: float
    idle: float


@define(eq=False)
class RunningSet:
    """One set, and the controller that elects its master."""

    folder: Path
    tool: Peer
    kind: str
    controller: StockController = field(init=False)
    members: list[Member] = field(init=False, factory=list)
    asking: ControllerGroup = field(init=False)

    def start(self) -> None:
        """Start all, and wait until all are in sync."""
        self.folder.mkdir(parents=True)
        (self.controller,) = group = controllers(self.folder, 1)
        self.controller.launch()
        self.asking = asking(group)
        tool = self.tool
        for number in range(MEMBERS):
            name = f"member-{number}"
            member: Member
            if self.kind == "Java":
                member = java_member(self.folder, tool, name, group, Stock)
            else:
                member = our_member(self.folder, tool, name, group, **STOCK)
            self.members.append(member)
        self.until_answers()
        for member in self.members:
            member.launch()
            # One by one: whoever comes first is the first master.
            self.until_in_sync(self.members.index(member) + 1)

    def stop(self) -> None:
        """End all, and delete what they stored."""
        for process in (*self.members, self.controller):
            process.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)

    def state(self) -> SetState | None:
        return answered(self.asking.current())

    def master(self) -> Member:
        state = self.state()
        assert state is not None and state.master is not None, "there is one"
        port = int(state.master.address.rpartition(":")[2])
        return next(member for member in self.members if member.port == port)

    def until_answers(self) -> None:
        until(
            lambda: answered(self.asking.find_leader()),
            "the controller leads",
            BOOT,
            tell=self.controller.tail,
            pause=0.1,
        )

    def until_in_sync(self, count: int) -> None:
        """Wait until so many are in the SyncStateSet."""

        def whole() -> bool:
            state = self.state()
            return state is not None and len(state.in_sync) == count

        until(whole, f"{count} in sync", LONGEST, tell=self.members[-1].tail, pause=0.02)


def run(folder: Path, tool: Peer, rounds: int, stop: float, idle: float) -> list[Row]:
    """Measure the rows about switches.

    @param stop: When to begin no more rounds, in the monotonic clock's seconds.
    @param idle: How long idle members are watched, in seconds.
    """
    found: dict[str, list[Switch]] = {"Java": [], "ours": []}
    for number in range(rounds):
        if number and time.monotonic() > stop:
            break
        for kind, switches in list(found.items())[:: -1 if number % 2 else 1]:
            switches.append(_round(folder / f"{kind}-{number}", tool, kind, idle))
            print(f"{kind}: {switches[-1]}", flush=True)
    return _rows(found)


def _round(folder: Path, tool: Peer, kind: str, idle: float) -> Switch:
    members = RunningSet(folder, tool, kind)
    try:
        members.start()
        used = _idle(members, idle)
        killed, whole, repeated = _kill(members)
        return Switch(
            killed=killed, whole=whole, repeated=repeated, parted=_part(members), idle=used
        )
    finally:
        members.stop()


def _loaded(members: RunningSet) -> SetLoad:
    load = SetLoad([member.port for member in members.members])
    load.start()
    until(lambda: len(load.acks) > WARM, "writes are acknowledged", LONGEST)
    return load


def _idle(members: RunningSet, seconds: float) -> float:
    """The most that a member uses that is not the master, in percent of a core."""
    load = _loaded(members)
    load.stop()
    time.sleep(SETTLE)
    master = members.master()
    rest = {member.name: member.pid for member in members.members if member is not master}
    span = Span(rest)
    time.sleep(seconds)
    return 100 * max(span.used().values()) / seconds


def _kill(members: RunningSet) -> tuple[float, float, float]:
    load = _loaded(members)
    try:
        killed = members.master()
        at = time.monotonic()
        killed.kill9()
        first = _first(load, at, killed)
        members.until_in_sync(MEMBERS - 1)
        whole = max(0.0, time.monotonic() - first)
        repeated = load.repeated(members.master().port, at)
    finally:
        load.stop()
    killed.launch()
    members.until_in_sync(MEMBERS)
    return first - at, whole, repeated


def _part(members: RunningSet) -> float:
    load = _loaded(members)
    try:
        parted = members.master()
        at = time.monotonic()
        parted.freeze()
        return _first(load, at, parted) - at
    finally:
        load.stop()


def _first(load: SetLoad, at: float, before: Member) -> float:
    """When a write was acknowledged by another master."""
    found: float = until(
        lambda: load.after(at, before.port), "acknowledged by another", LONGEST, tell=before.tail
    )
    return found


def _rows(found: Mapping[str, Sequence[Switch]]) -> list[Row]:
    limits = (
        ("killed", "kill -9 of the master: until a write is answered 0", "s", 1.0, True),
        ("whole", "from there until all that live are in sync", "s", 2.0, False),
        ("repeated", "consumption repeated after it", "s", 1.0, False),
        ("parted", "master cut off from everybody: until a write is answered 0", "s", 20.0, False),
        ("idle", "processor of one core, an idle member", "%", 1.0, False),
    )
    return [
        _row(
            what,
            unit,
            *([getattr(one, name) for one in found[kind]] for kind in ("ours", "Java")),
            most=most,
            not_later=not_later,
        )
        for name, what, unit, most, not_later in limits
    ]


def _row(
    what: str,
    unit: str,
    ours: Sequence[float],
    java: Sequence[float],
    *,
    most: float,
    not_later: bool,
) -> Row:
    """@param most: What the median of ours may be.
    @param not_later: Whether it may not be more than that of the stock set either.
    """
    middle, stock = statistics.median(ours), statistics.median(java)
    return Row(
        what=what,
        ours=spread(ours, unit),
        beside=f"stock set {spread(java, unit)}",
        ratio=f"{middle / stock:.2f}" if stock else "-",
        goal=f"<= {most:g} {unit}" + (", and not later" if not_later else ""),
        met=middle <= most and not (not_later and middle > stock),
    )
