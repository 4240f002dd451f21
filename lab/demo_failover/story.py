"""What happens in the demo, told as it happens."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from rich.console import Console

from lab.demo_failover.pauses import AckTimes
from lab.demo_failover.report import Kill, Report
from lab.harness import compare_stores
from lab.harness.nodes import Folder, Node, Process, until
from lab.stock.brokers import BOOT, SMALL, Broker, Sends, Sent, Tool
from lab.stock.controllers import VERSION, answered, asking, controllers, java_member, our_member
from rmqha.controller.overview import look, members
from rmqha.store.offline.client_ledger import Acknowledged
from rmqha.wire.remoting.bodies.controller import ReplicasInfo

NAME = str(SMALL["brokerName"])
TOPIC = "Failover"
KILLS = 3
BETWEEN = 200
"""Acknowledged messages from one kill to the next, at least."""
SIZE = 300
"""Bytes of a body: all that is written while nobody else is in sync has to be caught up with."""

STYLES = {"controllers": "yellow", "set": "cyan", "client": "green", "demo": "bold"}

Member = Node | Broker


class Story:
    """The story, and what it says.

    @ivar wrong: What is not as it should be.
    @ivar kills: So far.
    @ivar members: By name.
    @ivar sent: What the client was told so far.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begun = time.monotonic()
        self.wrong: list[str] = []
        self.kills: list[Kill] = []
        self.folder = Folder("rmqha-demo-")
        self.members: dict[str, Member] = {}
        self.sent: Sequence[Sent] = ()

    def say(self, who: str, text: str) -> None:
        now = time.monotonic() - self.begun
        self.console.print(
            f"[dim]{now:5.1f} s[/dim]  [{STYLES[who]}]{who:<13}[/]{text}", highlight=False
        )

    @property
    def processes(self) -> Collection[Process]:
        return self.members.values()

    @property
    def ledger(self) -> list[Acknowledged]:
        acked = [sent for sent in self.sent if sent.status == "SEND_OK"]
        return [one for sent in acked for one in sent.acknowledged]

    def run(self) -> bool:
        """Tell it.

        @return: Whether all was well.
        """
        self.start()
        load = self.tool.put(10_000_000, TOPIC, size=SIZE, threads=1)
        self.sent = load.sent
        acks = AckTimes(load.sent, time.monotonic)
        self.say("client", f"a Java {VERSION} producer sends, one message after the other")
        for _ in range(KILLS):
            self.kill(acks)
        self.tool.enough()
        load.wait()
        self.say("client", f"{len(load.sent)} messages sent, {len(load.acked)} acknowledged")
        self.end()
        self.report(load)
        return not self.wrong

    # --- the parts ----------------------------------------------------------------------

    def start(self) -> None:
        self.tool = Tool(self.folder.path, VERSION).start()
        group = controllers(self.folder.path, 3)
        for each in group:
            each.launch()
        self.asking = asking(group)
        until(self.leader, "a controller leads", BOOT, tell=group[0].tail, pause=0.2)
        self.say("controllers", f"three of RocketMQ {VERSION}; {self.leader()} leads")
        java = java_member(self.folder.path, self.tool, "java", group)
        ours = [our_member(self.folder.path, self.tool, f"ours-{n}", group) for n in (1, 2)]
        self.members = {each.name: each for each in (java, *ours)}
        for member in self.members.values():
            member.launch()
        self.until_whole()
        self.say("set", f"{', '.join(self.members)} are in sync, {self.master()} is master")

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

        until(replaced, "another master", BOOT, tell=self.tool.tail)
        successor = self.master()
        self.say("controllers", f"{successor} is elected, in master epoch {self.epoch()}")
        self.until_acked(acks, BETWEEN)
        kill = Kill(name=killed, successor=successor, pause=acks.longest(at))
        self.kills.append(kill)
        self.say("client", f"acknowledged again; the pause was {kill.pause:.1f} s")
        self.members[killed].launch()
        self.until_whole(acks)
        self.say("set", f"{killed} is back and in sync")

    def end(self) -> None:
        """Wait until all have the same, and stop them, the master last."""
        until(self.same, "the same log", BOOT, tell=self.tool.tail, pause=0.2)
        last = self.master()
        for name, member in sorted(self.members.items(), key=lambda one: one[0] == last):
            if isinstance(member, Broker):
                member.stop()
            else:
                if member.term() not in (0, -15):
                    self.wrong.append(f"{name} did not stop cleanly")
                self.wrong += [f"{name} logged {line}" for line in member.complaints()]
        self.say("demo", "all members are stopped")

    def report(self, load: Sends) -> None:
        stores = {
            name: member.settings()
            if isinstance(member, Broker)
            else compare_stores.settings_of(member.root)
            for name, member in self.members.items()
        }
        report = Report(stores, load.sent, self.kills)
        self.wrong += report.wrong
        self.console.print()
        for table in report.tables:
            self.console.print(table)
        for what in self.wrong:
            self.console.print(f"[bold red]wrong: {what}[/]", highlight=False)

    # --- what the controllers say ---------------------------------------------------------

    def leader(self) -> str:
        """Which controller leads; empty for none."""
        return answered(self.asking.find_leader()) or ""

    def seen(self) -> ReplicasInfo | None:
        overview = answered(look(self.asking, [NAME]))
        return None if overview is None else overview.sets.get(NAME)

    def master(self) -> str:
        """The name of the master; empty for none that lives."""
        seen = self.seen()
        if seen is None or not seen.master_address:
            return ""
        port = int(seen.master_address.rpartition(":")[2])
        found = [name for name, one in self.members.items() if one.port == port and one.running]
        return found[0] if found else ""

    def epoch(self) -> int:
        seen = self.seen()
        return 0 if seen is None else seen.master_epoch

    def until_whole(self, acks: AckTimes | None = None) -> None:
        """Wait until all are alive and in sync."""

        def whole() -> bool:
            if acks is not None:
                acks.look()
            seen = self.seen()
            return (
                seen is not None
                and len(seen.in_sync_replicas) == len(self.members)
                and all(each.alive for each in members(seen))
            )

        until(whole, "all members in sync", BOOT, tell=self.tool.tail, pause=0.05)

    def until_acked(self, acks: AckTimes, count: int) -> None:
        """Wait until so many more are acknowledged."""
        acks.look()
        wanted = acks.count + count

        def enough() -> bool:
            acks.look()
            return acks.count >= wanted

        until(enough, f"{count} more acknowledged", BOOT, tell=self.tool.tail)

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
