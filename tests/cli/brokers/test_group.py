"""C{rmqha group}."""

from __future__ import annotations

from tests.broker.consumer_side import heartbeat, wants
from tests.broker.support import SEND_V2, sending
from tests.cli.brokers.site import MASTER, NAMES, SiteTestCase

AT = "-b", MASTER


class GroupTests(SiteTestCase):
    def groups(self) -> list[str]:
        return [row["group"] for row in self.answer("group", "list", *AT)["groups"]]

    def test_life(self) -> None:
        """A group is made, listed, changed in one respect and deleted."""
        self.name_server()
        self.succeed("group", "create", "Readers", "--retries", "3", *AT)
        self.assertEqual(["Readers"], self.groups())
        (row,) = self.answer("group", "change", "Readers", "--no-consume", *AT)["groups"]
        self.assertEqual((3, False, True), (row["retries"], row["consume"], row["broadcast"]))
        (shown,) = self.answer("group", "show", "Readers", *AT)["settings"]
        self.assertEqual(row, shown)
        (deleted,) = self.answer("group", "delete", "Readers", *AT)["deleted"]
        self.assertEqual({"name": "Readers", "at": MASTER, "is": "group"}, deleted)
        self.assertEqual([], self.groups())

    def test_show(self) -> None:
        """Members that are online, and the lag in each queue."""
        self.name_server()
        self.succeed("topic", "create", "Orders", "--read", "1", "--write", "1", *AT)
        self.succeed("group", "create", "Readers", *AT)
        self.client().ask(SEND_V2, sending("Orders"), b"one")
        self.clock.advance(0.1)
        said = self.run_command("group", "show", "Readers", *AT)
        self.assertIn("note: group Readers has no members online", said.stderr)
        self.client().send(heartbeat("c1", wants(topic="Orders"), group="Readers"))
        self.succeed("offset", "reset", "Readers", "Orders", "--to", "earliest", *AT)
        self.client().ask(
            15, {"consumerGroup": "Readers", "topic": "Orders", "queueId": "0", "commitOffset": "0"}
        )
        said = self.succeed("group", "show", "Readers", *AT)
        self.assertIn("lag of all queues: 1", said)
        (row,) = self.answer("group", "show", "Readers", *AT)["members"]
        self.assertEqual(("c1", "clustering"), (row["client"], row["model"]))
        self.assertIn("Orders", row["topics"])
        told = self.fails(1, "group", "delete", "Readers", *AT)
        self.assertIn("group Readers has members online (c1): stop them first", told)

    def test_retry_topics(self) -> None:
        """With a group go the topics in which its messages come again, at the name server too."""
        self.name_server()
        self.succeed("group", "create", "Readers", *AT)
        self.succeed("topic", "create", "%RETRY%Readers", *AT)
        rows = self.answer("group", "delete", "Readers", "--offsets", *AT)["deleted"]
        self.assertEqual(
            [("%RETRY%Readers", MASTER), ("%RETRY%Readers", NAMES), ("Readers", MASTER)],
            [(row["name"], row["at"]) for row in rows],
        )

    def test_own(self) -> None:
        """What is no user's is listed when that is asked for."""
        result = self.run_command("group", "list", *AT)
        self.assertEqual("", result.stdout)
        self.assertRegex(result.stderr, r"note: \d+ more are the brokers' own: --all")
        self.assertIn("TOOLS_CONSUMER", self.succeed("group", "list", "--all", *AT))

    def test_not_there(self) -> None:
        """A group that is not there is an error; so is one that is."""
        self.name_server()
        for words in (["show"], ["change", "--retries", "1"], ["delete"]):
            told = self.fails(1, "group", *words, "Nobody", *AT)
            self.assertIn(f"group Nobody is not at {MASTER}", told)
        self.succeed("group", "create", "Readers", *AT)
        told = self.fails(1, "group", "create", "Readers", *AT)
        self.assertIn(f"already at {MASTER}; `rmqha group change Readers`", told)
        self.assertIn("nothing to change", self.fails(2, "group", "change", "Readers", *AT))
        told = self.fails(1, "group", "create", "no name", *AT)
        self.assertIn("answered request 200", told)
