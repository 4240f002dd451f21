"""A mixed set under load whose master changes again and again, in whatever way.

How often is C{RMQHA_INTEROP_ROUNDS}, 10 by default; C{RMQHA_SEED} has the same ways chosen again.
"""

from __future__ import annotations

import os
import random
import sys
import time

from lab.stock.brokers import Sends
from tests.interop.cases import rounds
from tests.interop.member_cases import Member
from tests.interop.mixed_cases import MixedTestCase

SWITCHES = rounds(3, 10)

SIZE = 200
"""Bytes of a body."""

WAYS = ("killed (-9)", "killed (-9)", "stopped (SIGTERM)", "replaced by an operator")
"""What becomes of the master."""


class SwitchTests(MixedTestCase):
    """Two members of ours and a Java member."""

    roles = "two members of ours, a Java member"
    full_only = ("test_switches",)
    timeout = 7200  # type: ignore[assignment]

    def load_of(self, number: int) -> Sends:
        """Small messages to a topic of their own: all that is read is kept, by the helper too."""
        topic = f"{self.topic}-{number}"
        load = self.tool.put(1_000_000, topic, size=SIZE, threads=2)
        self.until_some(load.sent, 200)
        self.commit()
        self.seen.update(self.tool.pull(topic))
        return load

    def switch(self, way: str, chance: random.Random) -> Member:
        """Have another one be master, and return who was."""
        master = self.until_master(lambda member: True)
        if way == WAYS[-1]:
            state = self.decision()
            assert state is not None, "the set is whole"
            others = state.in_sync - {self.number_of(master)}
            self.elect(self.asked, chance.choice(sorted(others)))
        elif way == WAYS[0]:
            master.kill9()
        else:
            self.stop(master)
        self.until_master(lambda member: member is not master)
        return master

    def test_switches(self) -> None:
        """Nothing acknowledged is missing, all logs are equal, and no offset is lowered."""
        seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")
        chance = random.Random(f"{seed} {self.id()}")
        self.begin(ours=2)
        # What the group commits has to be there.
        self.assertEqual({"SEND_OK": 1000}, self.tool.put(1000, self.topic).wait())
        with self.scenario(f"the master is killed, stopped or replaced under load: {SWITCHES}x"):
            for number in range(SWITCHES):
                way = chance.choice(WAYS)
                begun = time.monotonic()
                load = self.load_of(number)
                master = self.switch(way, chance)
                self.until_again(load)
                self.enough(load)
                if not master.running:
                    master.start()
                self.until_whole()
                took = time.monotonic() - begun
                sys.stdout.write(f"{number + 1}: {master.name} is {way}: {took:.1f} s\n")
                sys.stdout.flush()
        self.end_with_ours()
