"""Stock consumers and a pair of ours: to the slave while they lag, back when they have caught up,
to the slave while the master is away, and back.
"""

from __future__ import annotations

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, progress
from lab.stock.brokers import BOOT
from lab.stock.clients import SOON, Client, Consumer
from rmqha.logfiles.json_table import read as read_json
from rmqha.logfiles.published import DELETED
from tests.interop.sites import SiteTestCase
from tests.interop.test_clients import bodies
from tests.support.commands import rmqha

#: What these brokers say that memory holds, in bytes: some eighty messages.
HELD = 20_000

#: Far more than that.
MANY = 400

KEYS: dict[str, object] = {
    "slaveReadEnable": "true",
    "accessMessageInMemoryBytes": HELD,
    "registerNameServerPeriod": 10_000,
    "haReconnectBackoffMax": 500,
}

#: Longest wait for clients that hear of a route only every half minute.
ROUTED = 90.0


class SlaveReadsTests(SiteTestCase):
    """A push consumer before a name server, a master and a slave."""

    def our_broker(self, **keys: object) -> Node:
        return super().our_broker(**{**keys, **KEYS, "brokerRole": "SYNC_MASTER"})

    def setUp(self) -> None:
        super().setUp()
        self.roles = "our name server, our master and slave"
        assert isinstance(self.serving, Node)
        self.primary = self.serving
        told = {key: self.primary.keys[key] for key in ("brokerClusterName", "namesrvAddr")}
        told |= {key: self.primary.keys[key] for key in ("brokerIP1", "brokerIP2")}
        told["maxMessageSize"] = self.primary.keys["maxMessageSize"]
        self.copy = self.our_slave(self.primary.address, **told, **KEYS)
        self.copy.start()
        self.copy.until_synced(self.primary.status()["maxOffset"])
        until(
            lambda: f"127.0.0.1:{self.copy.port}" in self.tool.registered(self.names),
            "the slave is registered",
            BOOT,
            tell=self.copy.tail,
            pause=0.1,
        )

    def test_slave_reads(self) -> None:
        """The whole story, with one group."""
        client = self.java()
        self.topic = f"Read-{client.slug}"
        self.group = f"G-{self.topic}"
        self.make_topic(self.topic, queues=1)
        consumer = self.lags(client)
        self.caught_up(client, consumer)
        consumer = self.master_away(client)
        self.master_back(client, consumer)
        self.assert_well()

    def test_deleted_topic(self) -> None:
        """A topic that mqadmin deletes has nothing of before when it is made again: on the master,
        on the slave when both were started anew, and when it is promoted.
        """
        client = self.java()
        self.topic = f"Gone-{client.slug}"
        self.make_topic(self.topic, queues=1)
        before, new = bodies("before", 1000), bodies("new", 20)
        client.send_surely(self.topic, before)
        reader = client.consume(self.topic, "Before")
        reader.until_got(before)
        reader.stop()
        with self.row(client, "mqadmin deletes a topic of 1,000 messages: made again it is empty"):
            words = ["deleteTopic", "-c", "interop", "-t", self.topic]
            said = self.tool.do("mqadmin", BOOT, namesrv=self.names, words=words, seconds=0)
            self.assertIn("success", said["printed"])
            until(
                lambda: all(
                    self.topic in (read_json(node.root / DELETED) or {}).get("topics", {})
                    for node in (self.primary, self.copy)
                ),
                "the slave has deleted it too",
                SOON,
                tell=self.copy.tail,
                pause=0.2,
            )
            self.make_topic(self.topic, queues=1)
            client.send_surely(self.topic, new)
            self.gets(client, "Before", new)
            self.gets(client, "Master", new)
        with self.row(client, "and so it is after a restart, at the slave too"):
            self.copy.until_synced(self.primary.status()["maxOffset"])
            self.restart_broker()
            self.copy.term()
            self.copy.start()
            self.copy.until_upstream("in-sync")
            self.gets(client, "Restarted", new)
            self.primary.kill9()
            self.gets(client, "Slave", new)
        with self.row(client, "and when the slave is promoted"):
            self.copy.term()
            tables = ("--tables", self.primary.root)
            rmqha("promote", self.copy.root, "--conf", self.copy.conf, *tables, check=True)
            del self.copy.keys["haMasterAddress"]
            self.copy.role = "master"
            self.copy.keys |= {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
            self.copy.start()
            more = bodies("more", 20)
            client.send_surely(self.topic, more, ROUTED)
            self.gets(client, "Promoted", new + more)
        self.assert_well()

    def gets(self, client: Client, group: str, wanted: list[str]) -> None:
        """A consumer of a group gets these, each once, and nothing else."""
        consumer = client.consume(self.topic, group)
        consumer.until_got(wanted, ROUTED)
        consumer.stop()
        self.assertEqual(sorted(wanted), sorted(consumer.bodies), group)

    def lags(self, client: Client) -> Consumer:
        """All messages arrive once, most of them from the slave."""
        with self.row(client, "a consumer that lags is sent to the slave"):
            self.sent = bodies("lagging", MANY)
            client.send_surely(self.topic, self.sent)
            self.copy.until_synced(self.primary.status()["maxOffset"])
            consumer = client.consume(self.topic, self.group)
            got = consumer.until_got(self.sent)
            self.assertEqual(self.sent, sorted(one.body for one in got), "once")
            # On the disk one answer has eight messages, wherever it comes from.
            self.assertGreater(self.pulls(self.copy), self.pulls(self.primary))
            self.assertLess(self.pulls(self.primary), 20)
        return consumer

    def caught_up(self, client: Client, consumer: Consumer) -> None:
        """What is sent now it has from the master."""
        with self.row(client, "it goes back to the master when it has caught up"):
            runs = iter(range(100))

            def back() -> bool:
                before = self.pulls(self.copy), self.pulls(self.primary)
                new = bodies(f"run {next(runs)}", 8)
                self.sent += new
                client.send_surely(self.topic, new)
                consumer.until_got(new)
                after = self.pulls(self.copy), self.pulls(self.primary)
                return after[0] == before[0] and after[1] > before[1]

            until(back, "it pulls from the master", SOON, tell=client.process.tail)
            self.assertEqual(sorted(self.sent), sorted(consumer.bodies), "once")
        consumer.stop()

    def master_away(self, client: Client) -> Consumer:
        """A consumer that starts without a master goes on where its group was, at the slave."""
        with self.row(client, "the master is killed: it goes on at the slave, and commits there"):
            self.all_told(self.copy)
            new = bodies("left behind", 100)
            client.send_surely(self.topic, new)
            self.copy.until_synced(self.primary.status()["maxOffset"])
            self.sent += new
            self.primary.kill9()
            consumer = client.consume(self.topic, self.group)
            consumer.until_got(new, ROUTED)
            self.assertEqual(sorted(new), sorted(consumer.bodies), "once, and nothing again")
            until(
                lambda: self.told(self.copy) == len(self.sent),
                "the slave is told how far the group is",
                SOON,
                tell=lambda: str(self.told(self.copy)),
            )
        return consumer

    def master_back(self, client: Client, consumer: Consumer) -> None:
        """Nothing is lost or comes again, and both brokers know how far the group is."""
        with self.row(client, "the master is back: so is it, and no position was turned back"):
            known = len(self.sent)
            before = list(consumer.bodies)
            self.start_broker()
            until(lambda: self.told(self.primary) >= known, "the master knows it too", SOON)
            self.copy.until_upstream("in-sync")
            new = bodies("afterwards", 50)
            client.send_surely(self.topic, new)
            consumer.until_got(new, ROUTED)
            pulls = self.pulls(self.primary)
            until(
                lambda: self.pulls(self.primary) > pulls,
                "it pulls from the master",
                ROUTED,
                tell=client.process.tail,
                pause=0.2,
            )
            self.sent += new
            consumer.stop()
            self.all_told(self.primary)
            self.all_told(self.copy)
            self.assertEqual(sorted(before + new), sorted(consumer.bodies), "once")

    # --- what is seen -----------------------------------------------------------

    def pulls(self, node: Node) -> int:
        """How many pulls a broker has had since its start."""
        found = node.status()["remoting"]["requests"]
        return int(found.get("PULL_MESSAGE", 0))

    def told(self, node: Node) -> int:
        """How far the group is in the words of one broker; -1 if it does not know."""
        with Remote(int(str(node.keys["listenPort"]))) as asking:
            answer = asking.ask(progress(self.topic, self.group))
        return int(answer.ext["offset"]) if answer.code == 0 else -1

    def all_told(self, node: Node) -> None:
        """Wait until a broker knows that the group has had everything."""
        until(
            lambda: self.told(node) == len(self.sent),
            f"the {node.name} knows that the group has had all",
            SOON,
            tell=lambda: f"{self.told(node)} of {len(self.sent)}\n{node.tail()}",
            pause=0.2,
        )


class SlaveReads4Tests(SlaveReadsTests):
    version = "4.9.7"


class SlaveReads5Tests(SlaveReadsTests):
    version = "5.3.3"
