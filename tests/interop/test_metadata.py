"""Tables between brokers of ours and stock ones: topics, groups, offsets."""

from __future__ import annotations

import os
import sys
import time
from base64 import b64encode
from random import Random
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, SMALL, Broker
from rmqha.logfiles import json_table
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from rmqha.wire.remoting.codes import RequestCode
from tests.interop.cases import InteropTestCase
from tests.support import client
from tests.support.nonsense import Nonsense

#: What makes a broker of ours one of theirs.
OF_THEIRS: dict[str, object] = {
    "brokerClusterName": SMALL["brokerClusterName"],
    "brokerName": SMALL["brokerName"],
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "maxMessageSize": 500_000,
}

#: Most seconds until a stock slave asks: those of 5.x do so once a minute.
ROUND = 90.0


class MetadataTestCase(InteropTestCase):
    """A master with a topic of four queues, a group and some messages."""

    def until_offset(self, address: str, offset: int, queue_id: int = 0, group: str = "g") -> None:
        """Wait until a broker has an offset."""
        until(
            lambda: client.committed(address, group, self.topic, queue_id) == offset,
            f"{address} has {offset}",
            ROUND,
            tell=lambda: str(client.committed(address, group, self.topic, queue_id)),
            pause=0.2,
        )

    def table(self, address: str, code: int, member: str) -> dict[str, Any]:
        body = client.must(address, code).body
        found: dict[str, Any] = fastjson.loads(bytes(body))[member]
        return found

    def assert_same_tables(self, master: str, slave: str) -> None:
        for code, member in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
        ):
            theirs = self.table(master, code, member)
            ours = self.table(slave, code, member)
            for name, config in theirs.items():
                # 4.9 slaves know no members of later releases; later ones add their own.
                known = [key for key, value in config.items() if value or key in ours[name]]
                self.assertEqual(
                    {key: config[key] for key in known},
                    {key: ours[name].get(key) for key in known},
                    name,
                )

    def fill(self, address: str) -> None:
        """Make topic, group and offsets at a master."""
        client.make_topic(address, self.topic)
        client.make_topic(address, f"{self.topic}-old", 1)
        client.make_group(address, "g")
        until(
            lambda: self.tool.put(40, self.topic, size=50).wait().get("SEND_OK") == 40,
            "messages",
            BOOT,
            pause=1.0,
        )
        for queue_id in range(2):
            client.commit(address, "g", self.topic, queue_id, 5)

    def pop(self, address: str) -> None:
        """Let the group pop the topic."""
        mode = GroupMode(topic=self.topic, consumer_group="g", mode=RequestMode.POP)
        client.must(address, RequestCode.SET_MESSAGE_REQUEST_MODE, json_body.write(mode))

    def until_modes(self, master: str, slave: str) -> None:
        """Wait until a slave has its master's modes, of which there are some."""
        code, member = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, "messageRequestModeMap"
        modes = self.table(master, code, member)
        self.assertEqual("POP", modes[self.topic]["g"]["mode"])
        until(
            lambda: self.table(slave, code, member) == modes,
            f"{slave} has the modes",
            ROUND,
            tell=lambda: str(self.table(slave, code, member)),
            pause=0.2,
        )


class BehindJavaTests(MetadataTestCase):
    """Our slave of a stock master."""

    roles = "Java master, our slave"

    def setUp(self) -> None:
        super().setUp()
        # Without its timer 5.3.3 cannot delete a topic.
        self.master = self.broker("java", timerWheelEnable="true").start()
        self.address = self.master.client_address
        self.slave = self.our_slave(self.master.address, **OF_THEIRS)
        self.ours = f"127.0.0.1:{self.slave.port}"

    def part(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.slave.status()["metadata"][name]
        return found

    def test_tables(self) -> None:
        """All tables come, changes follow, and commits made here reach a returned master."""
        with self.scenario("our slave takes topics, groups and offsets from a Java master"):
            self.fill(self.address)
            self.slave.start()
            self.until_offset(self.ours, 5)
            self.assert_same_tables(self.address, self.ours)
            for name in ("topics", "groups", "consumerOffsets", "delayOffsets"):
                self.assertEqual("adopted", self.part(name)["state"], self.part(name))
            self.slave_has_modes()
        with self.scenario("a topic made, one deleted and offsets set back there follow"):
            client.make_topic(self.address, f"{self.topic}-new", 3)
            client.must(self.address, RequestCode.DELETE_TOPIC_IN_BROKER, topic=f"{self.topic}-old")
            client.commit(self.address, "g", self.topic, 1, 2)
            self.until_offset(self.ours, 2, 1)
            names = client.topic_names(self.ours)
            self.assertIn(f"{self.topic}-new", names)
            self.assertNotIn(f"{self.topic}-old", names)
            self.assertIn("from 5 to 2", self.slave.log())
        with self.scenario("offsets committed at our slave while the Java master is down win"):
            self.until_equal(self.master, self.slave)
            self.master.stop()
            client.commit(self.ours, "g", self.topic, 0, 9)
            client.commit(self.ours, "new", self.topic, 0, 3)
            self.old_offsets()
            self.master.start()
            self.until_offset(self.address, 9)
            # A consumer that is back tells of its group; 5.x takes no offset before.
            client.make_group(self.address, "new")
            self.until_offset(self.address, 3, group="new")
            self.assertEqual(9, client.committed(self.ours, "g", self.topic, 0))
        with self.scenario("an older offset after the Java master's restart is refused"):
            self.slave.until(lambda status: status["metadata"]["regressions"] >= 1, "it is seen")
            self.assertEqual(2, client.committed(self.ours, "g", self.topic, 1))
            self.assertIn("from 2 to 1", self.slave.log())
        self.slave.term()
        self.assertEqual([], self.slave.complaints(), self.slave.log()[-20_000:])
        self.after()

    def slave_has_modes(self) -> None:
        """How groups consume comes from a release that has POP; from one before there is none."""
        if self.version < "5":
            self.assertEqual("unknown", self.part("requestModes")["state"])
            return
        self.pop(self.address)
        self.until_modes(self.address, self.ours)

    def old_offsets(self) -> None:
        """Give the stopped master an older offset."""
        file = self.master.root / "config" / "consumerOffset.json"
        table = json_table.read(file)
        assert table is not None
        key = f"{self.topic}@g"
        self.assertEqual(2, table["offsetTable"][key][1])
        table["offsetTable"][key][1] = 1
        json_table.replace(file, table)

    def after(self) -> None:
        """What a slave leaves a stock broker reads: its tables become a stock master's."""
        with self.scenario("a Java broker starts on the tables our slave has left"):
            self.master.stop()
            stock = self.broker("heir", root=self.slave.root)
            stock.start()
            self.assertIn(self.topic, client.topic_names(stock.client_address))
            self.assertIn("g", client.group_names(stock.client_address))
            self.assertEqual(9, client.committed(stock.client_address, "g", self.topic, 0))
            stock.stop()


class BehindJava4Tests(BehindJavaTests):
    version = "4.9.7"


class BehindJava5Tests(BehindJavaTests):
    version = "5.3.3"


class JavaBehindTests(MetadataTestCase):
    """A stock slave of our master."""

    roles = "our master, Java slave"
    long = True

    def our_node(self, **keys: object) -> Node:
        """A master of ours with a port for clients, not started."""
        given = {**OF_THEIRS, "namesrvAddr": self.tool.names, **keys}
        master = Node(self.folder, "master", "master", **given)
        self._processes.append(master)
        self.addCleanup(self.tool.do, "leave", BOOT, namesrv=self.tool.names)
        return master

    def until_registered(self, master: Node) -> str:
        """Start a master, and return where it serves clients."""
        address = f"127.0.0.1:{master.port}"
        master.start()
        until(
            lambda: address in self.tool.registered(self.tool.names),
            "our master is registered",
            BOOT,
            tell=master.tail,
            pause=0.1,
        )
        return address

    def test_tables(self) -> None:
        """All tables come, and a master that was restarted takes what its slave knows better."""
        master = self.our_node()
        stock = self.broker("java-slave", role="SLAVE")
        with self.scenario("a Java slave takes topics, groups and offsets from our master"):
            address = self.until_registered(master)
            self.fill(address)
            stock.start()
            self.until_offset(stock.client_address, 5)
            self.until_tables(address, stock)
        with self.scenario("our master takes offsets committed at a Java slave meanwhile"):
            stock.until_max(master.status()["maxOffset"])
            self.assertIn(master.term(), (0, -15), master.tail())
            client.commit(stock.client_address, "g", self.topic, 0, 8)
            master.start()
            until(
                lambda: client.committed(address, "g", self.topic, 1) == 5,
                "our master serves",
                BOOT,
                tell=master.tail,
                pause=0.1,
            )
            self.assertEqual(8, client.committed(address, "g", self.topic, 0), master.tail())
            self.assertIn("which are ahead of ours", master.log())
        stock.stop()
        master.term()
        self.assertEqual([], master.complaints(), master.log()[-20_000:])

    def test_after_fuzzing(self) -> None:
        """Whatever clients put into the tables, Java reads them."""
        with self.scenario("Java reads topics, groups and offsets after clients wrote nonsense"):
            master = self.our_node()
            address = self.until_registered(master)
            seed = os.environ.get("RMQHA_SEED") or str(Random().randrange(10**9))
            sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")
            taken = Nonsense(Random(seed)).send(address, 1500)
            self.assertGreater(taken, 100)
            for code, kind, rows in (
                (RequestCode.GET_ALL_TOPIC_CONFIG, "TopicConfigSerializeWrapper", "nonsense"),
                (
                    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                    "SubscriptionGroupWrapper",
                    "nonsense",
                ),
                (
                    RequestCode.GET_ALL_CONSUMER_OFFSET,
                    "ConsumerOffsetSerializeWrapper",
                    "@nonsense",
                ),
            ):
                body = bytes(client.must(address, code).body)
                told = self.tool.do("table", kind=kind, body=b64encode(body).decode())
                self.assertIn(rows, told)
        master.term()
        self.assertEqual([], master.complaints(), master.log()[-20_000:])

    def until_tables(self, address: str, stock: Broker) -> None:
        """Wait until a stock slave has our master's topics and groups."""
        until(
            lambda: (
                client.topic_names(address) <= client.topic_names(stock.client_address)
                and client.group_names(address) <= client.group_names(stock.client_address)
            ),
            "the stock slave has all topics and groups",
            ROUND,
            tell=stock.tail,
            pause=0.5,
        )
        self.assert_same_tables(address, stock.client_address)


class JavaBehind4Tests(JavaBehindTests):
    version = "4.9.7"


#: What a stock slave of 5.x asks of its master, each again and again.
ASKED = (
    "GET_ALL_TOPIC_CONFIG",
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    "GET_ALL_CONSUMER_OFFSET",
    "GET_ALL_DELAY_OFFSET",
    "GET_ALL_MESSAGE_REQUEST_MODE",
    "GET_TIMER_METRICS",
    "GET_TIMER_CHECK_POINT",
)


class JavaBehind5Tests(JavaBehindTests):
    version = "5.3.3"
    full_only = ("test_quiet_for_long",)

    def quiet(self, seconds: float) -> None:
        """A slave that asks all that it asks, for a while."""
        master = self.our_node()
        stock = self.broker("java-slave", role="SLAVE", timerWheelEnable="true")
        address = self.until_registered(master)
        self.fill(address)
        stock.start()
        began = len(stock.log())
        ends = time.monotonic() + seconds
        self.until_tables(address, stock)

        def asked() -> bool:
            counts = master.status()["remoting"]["requests"]
            return all(counts.get(name) for name in ASKED) and time.monotonic() > ends

        until(asked, "the slave asks everything", seconds + ROUND, tell=master.tail, pause=0.5)
        counts = master.status()["remoting"]["requests"]
        self.assertNotIn("unsupported", counts)
        errors = [line for line in stock.log()[began:].splitlines() if " ERROR " in line]
        self.assertEqual([], errors, stock.tail())
        self.assertEqual(5, client.committed(stock.client_address, "g", self.topic, 0))
        stock.stop()
        master.term()
        self.assertEqual([], master.complaints(), master.log()[-20_000:])

    def test_modes(self) -> None:
        """It has how groups consume topics."""
        with self.scenario("a Java slave takes the request modes of our master"):
            master = self.our_node()
            stock = self.broker("java-slave", role="SLAVE")
            address = self.until_registered(master)
            self.fill(address)
            self.pop(address)
            stock.start()
            self.until_modes(address, stock.client_address)
        stock.stop()
        master.term()
        self.assertEqual([], master.complaints(), master.log()[-20_000:])

    def test_quiet(self) -> None:
        """It has nothing to complain of."""
        with self.scenario("a Java slave's periodic tasks log no error"):
            self.quiet(10)

    def test_quiet_for_long(self) -> None:
        """Not in ten minutes either."""
        with self.scenario("a Java slave logs no error in ten minutes"):
            self.quiet(600)
