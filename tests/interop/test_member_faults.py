"""
Members that die in the middle of a cut or of an election, lose power, or have a wrong clock.
"""

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
from tests.interop.cases import rounds
from tests.interop.linked_cases import LinkedTestCase

PROMOTION = ("lead", "lead-epoch", "lead-written", "lead-dispatched", "lead-lets-in", "lead-tables")
"""Where a member dies that is elected."""

KILLED = -9

KEPT = (0.0, 0.5, 0.9)
"""How likely a page stays that nobody waited for: none, some, most."""

ROUNDS = rounds(3, 6)

LONG = 12.0
"""Seconds in which controllers would take a member for dead that they do not hear."""


class DrivenTestCase(LinkedTestCase):
    """
    Members that can be told what befalls them.
    """

    def driven(self, nodes: list[Node]) -> tuple[Driver, Driver]:
        """
        @return: The master, and the other one.
        """
        master = self.led(nodes)
        (other,) = (node for node in nodes if node is not master)
        assert isinstance(master, Driver), "it was started so"
        assert isinstance(other, Driver), "it was started so"
        return master, other


class FaultPointTests(DrivenTestCase):
    """
    Kills at chosen places.
    """

    full_only = ("test_promotion", "test_cut")

    def die(self, node: Driver, place: str) -> None:
        """
        Start a member that is to die somewhere.
        """
        node.die = [place]
        node.launch()

    def died(self, node: Driver) -> None:
        """
        It has.
        """
        self.assertEqual(node.wait(BOOT), KILLED, node.tail())

    def test_promotion(self) -> None:
        """
        A member is elected and dies at each step of it: it leads after a restart, and nothing is
        missing.
        """
        nodes = self.set_of(2, kind=Driver)
        for place in PROMOTION:
            with self.scenario(f"a member that is elected dies at {place}, and comes back"):
                master, other = self.driven(nodes)
                other.term()
                self.die(other, place)
                self.until_in_sync(master, 1)
                self.until_in_sync(master, 2)
                load = self.load()
                master.kill9()
                self.died(other)
                other.launch()
                self.until_led([other])
                master.launch()
                self.until_in_sync(other, 2)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_cut(self) -> None:
        """
        A master comes back with what nobody else has, and dies at each step of cutting it off: all
        of it is cut in the end, kept, and was seen by no reader.
        """
        master, other, _ = self.linked(Driver)
        nodes: list[Node] = [master, other]
        for step in STEPS:
            with self.scenario(f"an old master dies at step {step} of a cut, and comes back"):
                old, other = self.driven(nodes)
                confirm = self.leave_tail(old, other)
                kept = set(old.cuts)
                self.die(old, f"step-{step}")
                self.died(old)
                old.launch()
                self.until_in_sync(other, 2)
                # Two of them, if it died before it had decided on the first.
                tails = set(old.cuts) - kept
                self.assertTrue(tails)
                self.assertGreaterEqual(min(int(tail.name[:20]) for tail in tails), confirm)
        self.assert_settled(nodes)

    def leave_tail(self, master: Driver, other: Driver) -> int:
        """
        A master takes writes that reach nobody, and is killed; the other one leads.

        @return: What was confirmed on it.
        """
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
        self.until_state(other, "leading")
        self.enough(load)
        return confirm


class PowerCutTests(DrivenTestCase):
    """
    Members with SYNC_FLUSH that know what they made durable.
    """

    full_only = ("test_slave",)

    def ours(self, name: str, *given: Any, **keys: Any) -> Any:
        """
        One of them.
        """
        node = super().ours(name, *given, **keys)
        node.synced = self.folder / f"{name}-synced"
        return node

    def test_slave(self) -> None:
        """
        The master is gone and the slave loses power: all that was acknowledged is on its disk, and
        it leads.
        """
        seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")
        chance = random.Random(f"{seed} {self.id()}")
        nodes = self.set_of(2, kind=Driver, flushDiskType="SYNC_FLUSH")
        for number in range(ROUNDS):
            kept = KEPT[number % len(KEPT)]
            with self.scenario(f"master killed (-9), slave without power, {kept:.0%} kept"):
                master, other = self.driven(nodes)
                load = self.load()
                # Nobody is left to take the other one out of the SyncStateSet.
                master.freeze()
                other.kill9()
                master.kill9()
                self.enough(load)
                assert other.synced is not None, "it was told so"
                lost = cut(other.root, other.synced, chance, kept)
                sys.stdout.write(f"{other.name}: {lost} pages lost\n")
                self.assert_holds(other, self.acked)
                other.launch()
                self.until_state(other, "leading")
                master.launch()
                self.until_in_sync(other, 2)
        self.assert_settled(nodes)


class ClockTests(DrivenTestCase):
    """
    Members whose clocks jump.
    """

    full_only = ("test_jumps",)

    def test_jumps(self) -> None:
        """
        By an hour, there and back: nobody is elected, nobody leaves, and no message is deleted.
        """
        nodes = self.set_of(2, kind=Driver, fileReservedTime=24)
        master, other = self.driven(nodes)
        epoch = master.status()["controller"]["masterEpoch"]
        load = self.load()
        for node, role in ((other, "slave"), (master, "master")):
            for hours in (1, -1):
                with self.scenario(f"the {role}'s clock jumps by {hours:+d} h under load"):
                    node.do("clock", offset=3600.0 * hours)
                    until_then = time.monotonic() + LONG
                    while time.monotonic() < until_then:
                        self.until_again(load)
                        self.until_in_sync(master, 2)
                    self.assertEqual(self.state(master), "leading")
                    for each in nodes:
                        status = each.status()
                        self.assertEqual(status["controller"]["masterEpoch"], epoch)
                        self.assertEqual(status["minOffset"], 0)
            node.do("clock", offset=0.0)
        self.enough(load)
        until(lambda: self.state(other) == "following", "follows", BOOT, tell=other.tail)
        self.assert_settled(nodes)
