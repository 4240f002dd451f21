"""Tests for L{rmqha.pipeline.spark.writing}: rows become messages at a stand-in of a broker."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import ColumnUnknown
from rmqha.pipeline.errors import (
    ColumnNeeded,
    ColumnNotOfType,
    OptionInvalid,
    OptionMissing,
    OptionUnknown,
)
from rmqha.pipeline.producing.errors import RowUnsendable
from tests.support.fake_broker import StandIn
from tests.support.rows import expected
from tests.support.spark_needs import need_java

try:
    import pyarrow as pa
    from pyspark.errors import PySparkException

    from rmqha.pipeline.producing.settings import SendOptions
    from rmqha.pipeline.spark.message_rows import SENT, check_columns, messages_of
    from rmqha.pipeline.spark.session import TRIES
    from tests.support.spark import folder, session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class OptionTests(SynchronousTestCase):
    def test_all(self) -> None:
        """Options have the names and units of the guide."""
        found = SendOptions.parse(
            {
                "NAMESERVER": "a:9876; b:9876",
                "topic": "T",
                "producerGroup": "g",
                "sendTimeout": "1500",
                "retries": 0,
                "batchBytes": "64k",
                "accessKey": "somebody",
                "secretKey": "between-us",
                "maxRowsPerSecond": 100,
                "maxBytesPerSecond": "1m",
            }
        )
        wanted = SendOptions(
            name_server=("a:9876", "b:9876"),
            topic="T",
            producer_group="g",
            send_timeout=1.5,
            retries=0,
            batch_bytes=65536,
            access_key="somebody",
            secret_key="between-us",
            max_rows_per_second=100,
            max_bytes_per_second=1 << 20,
        )
        self.assertEqual(wanted, found)
        self.assertNotIn("between-us", repr(found))

    def test_wrong(self) -> None:
        """What is wrong is told, with the nearest name."""
        self.assertRaises(OptionMissing, SendOptions.parse, {"topic": "T"})
        for one, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
            half = self.assertRaises(
                OptionMissing, SendOptions.parse, {"nameServer": "a:1", one: "x"}
            )
            self.assertIn(other, str(half))
        for text in ("", "a", "a:0", "a:1;", "a:1,b:2"):
            self.assertRaises(OptionInvalid, SendOptions.parse, {"nameServer": text})
        error = self.assertRaises(OptionUnknown, SendOptions.parse, {"nameServers": "a:1"})
        self.assertEqual("nameServer", error.nearest)
        for name, text in (("retries", "-1"), ("sendTimeout", "0"), ("maxRowsPerSecond", "0")):
            error = self.assertRaises(
                OptionInvalid, SendOptions.parse, {"nameServer": "a:1", name: text}
            )
            self.assertEqual(name, error.option)


class RowTests(SynchronousTestCase):
    def test_columns(self) -> None:
        """Columns that are no messages' are refused before a row is looked at."""
        check_columns({"body": "binary", "topic": "string"}, None)
        check_columns({"body": "string", "queue_id": "bigint"}, "T")
        error = self.assertRaises(ColumnUnknown, check_columns, {"queueid": "int"}, "T")
        self.assertEqual("queue_id", error.nearest)
        self.assertRaises(ColumnNeeded, check_columns, {"topic": "string"}, None)
        self.assertRaises(OptionMissing, check_columns, {"body": "binary"}, None)
        error = self.assertRaises(ColumnNotOfType, check_columns, {"body": "int"}, "T")
        self.assertEqual(("body", "binary", "int"), (error.column, error.wanted, error.type))

    def test_messages(self) -> None:
        """All columns come into the message; nulls are absent, and columns win over properties."""
        row = {
            "body": b"x",
            "topic": "T",
            "keys": "k1 k2",
            "tags": "A",
            "queue_id": 3,
            "properties": [("a", "b"), ("TAGS", "B"), ("none", None), ("empty", "")],
            "flag": 7,
        }
        batch = pa.RecordBatch.from_pylist([row, {"body": b"", "topic": "U"}], SENT)
        one, other = messages_of(batch)
        self.assertEqual(("T", b"x", 3, 7), (one.topic, one.body, one.queue_id, one.flag))
        self.assertEqual({"a": "b", "TAGS": "A", "KEYS": "k1 k2"}, one.properties)
        self.assertEqual(("U", b"", None, 0), (other.topic, other.body, other.queue_id, other.flag))
        self.assertEqual({}, other.properties)
        self.assertEqual({"V"}, {message.topic for message in messages_of(batch, "V")})

    def test_text(self) -> None:
        """A body may be a text."""
        batch = pa.RecordBatch.from_pydict({"body": ["ä"]})
        self.assertEqual(["ä".encode()], [message.body for message in messages_of(batch, "T")])

    def test_no_messages(self) -> None:
        """A row that is none is told by its number."""
        for row, column in (
            ({"topic": "T"}, "body"),
            ({"body": b""}, "topic"),
            ({"body": b"", "topic": "T", "queue_id": -1}, "queue_id"),
        ):
            batch = pa.RecordBatch.from_pylist([{"body": b"", "topic": "T"}, row], SENT)
            error = self.assertRaises(RowUnsendable, list, messages_of(batch, first=10))
            self.assertEqual((column, 11), (error.column, error.row))


class SparkTests(SynchronousTestCase):
    def setUp(self) -> None:
        need_java()
        self.broker = StandIn({"T": 2, "U": 1, "GoldenA": 4})
        self.addCleanup(self.broker.server.close)

    def frame(self, *rows: tuple[Any, ...], columns: str) -> Any:
        return session().createDataFrame(list(rows), columns)

    def writer(self, frame: Any, **options: object) -> Any:
        made = frame.write.format("rmqha").mode("append").option("nameServer", self.broker.address)
        for name, value in options.items():
            made = made.option(name, value)
        return made

    def test_batch(self) -> None:
        """A DataFrame's rows are messages; what is wrong with it is told before one is sent."""
        frame = self.frame(
            (b"a", "T", "k", {"p": "q"}, 1),
            (b"b", "U", None, None, None),
            columns="body binary, topic string, keys string, properties map<string,string>, "
            "queue_id long",
        )
        self.writer(frame).save()
        found = {message.body: message for message in self.broker.stored}
        self.assertEqual({b"a", b"b"}, set(found))
        self.assertEqual(("T", 1), (found[b"a"].topic, found[b"a"].queue_id))
        self.assertEqual("k", found[b"a"].properties["KEYS"])
        self.assertEqual("q", found[b"a"].properties["p"])
        for wrong, options, reason in (
            (frame.withColumnRenamed("keys", "key"), {}, "unknown column key; did you mean keys?"),
            (frame.drop("body"), {}, "column body is missing"),
            (frame, {"nameSrv": "x"}, "unknown option nameSrv; did you mean nameServer?"),
        ):
            error = self.assertRaises(PySparkException, self.writer(wrong, **options).save)
            self.assertIn(reason.lower(), str(error).lower())
        error = self.assertRaises(PySparkException, self.writer(frame).mode("overwrite").save)
        self.assertIn("sent messages cannot be removed", str(error))
        self.assertEqual(2, len(self.broker.stored))

    def test_failing(self) -> None:
        """What a broker says reaches who writes."""
        self.broker.codes = [16] * 3 * TRIES  # a task is tried so often
        writer = self.writer(self.frame((b"a",), columns="body binary"), topic="T", retries=2)
        error = self.assertRaises(PySparkException, writer.save)
        self.assertIn("was not confirmed as stored after 3 tries: code 16: as told: 16", str(error))

    def test_stream(self) -> None:
        """A stream's rows are messages."""
        place = Path(tempfile.mkdtemp(dir=folder()))
        reader = session().readStream.format("rmqha").option("columns", "body,keys,queue_id")
        reader = reader.option("topic", "GoldenA").option("allowUnconfirmedTail", "true")
        writer = reader.load(str(golden.store("5.3.3"))).writeStream.format("rmqha")
        writer = writer.option("nameServer", self.broker.address).option("topic", "GoldenA")
        writer = writer.option("checkpointLocation", str(place)).queryName("again")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        self.assertIsNone(query.exception())
        wanted = [each for each in expected("5.3.3", "store") if each["topic"] == "GoldenA"]
        self.assertEqual(len(wanted), len(self.broker.stored))

    def test_tables(self) -> None:
        """A table that may be read can be written to as well, and one can be made for writing
        alone; where its rows go they say, or its option.
        """
        sql = session().sql
        store = golden.store("5.3.3")
        name_server = f"nameServer '{self.broker.address}'"
        for name, options in (
            ("both", f"topic 'GoldenA', columns 'body,topic,keys', path '{store}', {name_server}"),
            ("sink", f"{name_server}, topic 'T', maxRowsPerSecond '100000'"),
        ):
            sql(f"DROP TABLE IF EXISTS {name}")
            sql(f"CREATE TABLE {name} USING rmqha OPTIONS ({options})")
            self.addCleanup(sql, f"DROP TABLE {name}")
        sql("INSERT INTO both SELECT body, 'U', keys FROM both")
        wanted = sum(each["topic"] == "GoldenA" for each in expected("5.3.3", "store"))
        self.assertEqual(wanted, len(self.broker.bodies("U", 0)))
        sql("INSERT INTO sink (body, queue_id) VALUES (X'6162', 1)")
        self.assertEqual([b"ab"], self.broker.bodies("T", 1))
        error = self.assertRaises(PySparkException, sql("SELECT * FROM sink").collect)
        self.assertIn("option path is missing", str(error))
