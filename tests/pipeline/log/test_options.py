"""Tests for L{rmqha.pipeline.log.options}."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.pipeline.errors import OptionInvalid, OptionMissing, OptionUnknown
from rmqha.pipeline.log.option_values import Edge
from rmqha.pipeline.log.options import ONLY, PointFile, ReadOptions, RowKind, Style, Visibility
from rmqha.pipeline.remoting.errors import NoBrokers
from rmqha.tier.joined_log import only_tier
from tests.support.own_name_server import OwnNameServer


def parse(**given: object) -> ReadOptions:
    """The options of a batch on some store."""
    return ReadOptions.parse({"path": "/data/store", **given})


class ParsingTests(SynchronousTestCase):
    def test_defaults(self) -> None:
        """Only the store has to be said."""
        options = parse()
        self.assertEqual(((ONLY, Path("/data/store")),), options.stores)
        self.assertEqual(
            (RowKind.MESSAGES, Visibility.CONSUMER, Style.RMQHA, PointFile.USE),
            (options.table, options.visibility, options.column_style, options.point_file),
        )
        self.assertEqual(
            (Edge.EARLIEST, Edge.LATEST), (options.starting_offsets, options.ending_offsets)
        )
        self.assertEqual((True, True), (options.verify_crc, options.fail_on_data_loss))

    def test_case_does_not_matter(self) -> None:
        """Spark hands option names on in lower case."""
        self.assertEqual(parse(queueIds="1,2"), parse(queueids="1, 2"))

    def test_sizes(self) -> None:
        """Sizes may have units."""
        for text, size in (("4096", 4096), ("64k", 65536), ("2M", 2 << 20), ("1 gb", 1 << 30)):
            self.assertEqual(size, parse(maxPartitionBytes=text).max_partition_bytes)

    def test_times(self) -> None:
        """A time is milliseconds, or a text with a zone."""
        for text in ("86400000", "1970-01-02T00:00:00Z", "1970-01-02T01:00:00+01:00"):
            self.assertEqual(86_400_000, parse(startingTimestamp=text).starting_timestamp)

    def test_tags(self) -> None:
        """Tags are separated as in a subscription."""
        self.assertEqual(("a", "b,c"), parse(tags="a || b,c").tags)

    def test_property_filter(self) -> None:
        """A filter is written as consumers write it; one that is none is refused with the place."""
        self.assertEqual("a > 5", parse(propertyFilter="a > 5").property_filter)
        error = self.assertRaises(OptionInvalid, parse, propertyFilter="a > ")
        self.assertIn("at character 5: found the end", error.allowed)

    def test_python_values(self) -> None:
        """What Python has need not be made text by the caller."""
        options = parse(
            topic=["a", "b"], verifyCrc=False, startingOffsets={ONLY: 7}, maxPartitionBytes=9
        )
        self.assertEqual((("a", "b"), False), (options.topic, options.verify_crc))
        self.assertEqual(({ONLY: 7}, 9), (options.starting_offsets, options.max_partition_bytes))

    def test_paths(self) -> None:
        """A path may be what Spark's catalog makes of it; several stores have names."""
        self.assertEqual(parse(), ReadOptions.parse({"path": "file:/data/store"}))
        self.assertEqual(parse(), ReadOptions.parse({"path": "file:///data/store"}))
        stores = ReadOptions.parse({"stores": {"b": "/data/b", "a": Path("/data/a")}}).stores
        self.assertEqual((("a", Path("/data/a")), ("b", Path("/data/b"))), stores)
        stores = ReadOptions.parse({"paths": '["/data/one", "/data/two"]'}).stores
        self.assertEqual(("one", "two"), tuple(name for name, _ in stores))


class RefusalTests(SynchronousTestCase):
    """What is not allowed is told by name, value and what would be."""

    def test_each_kind(self) -> None:
        """A wrong value of each kind is refused, and the error shows it."""
        for option, value in (
            ("path", "s3://bucket/store"),
            ("table", "rows"),
            ("topic", "a,,b"),
            ("subscribePattern", "("),
            ("tags", "a || "),
            ("queueIds", "1,x"),
            ("visibility", "all"),
            ("startingOffsets", "first"),
            ("startingOffsets", '{"store": -3}'),
            ("assign", '{"a": []}'),
            ("assign", '{"a": [-1]}'),
            ("assign", '["a"]'),
            ("startingOffsetsByTimestamp", '{"store": 1}'),
            ("startingOffsetsByTimestamp", '{"a": {"0": -1}}'),
            ("minPartitions", "0"),
            ("startingOffsets", '{"store": {"zero": 1}}'),
            ("startingOffsets", '{"store": {"0": "1"}}'),
            ("startingOffsets", '{"other": 1}'),
            ("endingOffsets", "earliest"),
            ("startingTimestamp", "yesterday"),
            ("startingTimestamp", "2026-01-01T00:00:00"),
            ("columnStyle", "camel"),
            ("verifyCrc", "yes"),
            ("maxPartitionBytes", "0"),
            ("maxPartitionBytes", "64 apples"),
            ("pointFile", "no"),
        ):
            error = self.assertRaises(OptionInvalid, parse, **{option: value})
            self.assertEqual((option, value), (error.option, error.value))
            self.assertTrue(error.allowed)

    def test_unknown(self) -> None:
        """A misspelled option is refused, and the nearest is named."""
        error = self.assertRaises(OptionUnknown, parse, topik="a")
        self.assertEqual("unknown option topik; did you mean topic?", str(error))
        self.assertEqual("", self.assertRaises(OptionUnknown, parse, zzz="a").nearest)

    def test_together(self) -> None:
        """Options that say the same thing twice are refused."""
        for given in (
            {"topic": "a", "subscribePattern": "b"},
            {"topic": "a", "subscribe": "b"},
            {"assign": '{"a": [0]}', "queueIds": "1"},
            {"assign": '{"a": [0]}', "topic": "a"},
            {"startingOffsets": "latest", "startingTimestamp": "1"},
            {"endingOffsets": "latest", "endingTimestamp": "1"},
            {"stores": '{"a": "/a"}'},
            {"table": "files", "topic": "a"},
        ):
            self.assertRaises(OptionInvalid, parse, **given)

    def test_no_store(self) -> None:
        """Something has to be read."""
        self.assertRaises(OptionMissing, ReadOptions.parse, {})

    def test_kafka_of_several(self) -> None:
        """Kafka's names would not tell two logs apart."""
        stores = '{"a": "/a", "b": "/b"}'
        given = {"stores": stores, "columnStyle": "kafka"}
        self.assertRaises(OptionInvalid, ReadOptions.parse, given)

    def test_batch_and_stream(self) -> None:
        """Limits are a stream's, ends a batch's; both pass where it is not known yet."""
        for name, value in (("maxBytesPerTrigger", "1m"), ("readerName", "r")):
            self.assertRaises(OptionInvalid, parse, **{name: value})
            ReadOptions.parse({"path": "/s", name: value}, streaming=True)
            ReadOptions.parse({"path": "/s", name: value}, streaming=None)
        for name, value in (("endingOffsets", "latest"), ("table", "files")):
            given = {"path": "/s", name: value}
            self.assertRaises(OptionInvalid, ReadOptions.parse, given, streaming=True)
            ReadOptions.parse(given, streaming=None)
        for places in ('{"topic": {"0": 1}}', '{"topic": {"0": -2}}', '{"s": -1}'):
            given = {"stores": '{"s": "/s"}', "startingOffsets": places}
            ReadOptions.parse(given)
            ReadOptions.parse(given, streaming=True)
        given["startingOffsets"] = '{"topic": {"0": 5, "1": -1}}'
        ReadOptions.parse(given)
        self.assertRaises(OptionInvalid, ReadOptions.parse, given, streaming=True)


class RegisteredTests(SynchronousTestCase):
    """With a name server the stores are those of its brokers."""

    def setUp(self) -> None:
        self.server = OwnNameServer()
        self.addCleanup(self.server.close)
        self.server.register("a", host="10.0.0.1", cluster="one")
        self.server.register("b", host="10.0.0.2", cluster="two")

    def options(self, **given: object) -> ReadOptions:
        return ReadOptions.parse({"nameServer": self.server.address, **given})

    def test_stores(self) -> None:
        """A path is a pattern for all brokers; C{stores} has others; one cluster may be meant."""
        both = (("a", Path("/data/one/a")), ("b", Path("/data/two/b")))
        self.assertEqual(both, self.options(path="/data/{cluster}/{broker}").stores)
        self.assertEqual(
            both[:1], self.options(path="/data/one/{broker}", clusterName="one").stores
        )
        found = self.options(stores={"*": "/data/one/{broker}", "b": "/data/two/b"})
        self.assertEqual(both, found.stores)
        self.assertTrue(found.named)

    def test_tiers(self) -> None:
        """So is the URL of a tier, beside stores or alone."""
        found = self.options(path="/data/{broker}", tier="s3://bucket/{broker}")
        self.assertEqual("s3://bucket/b", found.tier_of("b"))
        self.assertEqual("s3://bucket/later", found.tier_of("later"))
        alone = self.options(
            tier={"*": "s3://x/{cluster}/{broker}", "b": "s3://y"}, clusterName="two"
        )
        self.assertEqual((("b", only_tier("s3://y")),), alone.stores)
        self.assertEqual(("s3://y", "s3://x/two/a"), (alone.tier_of("b"), alone.tier_of("a")))

    def test_refused(self) -> None:
        """What would read one store for another, or none, is told before anything is read."""
        for option, given in (
            ("path", {"path": "/data/store"}),
            ("path", {"path": "/data/{cluster}"}),
            ("path", {"path": "/data/{broker}/{name}"}),
            ("stores", {"stores": '{"a": "/data/{broker}"}'}),
            ("tier", {"tier": "s3://bucket/folder"}),
            ("tier", {"path": "/data/{broker}", "tier": "s3://bucket/{host}/{broker}"}),
            ("tier", {"path": "/data/{broker}", "tier": "s3://bucket/{cluster}/{broker}"}),
            ("storesFile", {"storesFile": "/etc/stores.json"}),
            ("columnStyle", {"path": "/data/{broker}", "columnStyle": "kafka"}),
            ("startingOffsets", {"path": "/data/{broker}", "startingOffsets": '{"a": 1}'}),
        ):
            error = self.assertRaises(OptionInvalid, self.options, **given)
            self.assertEqual(option, error.option)
        self.assertRaises(OptionMissing, self.options)
        error = self.assertRaises(NoBrokers, self.options, path="/{broker}", clusterName="three")
        self.assertIn("no broker of cluster three is registered at 127.0.0.1:", str(error))
        error = self.assertRaises(OptionInvalid, parse, clusterName="one")
        self.assertIn("only with nameServer", str(error))
