"""
What tests of sets share in which both kinds of members are.
"""

from __future__ import annotations

from collections.abc import Callable

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, SMALL, Broker
from lab.stock.controllers import answered
from rmqha.controller.coordinator import SetState
from rmqha.controller.identity import IdentityFiles
from tests.interop.member_cases import Member
from tests.interop.scenario_cases import ScenarioTestCase
from tests.support import client

KEPT = "SEND_OK"


class MixedTestCase(ScenarioTestCase):
    """
    A set of both kinds.

    @ivar nodes: Members of ours.
    @ivar javas: Java's.
    """

    def begin(self, ours: int = 1, javas: int = 1, *, java_first: bool = False) -> None:
        """
        Start a set, whose first master is of one kind or the other.
        """
        decider = self.decider = self.controller()
        self.asked = self.group(decider)
        self.nodes = [self.ours(f"ours-{number + 1}", decider) for number in range(ours)]
        self.javas = [self.java(f"java-{number + 1}", decider) for number in range(javas)]
        members: list[Member] = [*self.nodes, *self.javas]
        with self.scenario(f"{ours} of ours and {javas} of Java's join"):
            members.sort(key=lambda each: isinstance(each, Node) is java_first)
            first, *others = members
            first.start()
            self.until_master(lambda master: True)
            for member in others:
                member.start()
            self.until_whole()
            # Name servers may know it a little later.
            until(
                lambda: self.tool.put(1, self.topic).wait() == {KEPT: 1},
                "a write is taken",
                BOOT,
                tell=self.tool.tail,
                pause=0.2,
            )
            # Java members copy what topics there are once in ten seconds; elected before that they
            # would not know this one.
            for java in self.javas:
                until(
                    lambda java=java: self.topic in client.topic_names(java.client_address),
                    f"{java.name} knows the topic",
                    BOOT,
                    tell=java.tail,
                    pause=0.5,
                )

    @property
    def members(self) -> list[Member]:
        """
        All.
        """
        return [*self.nodes, *self.javas]

    def stop(self, member: Member) -> None:
        """
        End one cleanly.
        """
        if isinstance(member, Broker):
            member.stop()
        else:
            member.term()

    # --- what the controller says ---------------------------------------------------------

    def number_of(self, member: Member) -> int:
        """
        A member's controller id, also while it is not there.
        """
        cluster, name = str(SMALL["brokerClusterName"]), str(SMALL["brokerName"])
        known = IdentityFiles.of(member.root, cluster, name).read()
        assert known is not None, "it has joined once"
        return known.id

    def decision(self) -> SetState | None:
        """
        What is decided of the set; C{None} if nobody says.
        """
        found: SetState | None = answered(self.asked.current())
        return found

    def until_master(self, wanted: Callable[[Member], bool]) -> Member:
        """
        Wait until one is elected that is wanted, and leads.
        """

        def elected() -> Member | None:
            state = self.decision()
            if state is None or state.master is None:
                return None
            for member in self.members:
                if not member.running or self.number_of(member) != state.master.id:
                    continue
                if wanted(member) and (isinstance(member, Broker) or self.leader([member])):
                    return member
            return None

        found: Member = until(elected, "another master", BOOT, tell=self.tell, pause=0.2)
        return found

    def until_whole(self) -> None:
        """
        Wait until all members are in the SyncStateSet.
        """

        def whole() -> bool:
            state = self.decision()
            return state is not None and len(state.in_sync) == len(self.members)

        until(whole, "all are in the SyncStateSet", BOOT, tell=self.tell, pause=0.2)

    def tell(self) -> str:
        """
        What may help where something did not come true.
        """
        ours = (f"{each.name}:\n{each.tail()}" for each in self.nodes)
        return "\n".join((str(self.decision()), *ours))

    def end_with_ours(self) -> None:
        """
        All holds in the end, when a member of ours leads.
        """
        if self.leader(self.nodes) is None:
            self.elect(self.asked, self.number_of(self.nodes[0]))
        self.assert_settled(self.nodes, *self.javas)

    # --- what befalls it --------------------------------------------------------------------

    def replaced(self, what: str, end: Callable[[Member], object], count: int) -> None:
        """
        Whoever is master is ended under load, again and again, and comes back.
        """
        for number in range(count):
            master = self.until_master(lambda master: True)
            self.until_whole()
            with self.scenario(f"the master {what} under load: {number + 1}, {master.name}"):
                load = self.load()
                end(master)
                self.until_master(lambda member, gone=master: member is not gone)
                master.start()
                self.until_whole()
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()
