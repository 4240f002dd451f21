"""C{rmqha message}."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from tests.broker.support import SEND_V2, sending
from tests.cli.brokers.site import MASTER, SiteTestCase

AT = "-b", MASTER


class MessageTests(SiteTestCase):
    """Messages of a topic with two queues."""

    def setUp(self) -> None:
        super().setUp()
        self.succeed("topic", "create", "Orders", "--read", "2", "--write", "2", *AT)

    def send(self, *words: str) -> dict[str, Any]:
        """Send one, and return what is said of it."""
        (row,) = self.answer("message", "send", "Orders", *words, *AT)["sent"]
        self.clock.advance(1.0)
        return dict(row)

    def shown(self, *words: str) -> dict[str, Any]:
        return dict(self.answer("message", "show", *words, *AT))

    def found(self, *words: str) -> list[str]:
        rows = self.answer("message", "find", "Orders", *words, *AT)["messages"]
        return [row["text"] for row in rows]

    def test_life(self) -> None:
        """What is sent is shown by each of its names, and has what it was given."""
        more = "--tag", "red", "--key", "k1", "--key", "k2", "--property", "COLOUR=dark"
        sent = self.send("--body", "héllo", *more, "--queue", "1")
        self.assertEqual(("stored", 1, 0), (sent["status"], sent["queue"], sent["offset"]))
        by_broker = self.shown(sent["offsetId"])
        self.assertEqual("héllo", by_broker["text"])
        wanted = {"TAGS": "red", "KEYS": "k1 k2", "COLOUR": "dark", "UNIQ_KEY": sent["id"]}
        self.assertLessEqual(wanted.items(), by_broker["properties"].items())
        self.assertEqual(by_broker, self.shown(sent["id"], "--topic", "Orders"))
        self.assertEqual(by_broker, self.shown(str(by_broker["physicalOffset"])))
        said = self.succeed("message", "show", sent["offsetId"])  # the id has the address
        self.assertIn("héllo", said)
        self.assertRegex(said, r"queue offset +0 *\n")

    def test_find(self) -> None:
        """By key, by time, and both."""
        for n in range(5):
            self.send("--body", f"m{n}", "--key", f"k{n % 2}", "--queue", str(n % 2))
        self.assertEqual(["m0", "m2", "m4"], self.found("--key", "k0"))
        after, before = "2023-11-14T22:13:22Z", "2023-11-14T22:13:23Z"
        self.assertEqual(["m2", "m3", "m4"], self.found("--from", after))
        self.assertEqual(["m2", "m3"], self.found("--from", after, "--to", before))
        self.assertEqual(["m2"], self.found("--from", after, "--to", before, "--key", "k0"))
        said = self.run_command("message", "find", "Orders", "--from", after, "--most", "1", *AT)
        self.assertIn("note: there are more than 1", said.stderr)
        self.assertIn("m2", said.stdout)

    def test_tail(self) -> None:
        """The last ones in the order of their times, and with --follow those that come."""
        for n in range(5):
            self.send("--body", f"m{n}", "--queue", str(n % 2))
        lines = self.succeed("message", "tail", "Orders", "--last", "3", *AT).splitlines()
        self.assertEqual(["m2", "m3", "m4"], [line.rsplit(" ", 1)[1] for line in lines])
        all_of = ("message", "tail", "Orders", "--follow", "--count", "2", "--json", *AT)
        rows = [json.loads(line) for line in self.succeed(*all_of).splitlines()]
        self.assertEqual(["m0", "m1"], [row["text"] for row in rows])

    def test_shrunk(self) -> None:
        """What lies in unread queues is counted, with the command for it; the others are shown."""
        self.succeed("topic", "change", "Orders", "--read", "3", "--write", "3", *AT)
        for n in range(6):
            self.send("--body", f"m{n}", "--queue", str(n % 3))
        found = "find", "Orders", "--from", "2001-01-01T00:00:00Z"
        for lowered in (("--read", "1"), ("--write", "1")):
            self.succeed("topic", "change", "Orders", *lowered, *AT)
            for command in (("tail", "Orders"), found):
                said = self.run_command("message", *command, *AT)
                self.assertIn("m3", said.stdout)
                self.assertNotIn("m4", said.stdout)
                self.assertIn(
                    f"4 messages of topic Orders at {MASTER} are in queues that are not read: "
                    "rmqha topic change Orders --read 3",
                    said.stderr,
                )
        self.succeed("topic", "change", "Orders", "--read", "3", *AT)
        said = self.run_command("message", "tail", "Orders", *AT)
        self.assertEqual((6, ""), (len(said.stdout.splitlines()), said.stderr))

    def test_compressed(self) -> None:
        """A compressed body is shown as it was, and one that is no text as bytes."""
        body = zlib.compress(b"much of it" * 50)
        self.client().ask(SEND_V2, sending("Orders", sys_flag=1), body)
        self.client().ask(SEND_V2, sending("Orders", queue_id=1), b"\xff\x00")
        self.clock.advance(1.0)
        lines = self.succeed("message", "tail", "Orders", *AT)
        self.assertIn("much of itmuch of it", lines)
        self.assertIn(" ff00\n", lines)
        sent = self.send("--body", "one\ntwo")
        self.assertIn("one\ntwo\n", self.succeed("message", "show", sent["offsetId"]))
        self.assertIn(" one\\u000atwo\n", self.succeed("message", "tail", "Orders", *AT))

    def test_not_there(self) -> None:
        """What is not found is an error that says where it was looked for."""
        sent = self.send("--body", "x")
        told = self.fails(1, "message", "find", "Orders", "--key", "none", *AT)
        self.assertIn(f"no message of topic Orders at {MASTER} is so", told)
        told = self.fails(1, "message", "show", "0" * 32, "--topic", "Orders", *AT)
        self.assertIn("has the id 000", told)
        told = self.fails(1, "message", "show", "7", *AT)
        self.assertIn("answered request 33 (VIEW_MESSAGE_BY_ID) with code 1", told)
        told = self.fails(1, "message", "show", "0" * 32, *AT)
        self.assertIn("--topic says of which topic", told)
        moved = re.sub("^.{8}", "0A000007", sent["offsetId"])
        told = self.fails(1, "message", "show", moved, *AT)
        self.assertIn(f"is another message, {sent['offsetId']}", told)
        self.assertIn("10.0.0.7:10911", self.fails(3, "message", "show", moved))
        told = self.fails(1, "message", "tail", "Nothing", *AT)
        self.assertIn("topic Nothing is not at", told)

    def test_send_refused(self) -> None:
        """What cannot be sent is told before it is tried."""
        send = "message", "send", "Orders"
        self.assertIn("one of --body and --file", self.fails(2, *send, *AT))
        self.assertIn("is not NAME=VALUE", self.fails(2, *send, "--property", "x", *AT))
        told = self.fails(2, *send, "--body", "x", "--key", "a b", *AT)
        self.assertIn("'a b' has blanks", told)
        told = self.fails(1, *send, "--body", "x", "--queue", "2", *AT)
        self.assertIn(f"topic Orders has no queue 2 to write to: 2 at {MASTER}", told)
        self.succeed("topic", "change", "Orders", "--perm", "r", *AT)
        told = self.fails(1, *send, "--body", "x", *AT)
        self.assertIn("its permission lacks w; `rmqha topic change Orders --perm rw`", told)
