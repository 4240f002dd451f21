"""Which of a master's tables are believed."""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.cluster import metadata_rules
from rmqha.broker.cluster.metadata_rules import AnotherBroker, Last, MetadataRefused, TableChecks
from rmqha.wire.remoting.bodies.common import DataVersion
from tests.broker.metadata_master import group, offsets_body, topic
from tests.support.frames import frames

BEFORE = DataVersion(counter=5, timestamp=1000)


def topics_body(*names: str, version: dict[str, int] | None = None, **instead: Any) -> bytes:
    """A table of topics: those every broker has, and some."""
    table = {name: topic(name) for name in ("broker-a", "C", *names)}
    whole = {
        "dataVersion": version or {"counter": 6, "timestamp": 2000},
        "topicConfigTable": table,
    } | instead
    return json.dumps(whole).encode()


def held(*names: str, version: DataVersion | None = BEFORE, own: bool = False) -> TableChecks:
    """What was adopted before: these names, besides those every broker has."""
    known = frozenset(names)
    last = None if own else known | {"broker-a", "C"}
    return TableChecks(last=Last(version=version, names=last), own=known)


@frozen
class Case:
    """One table and what is to become of it: a reason, or C{""} if it is believed."""

    what: str
    body: bytes
    held: TableChecks
    refused: str = ""


WHOLE = topics_body("A", "B")
FIRST = TableChecks()

TOPICS = (
    Case("the first", WHOLE, FIRST),
    Case("the first that has nothing of ours", WHOLE, held("X", version=None, own=True), "X"),
    Case("a newer one", WHOLE, held("A")),
    Case("the same one", topics_body("A", version={"counter": 5, "timestamp": 1000}), held("A")),
    Case("nothing", b"", FIRST, "0 bytes"),
    Case("an empty object", b"{}", FIRST, "no topicConfigTable"),
    Case("an array", b"[1]", FIRST, "no topicConfigTable"),
    Case("another table", b'{"offsetTable":{}}', FIRST, "no topicConfigTable"),
    Case("null for the table", b'{"topicConfigTable":null}', FIRST, "no topicConfigTable"),
    Case("an empty table", topics_body(topicConfigTable={}), FIRST, "empty"),
    Case("half of it", WHOLE[: len(WHOLE) // 2], FIRST, f"{len(WHOLE) // 2} bytes"),
    Case("all but the last byte", WHOLE[:-1], FIRST, "bytes"),
    Case("noise", bytes(range(128, 256)), FIRST, "128 bytes"),
    Case(
        "a number for a topic",
        topics_body(topicConfigTable={"A": 1}),
        FIRST,
        "A: 1 is not an object",
    ),
    Case(
        "a topic under another's name",
        topics_body(topicConfigTable={"A": topic("B")}),
        FIRST,
        "the entry 'A' holds topic 'B'",
    ),
    Case(
        "a negative number of queues",
        topics_body(topicConfigTable={"A": topic("A", readQueueNums=-1)}),
        FIRST,
        "a negative number of queues",
    ),
    Case(
        "an older counter",
        topics_body("A", version={"counter": 4, "timestamp": 9000}),
        held("A"),
        "version 4 of 9000 is older than the adopted version 5 of 1000",
    ),
    Case(
        "an older time",
        topics_body("A", version={"counter": 5, "timestamp": 999}),
        held("A"),
        "older",
    ),
    Case(
        "a clock that stepped back",
        topics_body("A", version={"counter": 6, "timestamp": 10}),
        held("A"),
    ),
    Case(
        "a new term of the controller",
        topics_body("A", version={"counter": 1, "timestamp": 10, "stateVersion": 1}),
        held("A"),
    ),
    Case("one deleted, one change", topics_body("A"), held("A", "B")),
    Case("all deleted, as many changes", topics_body(), held("A")),
    Case("two gone, one change", topics_body(), held("A", "B"), "2 entries are gone in 1 changes"),
    Case("all gone, after a start", topics_body(), held("A", "B", own=True), "2 entries are gone"),
    Case("some gone, after a start", topics_body("A"), held("A", "B", "D", own=True)),
)


class TopicsTests(SynchronousTestCase):
    """Tables of topics, and those of groups by the same rules."""

    def test_table(self) -> None:
        """Each is taken whole, or refused with a reason."""
        for case in TOPICS:
            with self.subTest(case.what):
                if not case.refused:
                    table = metadata_rules.topics(case.body, case.held, "broker-a", "C")
                    self.assertIn("broker-a", table.topic_config_table)
                    continue
                with self.assertRaises(MetadataRefused) as caught:
                    metadata_rules.topics(case.body, case.held, "broker-a", "C")
                self.assertIn(case.refused, str(caught.exception))
                self.assertNotIsInstance(caught.exception, AnotherBroker)

    def test_every_cut(self) -> None:
        """However much of a table is missing, none of it is believed."""
        for size in range(len(WHOLE)):
            with self.assertRaises(MetadataRefused):
                metadata_rules.topics(WHOLE[:size], FIRST, "broker-a", "C")

    def test_another_broker(self) -> None:
        """A table without the topics of our name and cluster is another broker's."""
        for broker, cluster, missing in (
            ("broker-b", "C", "no topic broker-b,"),
            ("broker-a", "D", "no topic D,"),
            ("broker-b", "D", "no topic broker-b and no topic D,"),
        ):
            with self.assertRaises(AnotherBroker) as caught:
                metadata_rules.topics(WHOLE, FIRST, broker, cluster)
            self.assertIn(missing, str(caught.exception))

    def test_groups(self) -> None:
        """Groups: what is empty, older or of a wrong shape is refused."""

        def body(*names: str, counter: int = 6, **instead: Any) -> bytes:
            table = {name: group(name) for name in ("TOOLS_CONSUMER", *names)}
            version = {"counter": counter, "timestamp": 2000}
            return json.dumps(
                {"dataVersion": version, "subscriptionGroupTable": table} | instead
            ).encode()

        before = TableChecks(
            last=Last(version=BEFORE, names=frozenset({"TOOLS_CONSUMER", "G", "H"}))
        )
        table = metadata_rules.groups(body("G"), before)
        self.assertEqual({"TOOLS_CONSUMER", "G"}, set(table.subscription_group_table))
        for bad in (
            b"{}",
            body("G", subscriptionGroupTable={}),
            body("G", subscriptionGroupTable={"G": group("H")}),
            body("G", "H", counter=4),
            body(),
            body("G")[:-2],
        ):
            with self.assertRaises(MetadataRefused):
                metadata_rules.groups(bad, before)

    def test_captured(self) -> None:
        """All tables stock masters gave their slaves are believed, one after the other."""
        for version in ("4.9.7", "5.3.3"):
            last, seen = {21: TableChecks(), 201: TableChecks()}, 0
            for frame in frames(f"slave-master-{version}"):
                if not frame.is_answer or frame.note["code"] != 0:
                    continue
                if frame.request_code == 21:
                    topics = metadata_rules.topics(frame.body, last[21], "rem-a", "RemCluster")
                    names = frozenset(topics.topic_config_table)
                    last[21] = TableChecks(last=Last(version=topics.data_version, names=names))
                elif frame.request_code == 201:
                    groups = metadata_rules.groups(frame.body, last[201])
                    names = frozenset(groups.subscription_group_table)
                    last[201] = TableChecks(last=Last(version=groups.data_version, names=names))
                elif frame.request_code == 43:
                    metadata_rules.offsets(frame.body, False)
                elif frame.request_code == 45:
                    metadata_rules.delays(frame.body, False)
                else:
                    continue
                seen += 1
            self.assertGreater(seen, 20, version)


class OffsetsTests(SynchronousTestCase):
    def test_refused(self) -> None:
        """What is no table, and one that is suddenly empty."""
        whole = offsets_body({"T@g": {0: 12, 1: 7}})
        for read in (metadata_rules.offsets, metadata_rules.delays):
            for bad in (b"", b"{}", b"null", whole[:-3], b'{"offsetTable":[]}'):
                with self.assertRaises(MetadataRefused):
                    read(bad, False)
            with self.assertRaises(MetadataRefused):
                read(b'{"offsetTable":{}}', True)
            self.assertEqual({}, read(b'{"offsetTable":{}}', False).offset_table)

    def test_unsound_entries(self) -> None:
        """Single offsets that cannot be are left out: a stock broker keeps what a client says."""
        body = offsets_body({"T@g": {0: 12, 1: -5, -1: 3}, "nobody": {0: 1}})
        self.assertEqual({"T@g": {0: 12}}, metadata_rules.offsets(body, False).offset_table)

    def test_more_of_5(self) -> None:
        """What 5.x puts beside the offsets is kept."""
        table = metadata_rules.offsets(offsets_body({}, groupTopicMap={"g": ["T"]}), False)
        self.assertEqual({"groupTopicMap": {"g": ["T"]}}, table.extra)

    def test_delays(self) -> None:
        """A delay level that cannot be is no table."""
        self.assertEqual({3: 7}, metadata_rules.delays(b'{"offsetTable":{3:7}}', True).offset_table)
        for bad in (b'{"offsetTable":{0:1}}', b'{"offsetTable":{3:-1}}', b'{"offsetTable":{-3:1}}'):
            with self.assertRaises(MetadataRefused):
                metadata_rules.delays(bad, False)
