"""Members of ours whose controllers were wiped, and the way back."""

from __future__ import annotations

import shutil
import time

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT
from tests.interop.member_cases import Member
from tests.interop.mixed_cases import MixedTestCase
from tests.support.commands import rmqha

FROM_THE_START = "1\n1583951331\n0-0\n"
"""An epoch file with one label over all of a log, below that of any election."""


class WipedControllerTests(MixedTestCase):
    """Two members, whose controller loses its store."""

    roles = "two members, a wiped controller"
    full_only = ("test_under_load", "test_java_under_load")

    def test_reset(self) -> None:
        """They refuse what the new controller says; after C{rmqha controller reset} on both they
        are a set again, with every byte they had.
        """
        controller = self.controller()
        first, second = (self.ours(f"ours-{number}", controller) for number in (1, 2))
        first.start()
        self.until_state(first, "leading")
        second.start()
        self.until_in_sync(first, 2)
        sends = self.tool.put(50, self.topic)
        self.assertEqual({"SEND_OK": 50}, sends.wait())
        self.until_same(first, second)
        acked = sends.acked
        with self.scenario("the controller is wiped: members refuse what it says"):
            for node in (second, first):
                node.term()
            controller.kill9()
            shutil.rmtree(controller.store)
            controller.launch()
            for node in (first, second):
                node.launch()
                self.until_state(node, "refused")
        with self.scenario("rmqha controller reset on both: one leads, the other follows"):
            for node in (first, second):
                node.term()
                self.assertIn("before-reset-1", self.reset(node))
            first.start()
            self.until_state(first, "leading")
            second.start()
            self.until_in_sync(first, 2)
            more = self.tool.put(50, self.topic)
            self.assertEqual({"SEND_OK": 50}, more.wait())
            self.until_same(first, second)
            second.term()
            first.term()
            self.assert_same_log(first, second)
            for node in (first, second):
                self.assert_holds(node, acked + more.acked)

    def wiped(self, letters: str) -> None:
        """Nobody changes its role by halves or is elected, what was acknowledged stays, and after
        C{rmqha controller reset} the members are a set again, with nothing cut.
        """
        self.begin_as(letters)
        other = self.last
        with self.scenario("the controller is wiped under load: no role changes"):
            load = self.load()
            epoch = other.status()["controller"]["masterEpoch"]
            self.decider.kill9()
            shutil.rmtree(self.decider.store)
            self.decider.launch()
            until(lambda: "boot success" in self.decider.log(), "it is back", BOOT)
            until_then = time.monotonic() + 15.0
            while time.monotonic() < until_then:
                if isinstance(self.first, Node):
                    self.assertIn(self.state(self.first), ("leading", "fenced", "refused"))
                self.assertIn(self.state(other), ("following", "refused"))
                time.sleep(0.2)
            for node in self.nodes:
                self.assertEqual(epoch, node.status()["controller"]["masterEpoch"])
            self.enough(load)
        with self.scenario("the master is killed (-9): nobody leads"):
            self.first.kill9()
            self.assert_never_leads(other, 12.0)
        with self.scenario("rmqha controller reset, or one label: a set again, nothing cut"):
            other.term()
            for member in self.members:
                self.forget(member)
            self.first.start()
            self.until_master(lambda master: master is self.first)
            other.start()
            self.until_whole()
            self.assertEqual([], [cut for node in self.nodes for cut in node.cuts])
        self.end_with_ours()

    def test_under_load(self) -> None:
        """Ours leads."""
        self.wiped("OO")

    def test_java_under_load(self) -> None:
        """Java's leads."""
        self.wiped("JO")

    def forget(self, member: Member) -> None:
        """Have a member forget its set.  Java's could not send what lies below its first label."""
        if isinstance(member, Node):
            self.reset(member)
            return
        for name in ("brokerIdentity", "epochFileCheckpoint"):
            for path in member.root.glob(f"{name}*"):
                path.unlink()
        (member.root / "epochFileCheckpoint").write_text(FROM_THE_START, encoding="ascii")

    def reset(self, node: Node) -> str:
        """Run the command on a member's store, and return what it printed."""
        done = rmqha("controller", "reset", node.root)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout
