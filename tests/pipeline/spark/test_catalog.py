"""Tests for L{rmqha.pipeline.spark.source}."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.pipeline.errors import OptionInvalid
from tests.support.rows import expected, publish
from tests.support.spark_needs import need_java

try:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import LongType, StructField, StructType

    from rmqha.pipeline.spark.source import (
        is_sink,
        is_table,
        options_of,
        recalled,
        recalled_for_sending,
        remembering,
    )
    from tests.support.spark import session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

#: What Spark hands on when a table is made.
PROPERTIES = {
    "comment": "all orders",
    "location": "file:/data/store",
    "option.topic": "orders",
    "owner": "root",
    "path": "file:/data/store",
    "provider": "rmqha",
    "topic": "orders",
    "zone": "of somebody else",
}
OPTIONS = {"path": "file:/data/store", "topic": "orders"}


class CatalogTests(SynchronousTestCase):
    """A table's options survive in its schema."""

    def test_properties(self) -> None:
        """Of a table's properties only its options and its path count; of a read everything."""
        self.assertTrue(is_table(PROPERTIES))
        self.assertEqual(OPTIONS, options_of(PROPERTIES))
        self.assertFalse(is_table(OPTIONS))
        self.assertEqual({**OPTIONS, "topik": "x"}, options_of({**OPTIONS, "topik": "x"}))

    def test_memory(self) -> None:
        """A schema's memory is there when Spark gives nothing, and yields to what it gives."""
        plain = StructType([StructField("a", LongType()), StructField("b", LongType())])
        schema = remembering(plain, OPTIONS)
        self.assertEqual(plain.names, schema.names)
        schema = StructType.fromJson(schema.jsonValue())
        self.assertEqual(OPTIONS, recalled(schema, {}))
        self.assertEqual({**OPTIONS, "topic": "x"}, recalled(schema, {"topic": "x"}))
        self.assertEqual({}, recalled(plain, {}))

    def test_property_is_no_option(self) -> None:
        """What was said where it does nothing is an error; others' properties are not."""
        for name in ("visibility", "Topic", "nameServer"):
            given = {"provider": "rmqha", "path": "/data", name: "x"}
            self.assertEqual(name, self.assertRaises(OptionInvalid, options_of, given).option)
            options_of({**given, f"option.{name}": "x"})

    def test_sending(self) -> None:
        """Reads and writes of a table get each what is theirs."""
        plain = StructType([StructField("body", LongType())])
        both = {"path": "/data", "topic": "a,b", "nameServer": "h:1", "retries": "5"}
        schema = remembering(plain, both)
        self.assertEqual({"path": "/data", "topic": "a,b"}, recalled(schema, {}))
        self.assertEqual({"nameServer": "h:1", "retries": "5"}, recalled_for_sending(schema, {}))
        self.assertFalse(is_sink(both))
        sink = {"nameServer": "h:1", "topic": "a"}
        self.assertTrue(is_sink(sink))
        schema = remembering(plain, sink)
        self.assertEqual({**sink, "topic": "b"}, recalled_for_sending(schema, {"topic": "b"}))

    def test_name_server_of_reads(self) -> None:
        """A name server is asked by reads of a pattern for brokers, and by all writes."""
        plain = StructType([StructField("body", LongType())])
        asking = {"nameServer": "h:1", "tlsConfigFile": "/etc/tls"}
        for places in ({"path": "/data/{broker}"}, {"tier": "s3://bucket/{broker}"}):
            schema = remembering(plain, {**places, **asking, "retries": "5"})
            self.assertEqual({**places, **asking}, recalled(schema, {}))
            self.assertEqual({**asking, "retries": "5"}, recalled_for_sending(schema, {}))
            self.assertFalse(is_sink({**places, **asking}))


class TableTests(SynchronousTestCase):
    def setUp(self) -> None:
        need_java()
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")
        self.publish(100)

    def publish(self, records: int) -> None:
        """Let readers see so many records."""
        publish(self.store, self.records[records]["physicalOffset"])

    def test_ways(self) -> None:
        """However a table was made, it has its options, and each query sees what has come; so does
        a view of it.  Dropped, it leaves the store as it is.
        """
        spark = session()
        path = f"path '{self.store}'"
        columns = "visibility 'log', columns 'topic,physical_offset'"
        stores = json.dumps({"x": str(self.store)})
        made = {
            "by_location": f"OPTIONS ({columns}) LOCATION '{self.store}'",
            "by_url": f"OPTIONS ({columns}) LOCATION 'file://{self.store}'",
            "by_path": f"OPTIONS ({path}, {columns}) COMMENT 'c' TBLPROPERTIES ('team'='x')",
            "by_stores": f"OPTIONS (stores '{stores}', {columns})",
        }
        for name, how in made.items():
            spark.sql(f"DROP TABLE IF EXISTS {name}")
            spark.sql(f"CREATE TABLE {name} USING rmqha {how}")
        spark.sql("DROP TABLE IF EXISTS by_api")
        spark.catalog.createTable(
            "by_api", str(self.store), "rmqha", visibility="log", columns="topic,physical_offset"
        )
        spark.sql("CREATE OR REPLACE VIEW topics AS SELECT topic FROM by_path")
        names = [*made, "by_api", "topics"]
        everywhere = " UNION ALL ".join(f"SELECT count(*) AS n FROM {name}" for name in names)
        for records in (100, 200):
            self.publish(records)
            found = spark.sql(everywhere).collect()
            self.assertEqual([records] * len(names), [row["n"] for row in found])
            self.assertEqual(records, spark.table("by_api").count())
        self.assertEqual(["topic", "physical_offset"], spark.table("by_stores").columns)
        narrow = sum(each["topic"] == "GoldenA" for each in self.records[:200])
        found = spark.read.option("topic", "GoldenA").table("by_path").count()
        self.assertEqual(narrow, found)
        before = sorted(self.store.rglob("*"))
        spark.sql("DROP VIEW topics")
        for name in (*made, "by_api"):
            spark.sql(f"DROP TABLE {name}")
        self.assertEqual(before, sorted(self.store.rglob("*")))

    def test_refused(self) -> None:
        """What Spark would forget, or nobody knows, is told when a table is made or first read."""
        sql = session().sql
        for how, reason in (
            (f"OPTIONS (path '{self.store}', topik 'a')", "did you mean topic?"),
            (f"TBLPROPERTIES ('visibility'='log') LOCATION '{self.store}'", "among the OPTIONS"),
            ("", "option path is missing"),
        ):
            sql("DROP TABLE IF EXISTS refused")
            error = self.assertRaises(
                PySparkException, sql, f"CREATE TABLE refused USING rmqha {how}"
            )
            self.assertIn(reason, str(error))
        sql(f"CREATE TABLE refused (topic STRING) USING rmqha OPTIONS (path '{self.store}')")
        self.addCleanup(sql, "DROP TABLE refused")
        error = self.assertRaises(PySparkException, sql("SELECT * FROM refused").collect)
        self.assertIn("make it without one", str(error))
