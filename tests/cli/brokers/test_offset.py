"""C{rmqha offset}."""

from __future__ import annotations

from typing import Any

from rmqha.wire.remoting.bodies.route import KvTable
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from tests.broker.consumer_side import heartbeat, wants
from tests.broker.support import NOW, SEND_V2, sending
from tests.cli.brokers.site import MASTER, SiteTestCase

AT = "-b", MASTER
THERE = "Readers", "Orders"


class OffsetTests(SiteTestCase):
    """A group with offsets in a topic of two queues."""

    def setUp(self) -> None:
        """Queue 0 has three messages, one a second, and queue 1 none."""
        super().setUp()
        self.succeed("topic", "create", "Orders", "--read", "2", "--write", "2", *AT)
        client = self.client()
        client.ask(200, body=b'{"groupName":"Readers"}')
        for _ in range(3):
            client.ask(SEND_V2, sending("Orders"), b"body")
            self.clock.advance(1.0)

    def places(self, *words: str) -> list[tuple[Any, Any]]:
        (rows,) = self.answer("offset", *words, *AT).values()
        return [(row["before"], row["after"]) for row in rows]

    def test_life(self) -> None:
        """It is set, shown with its lag, and reset."""
        self.assertEqual([(None, 2)], self.places("set", *THERE, "0", "2"))
        rows = self.answer("offset", "show", *THERE, *AT)["offsets"]
        self.assertIn((0, 2, 3, 1), [(r["queue"], r["offset"], r["end"], r["lag"]) for r in rows])
        self.assertIn("lag of all queues: 1", self.succeed("offset", "show", "Readers", *AT))
        self.assertEqual([(2, 3), (None, 0)], self.places("reset", *THERE, "--to", "latest"))
        self.assertEqual([(3, 0), (0, 0)], self.places("reset", *THERE, "--to", "earliest"))

    def test_dry_run(self) -> None:
        """A look prints before and after, and changes nothing."""
        for _ in range(2):
            moves = self.places("reset", *THERE, "--to", "latest", "--dry-run")
            self.assertEqual([(None, 3), (None, 0)], moves)
        said = self.run_command("offset", "set", *THERE, "0", "1", "--dry-run", *AT)
        self.assertIn("nothing was changed", said.stderr)

    def test_time(self) -> None:
        """A time is the first message from then on."""
        second = "2023-11-14T22:13:21+00:00"
        self.assertEqual(NOW % 1000, 0)
        moves = self.places("reset", *THERE, "--to", second, "--queue", "0")
        self.assertEqual([(None, 1)], moves)
        self.assertIn("no time zone", self.fails(2, "offset", "reset", *THERE, "--to", second[:-6]))
        self.assertIn("is no time", self.fails(2, "offset", "reset", *THERE, "--to", "noon"))

    def test_not_there(self) -> None:
        """Offsets, queues, topics and groups that are not there are told, with what there is."""
        told = self.fails(1, "offset", "set", *THERE, "0", "9", *AT)
        self.assertIn(f"queue 0 of Orders at {MASTER} has offsets 0 to 3, and 9 is none", told)
        told = self.fails(1, "offset", "set", *THERE, "5", "0", *AT)
        self.assertIn(f"topic Orders has no queue 5: it has 2 at {MASTER}", told)
        told = self.fails(1, "offset", "reset", "Readers", "Nothing", "--to", "latest", *AT)
        self.assertIn("topic Nothing is not at", told)
        told = self.fails(1, "offset", "show", "Nobody", *AT)
        self.assertIn(f"group Nobody is not at {MASTER}", told)
        told = self.fails(1, "offset", "show", "Readers", "Nothing", *AT)
        self.assertIn(f"topic Nothing is not at {MASTER}", told)
        said = self.run_command("offset", "show", "Readers", *AT)
        self.assertEqual((0, ""), (said.exit_code, said.stdout))
        self.assertIn("group Readers has committed nothing", said.stderr)

    def test_half_moved(self) -> None:
        """What was moved before a broker refused is told."""
        master: Any = self.wire.peers[MASTER]

        def tired(command: Command) -> Command:
            if command.code == 15 and command.ext["queueId"] == "1":
                return command.answer(1, "the disk is full")
            master.send(command)
            return next(iter(master.heard()))

        self.wire.peers[MASTER] = tired
        told = self.fails(1, "offset", "reset", *THERE, "--to", "latest", *AT)
        self.assertIn("the disk is full; 1 of 2 queues are moved: give the command again", told)

    def test_reset_before(self) -> None:
        """5.x takes no notice of a commit between a reset and the group's next pull: it is told by
        another reset; a broker that is not 5.x, or does not do that either, is told of.
        """
        master: Any = self.wire.peers[MASTER]
        release = "V5_3_3"

        def deaf(command: Command) -> Command:
            if command.code == 15:
                return command.answer()
            if command.code == 28:
                return command.answer(body=write(KvTable(table={"brokerVersionDesc": release})))
            master.send(command)
            return next(iter(master.heard()))

        self.wire.peers[MASTER] = deaf
        self.assertEqual([(None, 2)], self.places("set", *THERE, "0", "2"))
        release = "V4_9_7"
        told = self.fails(1, "offset", "set", *THERE, "0", "1", *AT)
        self.assertIn(f"{MASTER} took offset 1 for queue 0 of Orders and has 2", told)

    def test_online(self) -> None:
        """Members online are told a time; an offset is refused, as they would commit over it."""
        member = self.client()
        member.send(heartbeat("c1", wants(topic="Orders"), group="Readers"))
        member.heard()
        told = self.fails(1, "offset", "set", *THERE, "0", "1", *AT)
        self.assertIn("group Readers has members online (c1) that would commit over it", told)
        self.assertEqual([(None, 0), (None, 0)], self.places("reset", *THERE, "--to", "earliest"))
        (pushed,) = [each for each in member.heard() if each.code == 220]
        self.assertEqual("Readers", pushed.ext["group"])
