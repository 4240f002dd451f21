"""C{rmqha topic}."""

from __future__ import annotations

from typing import Any

from rmqha.wire.remoting.bodies.route import BrokerData
from rmqha.wire.remoting.command import Command
from tests.broker.support import SEND_V2, sending
from tests.cli.brokers.site import MASTER, NAMES, SLAVE, SiteTestCase
from tests.support.commands import nobody, rmqha
from tests.support.effort import slow

AT = "-b", MASTER


class TopicTests(SiteTestCase):
    def topics(self) -> list[str]:
        return [row["topic"] for row in self.answer("topic", "list", *AT)["topics"]]

    def test_life(self) -> None:
        """A topic is made, listed, changed in one respect, shown and deleted."""
        self.name_server()
        self.assertIn("Orders", self.succeed("topic", "create", "Orders", "--read", "4", *AT))
        self.assertEqual(["Orders"], self.topics())
        (row,) = self.answer("topic", "change", "Orders", "--perm", "r", *AT)["topics"]
        self.assertEqual((4, 8, "r"), (row["readQueues"], row["writeQueues"], row["perm"]))
        self.assertEqual([MASTER], row["brokers"])
        self.client().ask(SEND_V2, sending("Orders"), b"refused: it is read only")
        shown = self.answer("topic", "show", "Orders", *AT)
        self.assertEqual([0, 1, 2, 3, 4, 5, 6, 7], [row["queue"] for row in shown["queues"]])
        deleted = self.answer("topic", "delete", "Orders", *AT)["deleted"]
        self.assertEqual([MASTER, NAMES], [row["at"] for row in deleted])
        self.assertEqual([106, 216], self.codes_at(NAMES)[-2:])
        self.assertEqual([], self.topics())

    def test_attributes(self) -> None:
        """Attributes of RocketMQ 5 are set, and stay when something else changes."""
        self.succeed("topic", "create", "Bills", "--attribute", "+message.type=FIFO", *AT)
        (row,) = self.answer("topic", "change", "Bills", "--write", "2", *AT)["topics"]
        self.assertEqual({"message.type": "FIFO"}, row["attributes"])

    def test_show(self) -> None:
        """Where queues begin and end, and who consumes."""
        self.succeed("topic", "create", "Orders", "--read", "1", "--write", "1", *AT)
        self.client().ask(SEND_V2, sending("Orders"), b"one")
        self.clock.advance(0.1)
        self.assertIn("2023-11-14T22:13:20", self.succeed("topic", "show", "Orders", *AT))
        (queue,) = self.answer("topic", "show", "Orders", *AT)["queues"]
        self.assertEqual((0, 1), (queue["first"], queue["end"]))

    def test_own(self) -> None:
        """What is no user's is listed when that is asked for, and counted else."""
        result = self.run_command("topic", "list", *AT)
        self.assertEqual("", result.stdout)
        self.assertRegex(result.stderr, r"note: \d+ more are the brokers' and groups' own: --all")
        self.assertIn("TBW102", self.succeed("topic", "list", "--all", *AT))

    def test_not_there(self) -> None:
        """A topic that is not there is an error that says where it is not, and what to do."""
        self.name_server()
        for words in (["show"], ["change", "--perm", "r"], ["delete"]):
            told = self.fails(1, "topic", *words, "Nothing", *AT)
            self.assertIn(f"topic Nothing is not at {MASTER}", told)
            self.assertIn("`rmqha topic list`", told)

    def test_half_deleted(self) -> None:
        """A name server that was not told is told by the same command, once more."""
        self.succeed("topic", "create", "Orders", *AT)
        self.name_server()
        answer: Any = self.wire.peers[NAMES]

        def refuses(command: Command) -> Command:
            return command.answer(1, "not now") if command.code == 216 else answer(command)

        self.wire.peers[NAMES] = refuses
        told = self.fails(1, "topic", "delete", "Orders", *AT)
        self.assertIn(f"not now; Orders is deleted at {MASTER} and not at {NAMES}", told)
        self.wire.peers[NAMES] = answer
        self.routed = ("Orders",)
        (row,) = self.answer("topic", "delete", "Orders", *AT)["deleted"]
        self.assertEqual((NAMES, "route"), (row["at"], row["is"]))

    def test_there(self) -> None:
        """What is there is not made again."""
        self.succeed("topic", "create", "Orders", *AT)
        told = self.fails(1, "topic", "create", "Orders", *AT)
        self.assertIn(f"already at {MASTER}; `rmqha topic change Orders`", told)

    def test_refused(self) -> None:
        """What the broker refuses is told with its code and remark."""
        told = self.fails(1, "topic", "create", "TBW102x y", *AT)
        self.assertIn(f"{MASTER} answered request 17 (UPDATE_AND_CREATE_TOPIC) with code", told)
        told = self.fails(1, "topic", "change", "TBW102", "--perm", "r", *AT)
        self.assertIn("conflict with system topic", told)

    def test_nothing_to_change(self) -> None:
        """A change says what."""
        self.assertIn("nothing to change", self.fails(2, "topic", "change", "Orders", *AT))

    def test_slave(self) -> None:
        """A slave takes no writes, and its master is named."""
        self.name_server()
        self.wire.peers[SLAVE] = lambda command: command.answer(
            body=f"brokerName=broker-a\nbrokerRole=SLAVE\nnamesrvAddr={NAMES}\n".encode()
        )
        told = self.fails(1, "topic", "create", "Orders", "-b", SLAVE)
        self.assertIn(f"{SLAVE} is a slave of broker-a", told)
        self.assertIn(f"-b {MASTER}", told)
        del self.wire.peers[NAMES]
        told = self.fails(1, "topic", "create", "Orders", "-b", SLAVE)
        self.assertIn("give a name server with -n", told)


class WhereTests(SiteTestCase):
    def test_not_understood(self) -> None:
        """Addresses are hosts, with a port or without."""
        self.assertIn("is not HOST", self.fails(2, "topic", "list", "-b", "a:b"))
        both = self.fails(2, "topic", "list", "-b", "a", "-n", "b")
        self.assertIn("exclude each other", both)
        self.assertIn("--cluster needs -n", self.fails(2, "topic", "list", "-c", "C"))

    def test_ports(self) -> None:
        """A broker's port is 10911 and a name server's 9876 where none is given."""
        self.name_server()
        self.succeed("topic", "create", "Orders", "-b", "10.0.0.9")
        self.assertIn("Orders", self.succeed("topic", "list", "-n", "10.0.0.1"))

    def test_unreachable(self) -> None:
        """With nobody there the exit code is 3."""
        told = self.fails(3, "topic", "list", "-b", "10.0.0.7")
        self.assertIn("cannot connect to 10.0.0.7:10911: Connection refused", told)

    def test_next_name_server(self) -> None:
        """A name server that is away is no reason to give up."""
        self.name_server()
        self.succeed("topic", "list", "-n", f"10.0.0.2;{NAMES}")
        told = self.fails(3, "topic", "list", "-n", "10.0.0.2;10.0.0.3")
        self.assertIn("10.0.0.3:9876", told)

    def test_clusters(self) -> None:
        """A write goes to one cluster, which is named where there are two."""
        other = BrokerData(broker_name="broker-b", cluster="D", broker_addrs={1: SLAVE})
        self.name_server(other=other)
        told = self.fails(1, "topic", "create", "Orders", "-n", NAMES)
        self.assertIn("say with --cluster which is meant, C or D", told)
        self.succeed("topic", "create", "Orders", "-n", NAMES, "-c", "C")
        told = self.fails(1, "topic", "create", "Orders", "-n", NAMES, "-c", "D")
        self.assertIn(f"broker-b has no master: {NAMES} knows the broker with id 1", told)
        told = self.fails(1, "topic", "list", "-n", NAMES, "-c", "E")
        self.assertIn("the clusters it knows: C, D", told)

    def test_half_done(self) -> None:
        """What was done at some brokers and not at others is told."""
        away = "10.0.0.7:10911"
        other = BrokerData(broker_name="broker-b", cluster="C", broker_addrs={0: away})
        self.name_server(other=other)
        answer: Any = self.wire.peers[MASTER]

        def half(command: Command) -> Command:
            if command.code == 17:
                return command.answer(1, "the disk is full")
            answer.send(command)
            return next(iter(answer.heard()))

        self.wire.peers[away] = half
        told = self.fails(1, "topic", "create", "Orders", "-n", NAMES)
        self.assertIn("the disk is full; Orders is made at 10.0.0.9:10911 and not at", told)
        self.wire.peers[away] = self.wire.peers[MASTER]
        told = self.fails(1, "topic", "create", "Orders", "-n", NAMES)
        self.assertIn("already at", told)

    @slow
    def test_refused_connection(self) -> None:
        """The whole command ends in one line and exit code 3, as status does."""
        with nobody() as address:
            done = rmqha("topic", "list", "-b", address)
        self.assertEqual((3, 1), (done.returncode, done.stderr.count("\n")), done.stderr)
        self.assertIn(f"rmqha: cannot connect to {address}", done.stderr)
