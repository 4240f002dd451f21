"""
Members of ours whose controllers were wiped, and the way back.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from lab.harness.nodes import Node
from tests.interop.test_member import MemberTestCase


class WipedControllerTests(MemberTestCase):
    """
    Two members of ours, whose controller loses its store.
    """

    roles = "two members of ours, a wiped controller"

    def test_reset(self) -> None:
        """
        They refuse what the new controller says; after C{rmqha controller reset} on both they are
        a set again, with every byte they had.
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

    def reset(self, node: Node) -> str:
        """
        Run the command on a member's store.

        @return: What it printed.
        """
        script = "from rmqha.cli.main import main; main()"
        command = [sys.executable, "-c", script, "controller", "reset", str(node.root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout
