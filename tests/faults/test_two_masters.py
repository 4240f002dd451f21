"""The old master comes back as a master beside the one that was promoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, send
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.roles.host.exit_codes import FOR_A_PERSON
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.namesrv import RouteRequest
from rmqha.wire.remoting.json_body import read
from tests.faults.test_promote import PromotionTestCase

TOPIC = "Orders"

#: Longest wait for what takes a registration, ten seconds at the least, or a look for twins.
A_ROUND = 60.0


class TwoMastersTests(PromotionTestCase):
    """The steps of a split brain: a master is killed, its slave promoted, and a hundred messages
    are
    acknowledged by that one and a new slave.  Then the C{old} one is started, unaware.

    @ivar copy: The new slave, which learns its master from the name server and may cut its log.
    """

    def setUp(self) -> None:
        """Up to where the old one is to come back."""
        super().setUp()
        self.names, self.old, slave, told = self.serve(
            registerNameServerPeriod=10000, slaveTimeout=20000
        )
        self.send(self.old, 200, "before")
        slave.until_synced(self.old.status()["maxOffset"])
        self.old.kill9()
        slave.term()
        self.assertEqual(1, self.promote(slave)["masterEpoch"])
        self.told = told | {"brokerRole": "SYNC_MASTER"}
        self.new = Node(self.folder, "master", "promoted", root=slave.root, **self.told)
        self._processes.append(self.new)
        self.serving(self.new)
        self.copy = Node(
            self.folder,
            "slave",
            "copy",
            **{**told, "brokerId": 1, "haDivergencePolicy": "truncate"},
        )
        self._processes.append(self.copy)
        self.copy.start()
        self.copy.until_synced(self.new.status()["maxOffset"])
        self.acked = self.send(self.new, 100, "acked")

    def serving(self, node: Node) -> None:
        """Start a master, and wait until it has registered: then clients are served."""
        node.start()
        node.until(
            lambda status: "not yet" not in str(status["remoting"].get("nameServers", "not yet")),
            "told the name server",
        )

    def send(self, node: Node, count: int, name: str, code: int = 0) -> list[bytes]:
        """Send messages that are all answered alike, and return their bodies."""
        sent = [f"{name}-{number:04}".encode() for number in range(count)]
        with Remote(node.port) as client:
            codes = {answer.code for answer in client.ask_all([send(TOPIC, one) for one in sent])}
        self.assertEqual({code}, codes, node.tail())
        return sent

    def held(self, node: Node) -> list[bytes]:
        """The bodies in the log of a stopped node."""
        settings = self.settings(node)
        log = OfflineLog(settings.root, settings.file_size)
        found = []
        for view, block in scan(log, log.min_offset, log.end):
            for offset in block.start.tolist():
                record = decode(view, offset - block.base, offset)
                if record.topic == TOPIC:
                    found.append(bytes(record.body))
        log.close()
        return found

    def routed(self) -> str | None:
        """The master that clients are told of."""
        request = Command(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=to_ext(RouteRequest(topic=TOPIC))
        )
        with Remote(self.names.port) as client:
            answer = client.ask(request)
        if answer.code:
            return None
        (data,) = read(TopicRoute, answer.body).broker_datas
        return data.broker_addrs.get(0)

    def address(self, node: Node) -> str:
        """Where clients of a broker connect."""
        return f"127.0.0.1:{node.port}"

    def named(self, status: dict[str, Any]) -> str:
        """What a slave says of the master that it has."""
        return str((status["upstream"] or {}).get("address"))

    def assertNothingLost(self) -> None:
        """The promoted one and its slave go on; both have every acknowledged message."""
        more = self.send(self.new, 20, "after")
        self.copy.until_synced(self.new.status()["maxOffset"])
        self.assertEqual(f"127.0.0.1:{self.new.ha_port}", self.named(self.copy.status()))
        self.assertEqual(self.address(self.new), self.routed())
        quarantine: Path = self.copy.root / "rmqha" / "quarantine"
        self.assertFalse(quarantine.exists(), self.copy.tail())
        for node in (self.copy, self.new):
            node.term()
            self.assertLessEqual({*self.acked, *more}, set(self.held(node)))
            self.assertEqual([], node.complaints(), node.tail())

    def until_fenced(self) -> None:
        """Wait until the old one knows that it is not the master any more."""
        status = self.old.until(lambda status: status["state"] == "fenced", "fenced", A_ROUND)
        self.assertEqual(
            (1, self.address(self.new)),
            (status["fencedBy"]["epoch"], status["fencedBy"]["address"]),
        )
        self.assertEqual(503, self.old.health())
        self.send(self.old, 1, "refused", int(ResponseCode.SERVICE_NOT_AVAILABLE))
        self.assertIn("Fenced, accepting no more writes", self.old.log())

    def test_does_not_start(self) -> None:
        """The old one does not start beside the promoted one, and names both with their epochs."""
        self.old.launch()
        self.assertEqual(FOR_A_PERSON, self.old.wait())
        said = self.old.log()
        self.assertIn(
            f"Cannot start: {self.address(self.new)} is a live master of broker-a with master "
            f"epoch 1; this store, to be served at {self.address(self.old)}, has master epoch 0",
            said,
        )
        self.assertNothingLost()

    def test_forced(self) -> None:
        """Started all the same it is fenced within a registration, and never in the routes; started
        again without the other it is still fenced; and as a slave it follows, its own messages in
        quarantine.
        """
        self.old.arguments = ["--force"]
        self.serving(self.old)
        self.until_fenced()
        self.assertEqual(self.address(self.new), self.routed())
        (row,) = self.names.status()["refusedMasters"]
        self.assertEqual((self.address(self.old), 0), (row["address"], row["masterEpoch"]))
        self.old.term()
        self.assertEqual(self.address(self.new), self.routed())
        self.old.arguments = []
        self.old.keys["namesrvAddr"] = ""
        self.old.start()
        self.old.until(lambda status: status["state"] == "fenced", "fenced again")
        self.old.term()
        rejoined = self.slave(
            self.new.address,
            "rejoined",
            root=self.old.root,
            **{
                **self.told,
                "brokerRole": "SLAVE",
                "brokerId": 2,
                "haDivergencePolicy": "truncate",
                "haMasterClientAddress": self.address(self.new),
            },
        )
        rejoined.start()
        rejoined.until_synced(self.new.status()["maxOffset"])
        status = rejoined.status()
        self.assertEqual((1, None), (status["masterEpoch"], status["fencedBy"]))
        rejoined.term()
        self.assertNothingLost()

    def test_while_the_other_is_away(self) -> None:
        """The old one starts while the promoted one is stopped, and takes writes: the slave does
        not follow it.  When the promoted one is back, the old one is fenced.
        """
        self.new.term()
        self.old.keys["brokerRole"] = "ASYNC_MASTER"
        self.serving(self.old)
        self.send(self.old, 50, "fork")
        self.copy.until(
            lambda status: "is not followed" in status["upstream"]["named"], "refuses", A_ROUND
        )
        self.assertEqual(f"127.0.0.1:{self.new.ha_port}", self.named(self.copy.status()))
        self.serving(self.new)
        self.until_fenced()
        until(lambda: self.routed() == self.address(self.new), "the route", A_ROUND)
        self.copy.until_synced(self.new.status()["maxOffset"])
        self.assertNothingLost()
