"""Members that die in the middle of a cut or of an election, lose power, or have a wrong clock."""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

from lab.harness.kill_points import STEPS
from lab.harness.nodes import Node, until
from lab.harness.power_cut import cut
from lab.harness.writer import Driver
from lab.stock.brokers import BOOT
from tests.interop import set_cases
from tests.interop.cases import rounds
from tests.interop.scenario_cases import ScenarioTestCase

PROMOTION = ("lead", "lead-epoch", "lead-written", "lead-dispatched", "lead-lets-in", "lead-tables")
"""Where a member dies that is elected."""

KILLED = -9

KEPT = (0.0, 0.5, 0.9)
"""How likely a page stays that nobody waited for: none, some, most."""

ROUNDS = rounds(3, 6)

LONG = 12.0
"""Seconds in which controllers would take a member for dead that they do not hear."""


class FaultPointTests(set_cases.LinkedSetTestCase):
    roles = "two members, of ours and of Java's"
    full_only = ("test_promotion", "test_promotion_after_java", "test_cut", "test_cut_behind_java")

    def ours(self, *given: Any, **keys: Any) -> Any:
        """One that can be told where to die."""
        return super().ours(*given, kind=Driver, **keys)

    def die(self, node: Driver, place: str) -> None:
        """Start a member that is to die somewhere."""
        node.die = [place]
        node.launch()

    def died(self, node: Driver) -> None:
        self.assertEqual(node.wait(BOOT), KILLED, node.tail())

    def promotion(self, letters: str) -> None:
        """A member dies at each step of its election: it leads after a restart, all is there."""
        self.begin_as(letters)
        for place in PROMOTION:
            with self.scenario(f"a member that is elected dies at {place}, and comes back"):
                other = self.follower()
                (master,) = (each for each in self.members if each is not other)
                other.term()
                self.until_only(master)
                self.die(other, place)
                self.until_whole()
                load = self.load()
                master.kill9()
                self.died(other)
                other.launch()
                self.until_led([other])
                master.launch()
                self.healed(load)
        self.end_with_ours()

    def test_promotion(self) -> None:
        """Both are ours."""
        self.promotion("OO")

    def test_promotion_after_java(self) -> None:
        """Java's led before."""
        self.promotion("JO")

    def cut(self, letters: str) -> None:
        """A master comes back with what nobody else has, and dies at each step of cutting it off:
        all of it is cut in the end, kept, and was seen by no reader.
        """
        self.begin_as(letters)
        for step in STEPS:
            with self.scenario(f"an old master dies at step {step} of a cut, and comes back"):
                old = self.nodes[0]
                self.lead(old)
                confirm = self.leave_tail(old)
                kept = set(old.cuts)
                self.die(old, f"step-{step}")
                self.died(old)
                old.launch()
                self.until_whole()
                # Two of them, if it died before it had decided on the first.
                tails = set(old.cuts) - kept
                self.assertTrue(tails)
                self.assertGreaterEqual(min(int(tail.name[:20]) for tail in tails), confirm)
        self.end_with_ours()

    def test_cut(self) -> None:
        """Behind ours."""
        self.cut("OO")

    def test_cut_behind_java(self) -> None:
        """Behind Java's."""
        self.cut("OJ")

    def leave_tail(self, master: Driver) -> int:
        """A master takes writes that reach nobody, and is killed; what was confirmed on it."""
        links = self.links[master.name]
        load = self.load()
        links.replication.set("down", hold=True)
        master.until(
            lambda status: status["maxOffset"] > status["controller"]["confirmOffset"] + 2000,
            "more than the other one has",
        )
        confirm = int(master.status()["controller"]["confirmOffset"])
        master.kill9()
        links.replication.cut()
        links.replication.set("down")
        self.until_master(lambda member: member is not master)
        self.enough(load)
        return confirm


class DrivenTestCase(ScenarioTestCase):
    """Members of ours that can be told what befalls them."""

    roles = "members of ours"

    def driven(self, nodes: list[Node]) -> tuple[Driver, *tuple[Driver, ...]]:
        """@return: The master, and the others."""
        master = self.led(nodes)
        found = [master, *(node for node in nodes if node is not master)]
        drivers = [node for node in found if isinstance(node, Driver)]
        assert len(drivers) == len(nodes), "they were started so"
        return tuple(drivers)


class PowerCutTests(DrivenTestCase):
    """Members with SYNC_FLUSH that know what they made durable."""

    full_only = ("test_slave", "test_slaves")

    def ours(self, name: str, *given: Any, **keys: Any) -> Any:
        node = super().ours(name, *given, **keys)
        node.synced = self.folder / f"{name}-synced"
        return node

    def unpowered(self, count: int) -> None:
        """The master is gone, all slaves lose power: all acknowledged is on disks; one leads."""
        seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")
        chance = random.Random(f"{seed} {self.id()}")
        nodes = self.set_of(count, kind=Driver, flushDiskType="SYNC_FLUSH")
        for number in range(ROUNDS):
            kept = KEPT[number % len(KEPT)]
            with self.scenario(f"master killed (-9), all slaves without power, {kept:.0%} kept"):
                master, *others = self.driven(nodes)
                load = self.load()
                # Nobody is left to take the others out of the SyncStateSet.
                master.freeze()
                for other in others:
                    other.kill9()
                master.kill9()
                self.enough(load)
                for other in others:
                    assert other.synced is not None, "it was told so"
                    lost = cut(other.root, other.synced, chance, kept)
                    sys.stdout.write(f"{other.name}: {lost} pages lost\n")
                    self.assert_holds(other, self.acked)
                    other.launch()
                self.until_led(others)
                master.launch()
                self.until_in_sync(self.led(others), count)
        self.assert_settled(nodes)

    def test_slave(self) -> None:
        """One."""
        self.unpowered(2)

    def test_slaves(self) -> None:
        """Two."""
        self.unpowered(3)


class ClockTests(DrivenTestCase):
    full_only = ("test_jumps", "test_jumps_of_three")

    def jumps(self, count: int) -> None:
        """By an hour, there and back: nobody is elected or leaves, no message is deleted."""
        nodes = self.set_of(count, kind=Driver, fileReservedTime=24)
        master, other, *_ = self.driven(nodes)
        epoch = master.status()["controller"]["masterEpoch"]
        load = self.load()
        for node, role in ((other, "slave"), (master, "master")):
            for hours in (1, -1):
                with self.scenario(f"the {role}'s clock jumps by {hours:+d} h under load"):
                    node.do("clock", offset=3600.0 * hours)
                    until_then = time.monotonic() + LONG
                    while time.monotonic() < until_then:
                        self.until_again(load)
                        self.until_in_sync(master, count)
                    self.assertEqual(self.state(master), "leading")
                    for each in nodes:
                        status = each.status()
                        self.assertEqual(status["controller"]["masterEpoch"], epoch)
                        self.assertEqual(status["minOffset"], 0)
            node.do("clock", offset=0.0)
        self.enough(load)
        until(lambda: self.state(other) == "following", "follows", BOOT, tell=other.tail)
        self.assert_settled(nodes)

    def test_jumps(self) -> None:
        """Of two."""
        self.jumps(2)

    def test_jumps_of_three(self) -> None:
        """Of three."""
        self.jumps(3)
