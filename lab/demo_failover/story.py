"""What happens in the demo, told as it happens: with whatever coordinates the set."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Protocol

from attrs import frozen
from rich.console import Console

from lab.demo_failover.pauses import AckTimes
from lab.demo_failover.report import Kill, Report
from lab.harness import compare_stores
from lab.harness.demo_end import DemoStory
from lab.harness.nodes import Node, Process, until
from lab.stock.brokers import BOOT, Broker, Sent
from rmqha.store.offline.client_ledger import Acknowledged

TOPIC = "Failover"
KILLS = 3
BETWEEN = 200
"""Acknowledged messages from one kill to the next, at least."""
SIZE = 300
"""Bytes of a body: all that is written while nobody else is in sync has to be caught up with."""

STYLES = {
    "controllers": "yellow",
    "etcd": "yellow",
    "set": "cyan",
    "client": "green",
    "demo": "bold",
}

Member = Node | Broker


@frozen(kw_only=True)
class Seen:
    """A set, as its coordinator tells it; the master is the port of one that lives, 0 for none."""

    master: int
    epoch: int
    in_sync: int
    alive: int


class Load(Protocol):
    """A client that sends, and what it was told so far."""

    sent: list[Sent]


class Story(DemoStory):
    """The story, and what is not as it should be in it."""

    coordinator: str
    styles, width = STYLES, 13

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.kills: list[Kill] = []
        self.members: dict[str, Member] = {}
        self.sent: Sequence[Sent] = ()

    @property
    def processes(self) -> Collection[Process]:  # type: ignore[override]
        return self.members.values()

    @property
    def ledger(self) -> list[Acknowledged]:
        acked = [sent for sent in self.sent if sent.status == "SEND_OK"]
        return [one for sent in acked for one in sent.acknowledged]

    def run(self) -> bool:
        """Tell it, and say whether all was well."""
        self.start()
        self.until_whole()
        self.say("set", f"{', '.join(self.members)} are in sync, {self.master()} is master")
        load = self.sends()
        self.sent = load.sent
        acks = AckTimes(load.sent, time.monotonic)
        for _ in range(KILLS):
            self.kill(acks)
        self.enough()
        acks.look()
        self.say("client", f"{len(self.sent)} messages sent, {acks.count} acknowledged")
        self.end()
        self.report()
        return not self.wrong

    # --- what is different with each coordinator --------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Start the coordinator, and the members."""

    @abstractmethod
    def sends(self) -> Load:
        """Have a client send, one message after the other."""

    @abstractmethod
    def enough(self) -> None:
        """End that, and wait until it has ended."""

    @abstractmethod
    def seen(self) -> Seen | None:
        """Ask the coordinator; C{None} if it does not answer."""

    @abstractmethod
    def tail(self) -> str:
        """What tells why it does not go on."""

    # --- the parts ----------------------------------------------------------------------

    def kill(self, acks: AckTimes) -> None:
        """Kill whoever is master while it is written to, and start it again."""
        self.until_acked(acks, BETWEEN)
        killed = self.master()
        at = time.monotonic()
        self.members[killed].kill9()
        self.say("set", f"{killed}, the master, is killed (-9)")

        def replaced() -> bool:
            acks.look()
            return self.master() not in ("", killed)

        until(replaced, "another master", BOOT, tell=self.tail)
        successor = self.master()
        self.say(self.coordinator, f"{successor} is elected, in master epoch {self.epoch()}")
        self.until_acked(acks, BETWEEN)
        kill = Kill(name=killed, successor=successor, pause=acks.longest(at))
        self.kills.append(kill)
        self.say("client", f"acknowledged again; the pause was {kill.pause:.1f} s")
        self.members[killed].launch()
        self.until_whole(acks)
        self.say("set", f"{killed} is back and in sync")

    def end(self) -> None:
        """Wait until all have the same, and stop them, the master last."""
        until(self.same, "the same log", BOOT, tell=self.tail, pause=0.2)
        last = self.master()
        for name, member in sorted(self.members.items(), key=lambda one: one[0] == last):
            if isinstance(member, Broker):
                member.stop()
            else:
                if member.term() not in (0, -15):
                    self.wrong.append(f"{name} did not stop cleanly")
                self.wrong += [f"{name} logged {line}" for line in member.complaints()]
        self.say("demo", "all members are stopped")

    def report(self) -> None:
        stores = {
            name: member.settings()
            if isinstance(member, Broker)
            else compare_stores.settings_of(member.root)
            for name, member in self.members.items()
        }
        report = Report(stores, self.sent, self.kills)
        self.wrong += report.wrong
        self.show(report.tables)
        for what in self.wrong:
            self.console.print(f"[bold red]wrong: {what}[/]", highlight=False)

    # --- what the coordinator says --------------------------------------------------------

    def master(self) -> str:
        """The name of the master; empty for none that lives."""
        seen = self.seen()
        port = 0 if seen is None else seen.master
        found = [name for name, one in self.members.items() if one.port == port and one.running]
        return found[0] if found else ""

    def epoch(self) -> int:
        seen = self.seen()
        return 0 if seen is None else seen.epoch

    def until_whole(self, acks: AckTimes | None = None) -> None:
        """Wait until all are alive and in sync."""

        def whole() -> bool:
            if acks is not None:
                acks.look()
            seen = self.seen()
            return seen is not None and seen.in_sync == seen.alive == len(self.members)

        until(whole, "all members in sync", BOOT, tell=self.tail, pause=0.05)

    def until_acked(self, acks: AckTimes, count: int) -> None:
        """Wait until so many more are acknowledged."""
        acks.look()
        wanted = acks.count + count

        def enough() -> bool:
            acks.look()
            return acks.count >= wanted

        until(enough, f"{count} more acknowledged", BOOT, tell=self.tail)

    def same(self) -> bool:
        """Whether all logs end at one place, and all of it is confirmed."""
        ends = set()
        for member in self.members.values():
            if isinstance(member, Broker):
                ends.add(member.max_offset())
            else:
                status = member.status()
                ends |= {status["maxOffset"], status["confirmedOffset"]}
        return len(ends) == 1
