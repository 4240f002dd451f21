"""What a node tells of itself."""

from __future__ import annotations

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.health import HealthProbe, HealthReason
from rmqha.page.own import GROUPS_FOR, MOST_EVENTS, MOST_GROUPS
from rmqha.page.told import GroupRow, NodePage
from rmqha.wire.remoting import json_body
from tests.nodes.test_summary import NAMESRV
from tests.page.support import NOW, ToldNode, own_page

DAY = 86_400_000


class OwnPageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node, self.clock = ToldNode(), Clock()
        self.own = own_page(self.node, self.clock)

    def told(self) -> NodePage:
        asked = ensureDeferred(self.own.told())
        self.clock.pump([0.0] * 10)
        return self.successResultOf(asked)

    def test_who(self) -> None:
        """It says who it is, and what is wrong; its own word comes through JSON unchanged."""
        self.node.wrong = [
            HealthReason("disk-full", "no space"),
            HealthReason("first-copy", "", fails=HealthProbe.READY),
        ]
        self.own.history.look()
        page = self.told()
        self.assertEqual(
            (page.name, page.broker_name, page.role), ("broker-a/0", "broker-a", "master")
        )
        self.assertEqual(page.problem, "disk-full: no space")
        self.assertEqual({each.name for each in page.series}, {"lag", "writes"})
        self.assertEqual(json_body.read(NodePage, json_body.write(page)), page)

    def test_name_server(self) -> None:
        """A name server has a page too."""
        self.node.described = NAMESRV
        page = self.told()
        self.assertEqual((page.name, page.broker_name), ("name server", ""))

    def test_events(self) -> None:
        """Events of a day are told, the latest first, and not more than some."""
        ages = [DAY + 1, DAY - 1, *range(MOST_EVENTS, 0, -1)]
        self.node.events = [{"time": NOW - age, "kind": "state", "text": "x"} for age in ages]
        self.assertEqual(
            [NOW - event.time for event in self.told().events], list(range(1, MOST_EVENTS + 1))
        )
        del self.node.events[2:]
        self.assertEqual([NOW - event.time for event in self.told().events], [DAY - 1])

    def test_groups(self) -> None:
        """The groups that are furthest behind are told, and not looked up with each question."""
        self.node.groups = [
            None,
            *(GroupRow(group=f"g{n}", topic="T", messages=n) for n in range(1, MOST_GROUPS + 10)),
        ]
        for times in (1, 1, 2):
            rows = self.told().groups
            self.assertEqual((len(rows), rows[0].messages), (MOST_GROUPS, MOST_GROUPS + 9))
            self.assertEqual(self.node.looked_up, times)
            self.clock.advance(GROUPS_FOR / 2)

    def test_refused(self) -> None:
        """What was refused is told by reason, the commonest first; what ends every day is not."""
        self.node.described |= {
            "closedConnections": {"peer": 100, "not-allowed": 3},
            "remoting": {
                "closed": {"idle": 9, "tls-handshake": 2},
                "refusedRequests": [{"code": 9999, "name": None, "client": "10.0.0.7", "count": 7}],
            },
        }
        self.assertEqual(
            [(row.port, row.reason, row.client, row.count) for row in self.told().refused],
            [
                ("clients", "request 9999", "10.0.0.7", 7),
                ("HA", "not-allowed", "", 3),
                ("clients", "tls-handshake", "", 2),
            ],
        )
