"""
Sets of members of ours and Java members: who leads changes from one kind to the other.
"""

from __future__ import annotations

from tests.interop.cases import rounds
from tests.interop.member_cases import ScenarioTestCase


class MixedScenarioTests(ScenarioTestCase):
    """
    Two members of ours and one of Java's.
    """

    roles = "two members of ours, a Java member"

    def test_switches_without_writes(self) -> None:
        """
        Two elections with no write between, in which the Java member is in the middle; then another
        one: no log has bytes of its own.
        """
        controller = self.controller()
        first, second = (self.ours(f"ours-{number}", controller) for number in (1, 2))
        java = self.java("java", controller)
        group = self.group(controller)
        nodes = [first, second]
        with self.scenario("three join"):
            first.start()
            self.until_state(first, "leading")
            second.start()
            java.start()
            self.until_in_sync(first, 3)
            self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
        numbers = {self.id_of(first), self.id_of(second)}
        (java_id,) = {1, 2, 3} - numbers
        for number in range(rounds(1, 3)):
            with self.scenario(f"ours, Java's and ours elected, no write between: {number + 1}"):
                load = self.load()
                self.enough(load)
                self.elect(group, java_id)
                for node in nodes:
                    self.until_counted(node, 3)
                self.elect(group, self.id_of(second))
                self.until_state(second, "leading")
                self.until_in_sync(second, 3)
                load = self.load()
                self.elect(group, self.id_of(first))
                self.until_state(first, "leading")
                self.until_in_sync(first, 3)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes, java)
