"""Tests for L{rmqha.wire.columnar.decoder} and its parts: the scalar codec is the truth."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import product
from typing import Any
from unittest import skipUnless

import numpy as np
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import ColumnUnknown, RecordCorrupt
from rmqha.wire.columnar import kernels, kernels_numpy
from rmqha.wire.columnar.decoder import (
    COLUMNS,
    DAMAGED_BODY,
    KAFKA,
    MORE_COLUMNS,
    STYLES,
    Decoder,
    all_columns,
    columns_of,
)
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.log.encode import blank
from rmqha.wire.log.properties import encode as encode_properties
from rmqha.wire.log.properties import parse
from rmqha.wire.log.record import Fault, Message, Record, decode
from rmqha.wire.names import SCHEDULE_TOPIC
from tests.wire.columnar.test_record_blocks import PROPERTIES, WAYS, way
from tests.wire.records import PLAIN, messages, stored

HAS_ARROW = find_spec("pyarrow") is not None
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEVEL_3 = 10_000
"""Milliseconds of delay level 3."""

if HAS_ARROW:
    import pyarrow as pa


def plain_with(**more: Any) -> Message:
    """A plain message, changed."""
    return evolve(PLAIN, **more)


def moment(milliseconds: int | None) -> datetime | None:
    """A time as a row has it."""
    try:
        return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def host(address: tuple[str, int]) -> str:
    """An address as a row has it."""
    ip, port = address
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def number(text: str | None) -> int | None:
    """A number in a property, where it is one."""
    try:
        return int(text or "")
    except ValueError:
        return None


def expected(record: Record, broker: str | None = None) -> dict[str, Any]:
    """What a row has to be, by the scalar codec."""
    found = record.properties
    return {
        "broker_name": broker,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.offset,
        "store_size": record.size,
        "store_timestamp": moment(record.store_timestamp),
        "born_timestamp": moment(record.born_timestamp),
        "born_host": host(record.born_host),
        "store_host": host(record.store_host),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "body_crc": record.body_crc,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body": record.body,
        "properties": found,
        "tags": found.get("TAGS"),
        "keys": found.get("KEYS"),
        "uniq_key": found.get("UNIQ_KEY"),
        "offset_msg_id": record.offset_msg_id,
        "real_topic": found.get("REAL_TOPIC"),
        "real_queue_id": number(found.get("REAL_QID")),
        "deliver_timestamp": None,
        "raw_properties": record.raw_properties.decode("utf-8", "replace"),
        "first_pop_timestamp": moment(number(found.get("1ST_POP_TIME"))),
    }


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """A batch's rows; a map must not name anything twice."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        if "properties" in row:
            pairs = row["properties"]
            row["properties"] = dict(pairs)
            assert len(row["properties"]) == len(pairs)
    return rows


def read(
    decoder: Decoder, data: bytes, base: int = 0, block: int = 1 << 30, **how: Any
) -> Iterator[dict[str, Any]]:
    """Decode bytes in blocks, each as long as it has to be."""
    position, size = 0, block
    while position < len(data):
        part = data[position : position + size]
        batch, used = decoder.decode(memoryview(part), base + position, **how)
        assert batch.schema.equals(decoder.schema)
        batch.validate(full=True)
        yield from rows_of(batch)
        if not used:
            if position + size >= len(data):
                return
            size *= 2
            continue
        position, size = position + used, block


def log_of(messages: Sequence[Message], base: int = 0) -> bytes:
    """A log of messages."""
    data = b""
    for row, message in enumerate(messages):
        data += stored(
            message,
            queue_offset=row,
            offset=base + len(data),
            store_timestamp=1_700_000_000_000 + row,
        )
    return data


def records_of(data: bytes, base: int = 0) -> list[Record]:
    """The records of a log by the scalar codec."""
    found, position = [], 0
    while position < len(data):
        found.append(decode(data, position, base + position))
        position += found[-1].size
    return found


@skipUnless(HAS_ARROW, "needs pyarrow")
class RowTests(SynchronousTestCase):
    """All loops there are, against the scalar codec."""

    everything = (*COLUMNS, *MORE_COLUMNS)

    def test_golden(self) -> None:
        """Every record of every stock store becomes the row that RocketMQ's own classes read."""
        total = 0
        for version, name in golden.ARCHIVES:
            truth = golden.jsonl(version, golden.truth(name, "expected.jsonl"))
            # Java takes the record of which only property bytes are missing; we end before.
            wanted = [line for line in truth if "blank" not in line and "torn" not in line]
            torn = name == "slave-torn-props"
            decoder = Decoder(self.everything, verify_crc=True)
            found: list[dict[str, Any]] = []
            for path in sorted((golden.store(version, name) / "commitlog").iterdir()):
                data, base = path.read_bytes(), int(path.name)
                try:
                    file_end = base + len(data)
                    for row in read(decoder, data, base, file_end=file_end, nul_is_torn=torn):
                        found.append(row)  # noqa: PERF402 those before the error count
                except RecordCorrupt as error:
                    self.assertNotEqual(error.reason, Fault.CRC)
            with_torn = [row for row in wanted if row["rawProperties"].endswith("\0")]
            if torn:
                wanted = [row for row in wanted if row not in with_torn]
            self.assertEqual(len(found), len(wanted), (version, name))
            for row, line in zip(found, wanted, strict=True):
                self.same(row, line)
            total += len(found)
        self.assertGreater(total, 25_000)

    def same(self, row: dict[str, Any], line: dict[str, Any]) -> None:
        """Compare a row with a line of the truth."""
        for column, key in (
            ("physical_offset", "physicalOffset"),
            ("store_size", "size"),
            ("queue_id", "queueId"),
            ("flag", "flag"),
            ("queue_offset", "queueOffset"),
            ("sys_flag", "sysFlag"),
            ("reconsume_times", "reconsumeTimes"),
            ("prepared_transaction_offset", "preparedTransactionOffset"),
            ("body_crc", "bodyCRC"),
            ("topic", "topic"),
            ("properties", "properties"),
            ("raw_properties", "rawProperties"),
            ("offset_msg_id", "offsetMsgId"),
        ):
            self.assertEqual(row[column], line[key], (column, line))
        self.assertEqual(hashlib.sha256(row["body"]).hexdigest(), line["bodySha256"])
        self.assertEqual(len(row["body"]), line["bodyLength"])
        for column, key in (
            ("store_timestamp", "storeTimestamp"),
            ("born_timestamp", "bornTimestamp"),
        ):
            self.assertEqual(row[column], moment(line[key]))
        for column, key in (("tags", "TAGS"), ("keys", "KEYS"), ("uniq_key", "UNIQ_KEY")):
            self.assertEqual(row[column], line["properties"].get(key))
        for column, key in (("born_host", "bornHost"), ("store_host", "storeHost")):
            ip, port = line[key]["ip"], line[key]["port"]
            short = "::1" if ip == "0:0:0:0:0:0:0:1" else ip
            self.assertEqual(row[column], host((short, port)))

    @given(
        st.lists(messages(properties=PROPERTIES | st.binary(max_size=60)), max_size=6),
        st.integers(1, 700),
        st.sampled_from([0, 4096]),
    )
    def test_any_log_in_any_blocks(self, sent: list[Message], block: int, base: int) -> None:
        """All that a broker may have stored reads as the scalar codec has it, at any block end."""
        data = log_of(sent, base)
        wanted = [expected(record, "a") for record in records_of(data, base)]
        for chosen, few in WAYS:
            with way(chosen, few):
                decoder = Decoder(self.everything, verify_crc=True, broker_name="a")
                self.assertEqual(list(read(decoder, data, base, block)), wanted)

    @given(st.lists(PROPERTIES | st.binary(max_size=40), min_size=1, max_size=8))
    def test_properties(self, texts: list[bytes]) -> None:
        """Every way to find properties gives what L{parse} gives, the last of equal names too."""
        ends = np.cumsum([len(text) for text in texts])
        starts = ends - [len(text) for text in texts]
        buf = memoryview(b"".join(texts) + bytes(100))
        names = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY"]
        for (chosen, few), pairs in product(WAYS, (False, True)):
            with way(chosen, few):
                found = kernels.properties(buf, starts, ends, names, pairs)
                for row, text in enumerate(texts):
                    wanted = parse(text)
                    for place, name in enumerate(names):
                        value = bytes(buf[found.start[place, row] : found.end[place, row]])
                        self.assertEqual(
                            value.decode("utf-8", "replace"), wanted.get(name.decode(), "")
                        )
                if pairs:
                    self.assertEqual(int(found.counts.sum()), len(found.pairs) // 4)
                    self.assertEqual(found.counts.tolist(), [len(names_of(text)) for text in texts])

    def test_very_many_pairs(self) -> None:
        """As many pairs as properties have room for, all of one name, are one, quickly."""
        text = b"a\x01b\x02" * 8000
        decoder = Decoder(["properties"])
        data = stored(plain_with(properties=text + b"c\x01d\x02"))
        for chosen, _ in WAYS:
            with way(chosen, 0):
                self.assertEqual(
                    [row["properties"] for row in read(decoder, data)], [{"a": "b", "c": "d"}]
                )

    def test_all_ways_agree_on_topics(self) -> None:
        """Topics are numbered in the order they come."""
        data = log_of([plain_with(topic=name) for name in ("b", "a", "b", "cc", "a")])
        for chosen, _ in WAYS:
            with way(chosen, 0):
                names, numbers = heads_of(data).topics
                self.assertEqual((names, numbers.tolist()), (["b", "a", "cc"], [0, 1, 0, 2, 1]))

    def test_columns(self) -> None:
        """Only the columns that were asked for come, in that order; none is allowed too."""
        data = log_of([PLAIN, PLAIN])
        decoder = Decoder(["queue_id", "topic"])
        self.assertEqual(decoder.schema.names, ["queue_id", "topic"])
        batch, used = decoder.decode(memoryview(data), 0)
        self.assertEqual(
            (batch.to_pylist(), used), ([{"queue_id": 3, "topic": "TopicA"}] * 2, len(data))
        )
        self.assertEqual(Decoder([]).decode(memoryview(data), 0)[0].num_rows, 2)

    def test_unknown_column(self) -> None:
        """A column nobody knows is refused with the nearest one."""
        with self.assertRaises(ColumnUnknown) as caught:
            Decoder(["queueId"])
        self.assertEqual(caught.exception.nearest, "queue_id")
        with self.assertRaises(ColumnUnknown):
            Decoder(["queue_id"], style="rocketmq")

    def test_styles(self) -> None:
        """Styles differ in names alone; that of Kafka has its own columns."""
        self.assertEqual(
            columns_of(["queueId", "bornTimestamp"], "rocketmq"),
            {"queueId": "queue_id", "bornTimestamp": "born_timestamp"},
        )
        self.assertEqual(len(STYLES["rocketmq"]), len(STYLES["rmqha"]))
        self.assertEqual(all_columns("rmqha"), COLUMNS)
        properties = encode_properties({"KEYS": "k", "a": "b"})
        data = log_of([plain_with(properties=properties), PLAIN])
        batch, _ = Decoder(list(KAFKA), style="kafka").decode(memoryview(data), 0)
        row, other = batch.to_pylist()
        self.assertEqual(
            row,
            {
                "key": b"k",
                "value": b"hello",
                "topic": "TopicA",
                "partition": 3,
                "offset": 0,
                "timestamp": moment(1_700_000_000_000),
                "timestampType": 1,
                "headers": [{"key": "KEYS", "value": b"k"}, {"key": "a", "value": b"b"}],
            },
        )
        self.assertEqual((other["key"], other["headers"]), (None, []))

    def test_kept_rows(self) -> None:
        """Records that are not wanted are passed over."""
        data = log_of([plain_with(queue_id=number) for number in range(6)])
        decoder = Decoder(
            ["queue_id", "body"], keep=lambda heads: heads.column("queue_id") % 2 == 1
        )
        batch, used = decoder.decode(memoryview(data), 0)
        self.assertEqual((batch.column(0).to_pylist(), used), ([1, 3, 5], len(data)))

    def test_rows_outlive_their_block(self) -> None:
        """The block may be filled with other bytes afterwards."""
        data = bytearray(log_of([plain_with(properties=b"a\x01b\x02")]))
        batch, _ = Decoder(self.everything).decode(memoryview(data), 0)
        before = rows_of(batch)
        data[:] = bytes(len(data))
        self.assertEqual(rows_of(batch), before)

    def test_absurd_times(self) -> None:
        """A producer's clock outside years 1 to 9999 makes a null, not an error."""
        times = [0, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000, -(1 << 63)]
        data = log_of([plain_with(born_timestamp=time) for time in times])
        batch, _ = Decoder(["born_timestamp"]).decode(memoryview(data), 0)
        found = batch.column(0).to_pylist()
        self.assertEqual(found[:3], [moment(time) for time in times[:3]])
        self.assertEqual(found[3:], [None, None])

    def test_invalid_utf8(self) -> None:
        """Bytes that are no UTF-8 become U+FFFD, in names, values and the raw string."""
        raw = b"TAGS\x01a\xff\x02n\xfe\x01v\xe2\x82\x02"
        data = stored(plain_with(properties=raw))
        (row,) = read(Decoder(["tags", "properties", "raw_properties"]), data)
        self.assertEqual(row["tags"], "a\ufffd")
        self.assertEqual(row["properties"], {"TAGS": "a\ufffd", "n\ufffd": "v\ufffd"})
        self.assertEqual(row["raw_properties"], raw.decode("utf-8", "replace"))

    def test_waiting_messages(self) -> None:
        """Delayed and timed messages say when they are due, and where they go then."""
        delayed = encode_properties({"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "7"})
        timed = encode_properties({"TIMER_OUT_MS": "1700000005000", "REAL_QID": "x"})
        data = log_of(
            [
                plain_with(topic=SCHEDULE_TOPIC, properties=delayed),
                plain_with(topic="rmq_sys_wheel_timer", properties=timed),
                plain_with(properties=encode_properties({"DELAY": "3"})),
                plain_with(topic=SCHEDULE_TOPIC, properties=encode_properties({"DELAY": "no"})),
            ]
        )
        columns = ["real_topic", "real_queue_id", "deliver_timestamp"]
        rows = [tuple(row.values()) for row in read(Decoder(columns), data)]
        self.assertEqual(
            rows,
            [
                ("T", 7, moment(1_700_000_000_000 + LEVEL_3)),
                (None, None, moment(1_700_000_005_000)),
                (None, None, None),
                (None, None, None),
            ],
        )

    def test_popped_messages(self) -> None:
        """A message that came again by POP says when it was first handed out, to who asks."""
        told = ("1700000005000", "soon", "99999999999999999")
        data = log_of(
            [
                PLAIN,
                *(
                    plain_with(properties=encode_properties({"1ST_POP_TIME": text}))
                    for text in told
                ),
            ]
        )
        rows = [row["first_pop_timestamp"] for row in read(Decoder(["first_pop_timestamp"]), data)]
        self.assertEqual(rows, [None, moment(1_700_000_005_000), None, None])
        self.assertNotIn("first_pop_timestamp", all_columns())


@skipUnless(HAS_ARROW, "needs pyarrow")
class DamageTests(SynchronousTestCase):
    """What is not a record, and what is not yet one."""

    def test_a_torn_record_waits(self) -> None:
        """A record of which bytes are missing is left for the next block."""
        data = log_of([PLAIN, PLAIN])
        decoder = Decoder(["topic"])
        for missing in (1, 50, 90):
            batch, used = decoder.decode(memoryview(data)[:-missing], 0)
            self.assertEqual((batch.num_rows, used), (1, len(data) // 2))
        batch, used = decoder.decode(memoryview(data)[:60], 0)
        self.assertEqual((batch.num_rows, used), (0, 0))

    def test_blank(self) -> None:
        """The blank that ends a file is passed over; its bytes need not be there."""
        data = log_of([PLAIN])
        whole = data + blank(500) + bytes(492)
        decoder = Decoder(["topic"])
        for end in (len(data) + 8, len(data) + 100, len(whole)):
            used = passed = 0
            while passed < len(whole):
                _, used = decoder.decode(memoryview(whole)[passed:end], passed, file_end=len(whole))
                passed += used
            self.assertEqual(passed, len(whole))
        self.assertEqual(decoder.decode(memoryview(whole), 0)[1], len(whole))
        with self.assertRaises(RecordCorrupt):
            decoder.decode(memoryview(whole)[len(data) :], len(data), file_end=len(whole) + 1)

    def test_damage(self) -> None:
        """Rows before damage come first, then an error that names the place."""
        good = log_of([PLAIN, PLAIN])
        size = len(good) // 2
        for place, what, reason, skip in (
            (7, 0x00, Fault.MAGIC, 0),
            (35, 0xFF, Fault.OFFSET, 0),
            (90, 0x00, Fault.CRC, size),
        ):
            data = bytearray(good)
            data[size + place] = what
            decoder = Decoder(["topic"], verify_crc=True)
            batch, used = decoder.decode(memoryview(data), 0)
            self.assertEqual((batch.num_rows, used), (1, size))
            with self.assertRaises(RecordCorrupt) as caught:
                decoder.decode(memoryview(data)[used:], used)
            error = caught.exception
            self.assertEqual((error.offset, error.reason, error.size), (size, reason, skip))

    def test_unwritten(self) -> None:
        """Zeros are named as what they are."""
        with self.assertRaises(RecordCorrupt) as caught:
            Decoder(["topic"]).decode(memoryview(bytes(100)), 0)
        self.assertEqual(caught.exception.reason, Fault.NOTHING)


def compressed(kind: int, body: bytes) -> Message:
    """A message whose producer says that it compressed the body."""
    return plain_with(body=body, sys_flag=1 | kind << 8)


@skipUnless(HAS_ARROW, "needs pyarrow")
class CompressedTests(SynchronousTestCase):
    text = b"hello, world " * 1000

    def every_kind(self) -> list[Message]:
        """The same text in every way a client may compress it."""
        whole = {
            0: zlib.compress(self.text),
            1: arrow_compressed("lz4", self.text),
            2: arrow_compressed("zstd", self.text),
            3: zlib.compress(self.text),
        }
        return [compressed(kind, body) for kind, body in whole.items()]

    def test_every_kind(self) -> None:
        """All kinds are made whole if asked, and bodies that are not compressed stay."""
        data = log_of([PLAIN, *self.every_kind(), plain_with(body=b"")])
        rows = list(read(Decoder(["body", "sys_flag"], decompress=True), data))
        bodies = [row["body"] for row in rows]
        self.assertEqual(bodies, [b"hello", *[self.text] * 4, b""])
        self.assertEqual([row["sys_flag"] & 1 for row in rows], [0, 1, 1, 1, 1, 0])
        stored_bodies = [row["body"] for row in read(Decoder(["body"]), data)]
        self.assertEqual(stored_bodies, [record.body for record in records_of(data)])

    def test_bombs(self) -> None:
        """A body too long, cut short, or something else is damage; what follows can be read."""
        enough = len(self.text)
        for bad, most in (
            *((message, enough - 1) for message in self.every_kind()),
            *(
                (compressed(kind, message.body[:-5]), enough)
                for kind, message in enumerate(self.every_kind())
            ),
            *((compressed(kind, b"not compressed"), enough) for kind in range(8)),
            *((compressed(kind, b""), enough) for kind in range(4)),
        ):
            data = log_of([PLAIN, bad, PLAIN])
            decoder = Decoder(["body"], decompress=True, max_decompressed=most)
            batch, used = decoder.decode(memoryview(data), 0)
            self.assertEqual(batch.num_rows, 1)
            with self.assertRaises(RecordCorrupt) as caught:
                decoder.decode(memoryview(data)[used:], used)
            error = caught.exception
            self.assertEqual((error.offset, error.reason), (used, DAMAGED_BODY))
            used += error.size
            batch, _ = decoder.decode(memoryview(data)[used:], used)
            self.assertEqual(batch.num_rows, 1)

    def test_many_bombs(self) -> None:
        """Bodies that are small each do not become one batch that is too large."""
        data = log_of([compressed(3, zlib.compress(self.text))] * 10)
        decoder = Decoder(["body"], decompress=True, max_decompressed=2 * len(self.text))
        counts, position = [], 0
        while position < len(data):
            batch, used = decoder.decode(memoryview(data)[position:], position)
            counts.append(batch.num_rows)
            position += used
        self.assertEqual(counts, [3, 3, 3, 1])

    def test_the_limit_itself(self) -> None:
        """A body may become exactly as long as is allowed."""
        for message in self.every_kind():
            decoder = Decoder(["body"], decompress=True, max_decompressed=len(self.text))
            (row,) = read(decoder, stored(message))
            self.assertEqual(row["body"], self.text)


def arrow_compressed(codec: str, data: bytes) -> bytes:
    """A frame of a codec, as a client writes it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(data)
    return bytes(sink.getvalue())


def heads_of(data: bytes) -> FixedFields:
    """The heads of a log's records."""
    chain = kernels_numpy.follow(memoryview(data), len(data))
    return FixedFields(memoryview(data), chain[:-1], np.diff(chain))


def names_of(text: bytes) -> set[bytes]:
    """The names of the pairs that count."""
    pairs = [segment.partition(b"\x01") for segment in text.split(b"\x02")]
    return {name for name, _, value in pairs if name and value}
