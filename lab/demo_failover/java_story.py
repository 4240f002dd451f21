"""The story with RocketMQ's own controllers, a Java member and a Java client."""

from __future__ import annotations

from lab.demo_failover.story import SIZE, TOPIC, Load, Seen, Story
from lab.harness.nodes import until
from lab.stock.brokers import BOOT, SMALL, Tool
from lab.stock.controllers import VERSION, answered, asking, controllers, java_member, our_member
from rmqha.controller.overview import look, members

NAME = str(SMALL["brokerName"])


class JavaStory(Story):
    """Three controllers, a Java broker and two members of ours."""

    coordinator = "controllers"

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

    def sends(self) -> Load:
        self.load = self.tool.put(10_000_000, TOPIC, size=SIZE, threads=1)
        self.say("client", f"a Java {VERSION} producer sends, one message after the other")
        return self.load

    def enough(self) -> None:
        self.tool.enough()
        self.load.wait()

    def tail(self) -> str:
        return self.tool.tail()

    def leader(self) -> str:
        """Which controller leads; empty for none."""
        return answered(self.asking.find_leader()) or ""

    def seen(self) -> Seen | None:
        overview = answered(look(self.asking, [NAME]))
        found = None if overview is None else overview.sets.get(NAME)
        if found is None:
            return None
        return Seen(
            master=int((found.master_address or ":0").rpartition(":")[2]),
            epoch=found.master_epoch,
            in_sync=len(found.in_sync_replicas),
            alive=sum(each.alive for each in members(found)),
        )
