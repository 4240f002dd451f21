"""What comes next for a node that is not well."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.nodes.next_steps import advice, next_step
from rmqha.nodes.poll import Seen


def seen(*names: str, **status: object) -> Seen:
    """A node with some reasons."""
    return Seen("unhealthy", status, [{"name": name, "text": "so it is"} for name in names])


class NextStepTests(SynchronousTestCase):
    def test_command(self) -> None:
        """It names store, master and address as they are; what is not told is left open."""
        upstream = {"address": "10.0.0.1:10912"}
        found = advice("10.0.0.2", seen("replication-diverged", store="/data", upstream=upstream))
        ((text, step),) = found
        self.assertEqual("replication-diverged: so it is", text)
        assert step is not None
        self.assertEqual("rmqha diverge /data --against 10.0.0.1:10912", step.command)
        self.assertEqual("states.rst, Diverged", step.page)
        (((_, slots),), ((_, tables),)) = (
            list(advice("10.0.0.2", seen(name))) for name in ("replica-away", "older-tables")
        )
        assert slots is not None and tables is not None
        self.assertEqual("rmqha slots 10.0.0.2", slots.command)
        self.assertEqual("rmqha tables ...", tables.command)

    def test_groups(self) -> None:
        """A name that begins as a group has the group's; one of another version has none."""
        self.assertIsNotNone(next_step("tls-files-clients"))
        self.assertIs(next_step("member-fenced"), next_step("member-refused"))
        self.assertIsNot(next_step("fenced"), next_step("member-fenced"))
        self.assertIsNone(next_step("of-tomorrow"))
        self.assertIsNone(next_step(""))

    def test_stock(self) -> None:
        """Of a node of RocketMQ it is said that nothing is known, and who knows."""
        row = Seen("", {"product": "stock", "reason": "stock, no admin port"})
        ((text, step),) = advice("10.0.0.1:10911", row)
        self.assertIn("stock, no admin port: whether anything is wrong", text)
        assert step is not None
        self.assertEqual("mqadmin brokerStatus -b 10.0.0.1:10911", step.command)

    def test_attention(self) -> None:
        """What is not wrong yet comes last, without a command; a node that is well has nothing."""
        status = {"retention": {"diskUse": 0.82}}
        self.assertEqual([("disk 82% full", None)], list(advice("a", Seen("", status))))
        self.assertEqual([], list(advice("a", Seen("", {}))))
