"""What tests of sets share in which both kinds of members are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.stock.brokers import BOOT, SMALL, Broker, Sends
from lab.stock.controllers import StockController, answered
from rmqha.controller.coordinator import SetState
from rmqha.controller.identity import IdentityFiles
from tests.interop.linked_cases import told
from tests.interop.member_cases import Member
from tests.interop.scenario_cases import ScenarioTestCase
from tests.support import client

KEPT = "SEND_OK"
ALONE = "SLAVE_NOT_AVAILABLE"

ASKED_AGAIN = 45.0
"""Seconds after which a Java member has asked a name server once more, and connected."""


SLOW_CUT = 180.0
"""Seconds in which a set with a Java member goes on: that one learns its master's HA address within
30 s, may wait 90 s for its own dispatch before it cuts its log, and then has to connect."""


class MixedTestCase(ScenarioTestCase):
    """A set of one kind or of both: members of ours, and Java's.

    @ivar last: Who joins last.
    @ivar announced: The ports that name servers tell of in place of members' HA ports, by name.
    """

    first: Member
    last: Member

    def setUp(self) -> None:
        super().setUp()
        self.announced: dict[str, int] = {}

    def begin_as(self, letters: str, **keys: Any) -> None:
        """Start a set told in letters, the first master first: C{O} for ours, C{J} for Java's."""
        counts = letters.count("O"), letters.count("J")
        self.begin(*counts, java_first=letters.startswith("J"), **keys)

    def begin(
        self, ours: int = 1, javas: int = 1, *, java_first: bool = False, **keys: Any
    ) -> None:
        """Start a set, whose first master is of one kind or the other."""
        decider = self.decider = self.controller()
        self.asked = self.group(*self.deciders())
        self.nodes = [self.ours(f"ours-{number + 1}", decider, **keys) for number in range(ours)]
        self.javas = [self.java(f"java-{number + 1}", decider) for number in range(javas)]
        self.patience = SLOW_CUT if javas else BOOT
        with self.scenario(f"{ours} of ours and {javas} of Java's join"):
            members = sorted(self.members, key=lambda each: isinstance(each, Node) is java_first)
            self.first, self.last = members[0], members[-1]
            self.first.start()
            self.until_master(lambda master: True)
            for member in members[1:]:
                member.start()
            self.until_whole()
            taken = ALONE if members == self.nodes[:1] else KEPT
            # Name servers may know it a little later.
            until(
                lambda: self.tool.put(1, self.topic).wait() == {taken: 1},
                "a write is taken",
                BOOT,
                tell=self.tool.tail,
                pause=0.2,
            )
            self.until_known(self.topic)

    def until_known(self, *topics: str) -> None:
        """Wait until Java members know topics: they copy them once in ten seconds."""
        for java in self.javas:
            until(
                lambda java=java: {*topics} <= {*client.topic_names(java.client_address)},
                f"{java.name} knows {topics}",
                BOOT,
                tell=java.tail,
                pause=0.5,
            )

    def deciders(self) -> list[StockController]:
        return [self.decider]

    @property
    def members(self) -> list[Member]:
        return [*self.nodes, *self.javas]

    def stop(self, member: Member) -> None:
        if isinstance(member, Broker):
            member.stop()
        else:
            member.term()

    def announce(self, member: Member, replication: Proxy) -> None:
        """Have a name server tell of a network in place of the HA port of a member that is not
        started: Java members ask there, whatever their master says.
        """
        names = self.proxy(("127.0.0.1", self.tool.names_port))
        names.swap("up", f"127.0.0.1:{member.address[1]}", told(replication))
        member.keys["namesrvAddr"] = told(names)
        self.announced[member.name] = replication.address[1]

    # --- what the controller says ---------------------------------------------------------

    def number_of(self, member: Member) -> int:
        """A member's controller id, also while it is not there."""
        known = self.known(member)
        assert known is not None, "it has joined once"
        return known

    def known(self, member: Member) -> int | None:
        """The same; C{None} if it has none yet."""
        cluster, name = str(SMALL["brokerClusterName"]), str(SMALL["brokerName"])
        found = IdentityFiles.of(member.root, cluster, name).read()
        return None if found is None else found.id

    def decision(self) -> SetState | None:
        """What is decided of the set; C{None} if nobody says."""
        found: SetState | None = answered(self.asked.current())
        return found

    def epoch(self) -> int:
        """How often one was elected, for the controllers."""
        state = self.decision()
        assert state is not None, "the set is known"
        return state.master_epoch

    def until_master(self, wanted: Callable[[Member], bool]) -> Member:
        """Wait until one is elected that is wanted, and leads."""

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
        """Wait until all members are in the SyncStateSet; L{strays} are restarted."""

        def whole() -> bool:
            state = self.decision()
            return state is not None and state.in_sync == {*map(self.known, self.members)}

        if len(self.javas) > 1:
            with suppress(AssertionError):
                until(whole, "all by themselves", ASKED_AGAIN, pause=0.2)
            for stray in self.strays():
                sys.stdout.write(f"{stray.name} stays with who led before: restarted\n")
                stray.stop()
                stray.start()
        until(whole, "all are in the SyncStateSet", self.patience, tell=self.tell, pause=0.2)

    def strays(self) -> list[Broker]:
        """Java members that are connected to a Java member that leads no more.  Asked too soon, a
        name server tells them its HA port; 5.3.3 serves there as a slave too, and leaves no
        connection for a master that is told later.
        """
        state = self.decision()
        if state is None or state.master is None:
            return []
        there = {java: self.known(java) for java in self.javas if java.running}
        wrong = {
            port
            for java, number in there.items()
            if number != state.master.id
            for port in (java.address[1], self.announced.get(java.name, 0))
        }
        return [
            java
            for java, number in there.items()
            if number not in state.in_sync and wrong & java.connected_to()
        ]

    def until_only(self, *wanted: Member) -> None:
        """Wait until these are in the SyncStateSet, and nobody else."""
        ids = {self.number_of(member) for member in wanted}

        def so() -> bool:
            state = self.decision()
            return state is not None and state.in_sync == ids

        until(so, f"{ids} in the SyncStateSet", BOOT, tell=self.tell, pause=0.2)

    def lead(self, wanted: Member) -> None:
        """Have a member be master of a set that is whole."""
        self.until_whole()
        if self.until_master(lambda master: True) is not wanted:
            self.elect(self.asked, self.number_of(wanted))
            self.until_master(lambda master: master is wanted)
            self.until_whole()

    def tell(self) -> str:
        """What may help where something did not come true."""
        return "\n".join((str(self.decision()), *map(self._told_by, self.members)))

    def _told_by(self, member: Member) -> str:
        said = ""
        if isinstance(member, Node):
            with suppress(OSError):
                status = member.status()
                said = str({name: status.get(name) for name in ("controller", "upstream")})
        return f"{member.name} {said}\n{member.tail(60)}"

    def follower(self) -> Node:
        """A member of ours that follows: Java's, where there is one."""
        if self.javas:
            self.lead(self.javas[0])
        master = self.until_master(lambda master: True)
        return next(node for node in self.nodes if node is not master)

    def end_with_ours(self) -> None:
        """All holds in the end, when a member of ours leads."""
        if self.leader(self.nodes) is None:
            self.elect(self.asked, self.number_of(self.nodes[0]))
        self.until_whole()
        self.assert_settled(self.nodes, *self.javas)

    # --- what befalls it --------------------------------------------------------------------

    def replaced(self, what: str, end: Callable[[Member], object], count: int) -> None:
        """Whoever is master is ended under load, again and again, and comes back."""
        for _ in range(count):
            self.back_again(self.until_master(lambda master: True), what, end)
        self.end_with_ours()

    def back_again(self, master: Member, what: str, end: Callable[[Member], object]) -> None:
        """A master is ended under load, another one leads, and it comes back."""
        self.until_whole()
        with self.scenario(f"{master.name} leads and {what} under load, and comes back"):
            load = self.load()
            with self.succeeded(master, load):
                end(master)
            self.until_answered(load, [each for each in self.members if each is not master])
            master.start()
            self.healed(load)

    @contextmanager
    def succeeded(self, master: Member, load: Sends, *, counts: bool = False) -> Iterator[None]:
        """What befalls a master within ends with another one, in a newer epoch, whose log has at
        once all that was acknowledged.

        @param counts: Whether the old one may be in the SyncStateSet then.
        """
        epoch = self.epoch()
        yield
        least = self.least_end(load)
        successor = self.until_master(lambda member: member is not master)
        self.assertGreater(self.end_of(successor), least, f"{successor.name} cut off what counts")
        state = self.decision()
        assert state is not None, "somebody was elected"
        self.assertGreater(state.master_epoch, epoch)
        if not counts:
            self.assertNotIn(self.number_of(master), state.in_sync)

    def until_answered(self, load: Sends, there: list[Member]) -> None:
        """Wait until writes are answered as they have to be while only these are there: two of ours
        acknowledge, one of ours does not.  Java's is late, and a Java master acknowledges alone.
        """
        if all(isinstance(member, Node) for member in there):
            if len(there) > 1:
                self.until_again(load)
            else:
                self.until_refused(load)

    def healed(self, load: Sends) -> None:
        """All are in the set again, and writes are acknowledged."""
        self.until_whole()
        self.until_again(load)
        self.enough(load)
