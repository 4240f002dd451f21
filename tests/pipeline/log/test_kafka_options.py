"""Tests for options that users of Spark's Kafka source know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.wire.log import split_spans
from tests.support.rows import expected, publish
from tests.support.topic_store import TopicStore

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from rmqha.pipeline.errors import OptionInvalid
    from rmqha.pipeline.jobs.export import of_ranges
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.tables import schema_of
    from rmqha.pipeline.read import options_of
    from rmqha.pipeline.scan import scan
    from rmqha.pipeline.sinks.position import selection_of
    from rmqha.pipeline.spark import stream
    from rmqha.pipeline.spark.types import spark_schema
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


def rows(store: Path, **options: object) -> list[tuple[str, int, int]]:
    """Topic, queue and queue offset of all rows."""
    columns = "topic,queue_id,queue_offset"
    found = scan(store, columns=columns, **options).read_all().to_pylist()
    return [(row["topic"], row["queue_id"], row["queue_offset"]) for row in found]


class SelectionTests(SynchronousTestCase):
    """Topics, queues and places in them, by the names of Spark's Kafka source."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        records = expected("5.3.3", "store")
        self.end = records[-1]["physicalOffset"] + records[-1]["size"]
        publish(self.store, self.end)
        self.all = rows(self.store)
        self.topic = max({row[0] for row in self.all}, key=[row[0] for row in self.all].count)
        self.queues = sorted({row[1] for row in self.all if row[0] == self.topic})

    def test_subscribe(self) -> None:
        """C{subscribe} is C{topic}."""
        found = rows(self.store, subscribe=self.topic)
        self.assertEqual([row for row in self.all if row[0] == self.topic], found)

    def test_assign(self) -> None:
        """C{assign} names queues of topics."""
        queue = self.queues[-1]
        found = rows(self.store, assign=json.dumps({self.topic: [queue]}))
        self.assertTrue(found)
        self.assertEqual([row for row in self.all if row[:2] == (self.topic, queue)], found)

    def test_edges(self) -> None:
        """-1 is the end and -2 the beginning, of a log and of a queue."""
        for start, end, wanted in (
            (-2, -1, self.all),
            (-1, -1, []),
            (-2, -2, []),
            (0, -1, self.all),
        ):
            found = rows(self.store, startingOffsets={"store": start}, endingOffsets={"store": end})
            self.assertEqual(wanted, found, (start, end))
        queue = self.queues[0]
        others = [row for row in self.all if row[:2] != (self.topic, queue)]
        for edge, wanted in ((-1, others), (-2, self.all)):
            places = json.dumps({self.topic: {str(queue): edge}})
            self.assertEqual(wanted, rows(self.store, startingOffsets=places))
        for edge, wanted in ((-1, self.all), (-2, others)):
            places = json.dumps({self.topic: {str(queue): edge}})
            self.assertEqual(wanted, rows(self.store, endingOffsets=places))

    def test_times_of_queues(self) -> None:
        """A queue may begin at a time of its own."""
        table = scan(self.store, columns="topic,queue_id,queue_offset,store_timestamp").read_all()
        timed = [
            (row["topic"], row["queue_id"], row["queue_offset"], row["store_timestamp"])
            for row in table.to_pylist()
        ]
        queue = self.queues[0]
        times = sorted(row[3] for row in timed if row[:2] == (self.topic, queue))
        middle = times[len(times) // 2]
        places = {self.topic: {str(queue): round(middle.timestamp() * 1000)}}
        wanted = [row[:3] for row in timed if row[:2] != (self.topic, queue) or row[3] >= middle]
        self.assertLess(len(wanted), len(timed))
        self.assertEqual(wanted, rows(self.store, startingOffsetsByTimestamp=json.dumps(places)))

    def test_beyond_the_end(self) -> None:
        """A place that the log has not reached gives no rows, and says so."""
        with self.assertLogs("rmqha.pipeline.log.ranges", "WARNING") as logs:
            self.assertEqual([], rows(self.store, startingOffsets={"store": self.end + 1}))
        self.assertIn(f"is {self.end + 1}, but its log ends at byte {self.end}", logs.output[0])

    def test_unknown_topic(self) -> None:
        """A topic that the broker does not have is told, with the nearest that it has."""
        table = {"topicConfigTable": {name: {} for name, _, _ in self.all}}
        (self.store / "config").mkdir(exist_ok=True)
        (self.store / "config" / "topics.json").write_text(json.dumps(table))
        with self.assertLogs("rmqha.pipeline.log.ranges", "WARNING") as logs:
            self.assertEqual([], rows(self.store, topic=self.topic + "x"))
        self.assertIn(f"did you mean {self.topic}?", logs.output[0])
        with self.assertNoLogs("rmqha.pipeline.log.ranges", "WARNING"):
            rows(self.store, topic=self.topic)


class ExportTests(SynchronousTestCase):
    """Exports plan ranges without row options, and tables know their rows by them."""

    def test_ranges(self) -> None:
        """An option of rows is not given to ranges, which would refuse it."""
        given = {"propertyFilter": "a > 1", "assign": '{"a": [0]}', "subscribe": "a", "mode": "x"}
        self.assertEqual({"minPartitions": 3}, of_ranges({**given, "minPartitions": 3}))

    def test_selections(self) -> None:
        """Two choices of rows are two selections of a table; what chooses nothing changes none."""
        found = [
            selection_of(ReadOptions.parse({"path": "/s", **given}))
            for given in (
                {},
                {"keepPageCache": "true", "minPartitions": "3"},
                {"propertyFilter": "a > 1"},
                {"propertyFilter": "a > 2"},
                {"assign": '{"a": [0]}'},
                {"assign": '{"a": [1]}'},
                {"startingOffsetsByTimestamp": '{"a": {"0": 5}}'},
            )
        ]
        self.assertEqual(found[0], found[1])
        self.assertEqual(len(found) - 1, len(set(found)))


class PartitionTests(SynchronousTestCase):
    def test_least(self) -> None:
        """There are as many as asked for, where the index has enough places."""
        self.patch(split_spans, "SPAN", 1 << 18)
        store = TopicStore(Path(self.mktemp()), ["a"] * 7000, 1000)
        few = scan(store.root, table="ranges").read_all().num_rows
        many = scan(store.root, table="ranges", minPartitions=12).read_all().num_rows
        self.assertLess(few, 4)
        self.assertGreaterEqual(many, 12)


class TriggerTests(SynchronousTestCase):
    def test_least_bytes(self) -> None:
        """It waits for enough bytes, and no longer than it may."""
        self.patch(split_spans, "SPAN", 1 << 18)
        store = TopicStore(Path(self.mktemp()), ["a"] * 300, 1000)
        now = [100.0]
        self.patch(stream.time, "monotonic", lambda: now[0])
        given: dict[str, Any] = {"minBytesPerTrigger": "200k", "maxTriggerDelay": "30s"}
        options = ReadOptions.parse({"path": store.root, **given}, streaming=True)
        publish(store.root, store.starts[100])
        reader = stream.StreamReader(options, spark_schema(schema_of(options)))

        def latest(start: dict[str, Any]) -> dict[str, Any]:
            found = reader.latestOffset(start, reader.getDefaultReadLimit())
            return dict(json.loads(json.dumps(found)))

        start = reader.initialOffset()
        self.assertEqual(start, latest(start))
        now[0] += 29
        self.assertEqual(start, latest(start))
        publish(store.root, store.starts[250])  # enough
        first = latest(start)
        self.assertEqual(store.starts[250], first["stores"]["store"]["offset"])
        publish(store.root, store.end)  # too little, until the delay is over
        self.assertEqual(first, latest(first))
        now[0] += 30
        self.assertEqual(store.end, latest(first)["stores"]["store"]["offset"])

    def test_once(self) -> None:
        """A stream that looks once, as Spark asks for all, neither waits nor leaves out."""
        store = golden.store("5.3.3")
        record = expected("5.3.3", "store")[-1]
        end = record["physicalOffset"] + record["size"]
        publish(store, end)
        for given in (
            {"minBytesPerTrigger": "1g"},
            {"maxRowsPerTrigger": "64"},
            {"maxOffsetsPerTrigger": "64"},
            {"maxBytesPerTrigger": "1k", "maxRowsPerTrigger": "64"},
        ):
            options = ReadOptions.parse({"path": store, **given}, streaming=True)
            reader = stream.StreamReader(options, spark_schema(schema_of(options)))
            self.assertNotIsInstance(reader.getDefaultReadLimit(), ReadAllAvailable)
            found = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
            self.assertEqual(end, found["stores"]["store"]["offset"], given)

    def test_rows(self) -> None:
        """Kafka's word for the rows of a batch is taken."""
        store = golden.store("5.3.3")
        options = ReadOptions.parse({"path": store, "maxOffsetsPerTrigger": 64}, streaming=True)
        self.assertEqual(64, options.max_rows_per_trigger)
        for other in ({"maxRowsPerTrigger": 64}, {}):
            given = {"path": store, "maxOffsetsPerTrigger": 64, **other}
            self.assertRaises(OptionInvalid, ReadOptions.parse, given, streaming=bool(other))


class ColumnTests(SynchronousTestCase):
    def test_headers(self) -> None:
        """Headers are there where they are asked for."""
        kafka = {"path": golden.store("5.3.3"), "columnStyle": "kafka"}
        for more, wanted in (
            ({}, False),
            ({"includeHeaders": True}, True),
            ({"columns": "value,headers"}, True),
        ):
            found = schema_of(ReadOptions.parse({**kafka, **more}))
            self.assertEqual(wanted, "headers" in found.names, more)
        given = {"path": kafka["path"], "includeHeaders": True}
        self.assertRaises(OptionInvalid, ReadOptions.parse, given)


class FilterTests(SynchronousTestCase):
    def test_taken(self) -> None:
        """Comparisons that options can say are said by them."""
        for where, wanted in (
            ("topic = 'a'", {"topic": "a"}),
            ("TOPIC in ('a', 'b') AND queue_id = 3", {"topic": "a,b", "queueIds": "3"}),
            (
                "queue_id IN (0,1) and flag > 2 and tags == 'x y'",
                {"queueIds": "0,1", "tags": "x y"},
            ),
            ("(flag = 1 AND size < 2) AND topic = 'a'", {"topic": "a"}),
            ("topic = 'a' AND topic = 'b'", {"topic": "a"}),
            (
                "store_timestamp >= '2026-01-31T12:00:00Z'",
                {"startingTimestamp": "2026-01-31T12:00:00Z"},
            ),
        ):
            self.assertEqual(wanted, options_of(where), where)

    def test_left(self) -> None:
        """What could mean something else is left to Spark."""
        for where in (
            "topic = 'a' OR topic = 'b'",
            "NOT topic = 'a'",
            "topic != 'a'",
            "topic NOT IN ('a')",
            "(topic = 'a')",
            "topic = 'a,b'",
            "topic = r'a'",
            "topic = 'a' 'b'",
            "topic = 'it\\'s'",
            'topic = "a"',
            "topic = 'a' -- AND",
            "`topic` = 'a'",
            "topic = tags",
            "topic = 'a' = true",
            "tags = '*'",
            "queue_id = 1.5",
            "queue_id IN (1, tags)",
            "store_timestamp >= '2026-01-31 12:00:00'",
            "store_timestamp >= 'yesterday'",
            "CASE WHEN true AND topic = 'a' AND true THEN true END",
            "size BETWEEN 1 AND topic = 'a'",
            "topic IN ()",
            "topic",
            "",
        ):
            self.assertEqual({}, options_of(where), where)
