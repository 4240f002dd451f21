"""
A mixed set under load whose master changes again and again, in whatever way.

How often is C{RMQHA_INTEROP_ROUNDS}, 10 by default; C{RMQHA_SEED} has the same ways chosen again.
"""

from __future__ import annotations

import os
import random
import sys
import time

from lab.harness.nodes import until
from lab.stock.brokers import BOOT, Broker, Sends
from lab.stock.controllers import answered
from rmqha.controller.coordinator import SetState
from tests.interop.cases import rounds
from tests.interop.member_cases import Member
from tests.interop.test_member_controllers import ControllerTestCase

SWITCHES = rounds(3, 10)

SIZE = 200
"""Bytes of a body."""

WAYS = ("killed (-9)", "killed (-9)", "stopped (SIGTERM)", "replaced by an operator")
"""What becomes of the master."""


class SwitchTests(ControllerTestCase):
    """
    Two members of ours and a Java member.
    """

    roles = "two members of ours, a Java member"
    full_only = ("test_switches",)
    timeout = 7200  # type: ignore[assignment]

    def decided(self) -> SetState | None:
        """
        What the controllers have.
        """
        return answered(self.asking.current())

    def master_of(self, members: dict[int, Member]) -> Member | None:
        """
        Who is master, if it runs.
        """
        state = self.decided()
        found = None
        if state is not None and state.master is not None:
            found = members.get(int(state.master.address.rpartition(":")[2]))
        return found if found is not None and found.running else None

    def until_whole(self, members: dict[int, Member]) -> None:
        """
        Wait until one is master and all are in sync.
        """

        def whole() -> bool:
            state = self.decided()
            return (
                state is not None
                and len(state.in_sync) == len(members)
                and self.master_of(members) is not None
            )

        tell = "\n".join(member.tail() for member in members.values())
        until(whole, "all in sync", BOOT, tell=lambda: tell, pause=0.2)

    def load_of(self, number: int) -> Sends:
        """
        Small messages to a topic of their own: all that is read is kept, by the helper too.
        """
        topic = f"{self.topic}-{number}"
        load = self.tool.put(1_000_000, topic, size=SIZE, threads=2)
        self.until_some(load.sent, 200)
        self.commit()
        self.seen.update(self.tool.pull(topic))
        return load

    def switch(self, members: dict[int, Member], way: str, chance: random.Random) -> Member:
        """
        Have another one be master.

        @return: Who was.
        """
        master = self.master_of(members)
        assert master is not None, "the set is whole"
        if way == WAYS[-1]:
            state = self.decided()
            assert state is not None and state.master is not None, "it is whole"
            self.elect(self.asking, chance.choice(sorted(state.in_sync - {state.master.id})))
        elif way == WAYS[0]:
            master.kill9()
        elif isinstance(master, Broker):
            master.stop()
        else:
            master.term()
        until(
            lambda: self.master_of(members) not in (None, master),
            f"another master than {master.name}",
            BOOT,
            tell=master.tail,
            pause=0.1,
        )
        return master

    def test_switches(self) -> None:
        """
        Nothing acknowledged is missing, all logs are equal, and no offset is lowered.
        """
        seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")
        chance = random.Random(f"{seed} {self.id()}")
        self.decider = self.controller()
        self.asking = self.group(self.decider)
        nodes = [self.ours(f"ours-{number}", self.decider) for number in (1, 2)]
        java = self.java("java", self.decider)
        members: dict[int, Member] = {each.port: each for each in (*nodes, java)}
        with self.scenario("3 join"):
            for each in members.values():
                each.start()
            self.until_whole(members)
            # What the group commits has to be there.
            self.assertEqual({"SEND_OK": 1000}, self.tool.put(1000, self.topic).wait())
        with self.scenario(f"the master is killed, stopped or replaced under load: {SWITCHES}x"):
            for number in range(SWITCHES):
                way = chance.choice(WAYS)
                begun = time.monotonic()
                load = self.load_of(number)
                master = self.switch(members, way, chance)
                self.until_again(load)
                self.enough(load)
                if not master.running:
                    master.start()
                self.until_whole(members)
                took = time.monotonic() - begun
                sys.stdout.write(f"{number + 1}: {master.name} is {way}: {took:.1f} s\n")
                sys.stdout.flush()
        if self.leader(nodes) is None:
            self.elect(self.asking, self.id_of(nodes[0]))
        self.assert_settled(nodes, java)
