"""Tests for L{rmqha.wire.log.record} on what stock brokers wrote."""

from __future__ import annotations

from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import RecordCorrupt
from rmqha.wire.log import properties
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.encode import blank
from rmqha.wire.log.hashing import tags_code
from rmqha.wire.log.layout import MAGIC_BLANK, MAGIC_BYTES, MAGIC_V1, MAGIC_V2
from rmqha.wire.log.record import (
    DispatchFields,
    Fault,
    Record,
    check,
    decode,
    dispatch_fields,
    magic_at,
    offset_msg_id,
    raw_properties,
    stored_at,
)
from rmqha.wire.names import SCHEDULE_TOPIC
from tests.wire.log.test_delay_levels import STOCK
from tests.wire.records import PLAIN, messages, stored

LEVELS = DelayLevels.parse(STOCK)
LIMITS: dict[str, int] = {"file_end": 1 << 20, "max_size": 1 << 20}
UNSIGNED = 1 << 32
_PAIRS = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "X"]),
    st.text(st.sampled_from("a 7é🔑"), max_size=6),
)


def ip_and_port(host: dict[str, Any]) -> tuple[str, int]:
    """A host of the truth files, whose IPv6 addresses are written out."""
    return str(ip_address(host["ip"])), host["port"]


class GoldenTests(SynchronousTestCase):
    def log(self, version: str, name: str) -> dict[int, bytes]:
        """The log files of a store, by their offset."""
        folder = golden.store(version, name) / "commitlog"
        return {int(path.name): path.read_bytes() for path in folder.iterdir()}

    def test_every_line(self) -> None:
        """Check, decode and dispatch agree with RocketMQ's own decoder on every line."""
        kinds: dict[str, int] = {}
        for version, name in golden.ARCHIVES:
            files = self.log(version, name)
            lines = list(golden.jsonl(version, golden.truth(name, "expected.jsonl")))
            self.assertTrue(lines)
            end = None
            for line in lines:
                offset = line["physicalOffset"]
                start = offset - offset % golden.LOG_FILE_SIZE
                kind = self.line(line, files[start], offset - start, start)
                kinds[kind] = kinds.get(kind, 0) + 1
                self.assertIn(end, (None, offset), "lines continue one another")
                end = offset + line["size"]
        self.assertEqual(kinds.keys(), {"record", "blank", "torn", "torn properties"})
        self.assertEqual(kinds["torn properties"], 1)
        self.assertGreater(kinds["record"], 10_000)

    def line(self, line: dict[str, Any], data: bytes, pos: int, start: int) -> str:
        """Compare one line of truth, and return what kind of line it is."""
        offset, size = start + pos, line["size"]
        end = start + len(data)
        found = check(data, pos, len(data), offset, end, max_size=len(data))
        if line.get("blank"):
            self.assertEqual((found, magic_at(data, pos)), (-size, MAGIC_BLANK))
            self.assertEqual(data[pos : pos + 8], blank(size))
            return "blank"
        if line.get("torn"):
            # The rest of the file is zeros.
            self.assertIn(found, (Fault.OFFSET, Fault.LENGTHS, Fault.TOPIC, Fault.CRC))
            return "torn"
        self.assertEqual(found, size)
        record = decode(memoryview(data), pos, offset)
        self.same(record, line)
        self.dispatch(memoryview(data), pos, record)
        self.assertEqual(stored_at(data, pos), line["storeTimestamp"])
        strict = check(data, pos, len(data), offset, end, max_size=len(data), nul_is_torn=True)
        if strict is Fault.PROPERTIES:
            self.assertTrue(line["rawProperties"].endswith("\0"))
            return "torn properties"
        self.assertEqual(strict, size)
        return "record"

    def same(self, record: Record, line: dict[str, Any]) -> None:
        magic = MAGIC_V2 if record.version == 2 else MAGIC_V1
        found = {
            "physicalOffset": record.offset,
            "size": record.size,
            "magic": f"0x{magic % UNSIGNED:X}",
            "queueId": record.queue_id,
            "flag": record.flag,
            "queueOffset": record.queue_offset,
            "storedPhysicalOffset": record.stored_offset,
            "sysFlag": record.sys_flag,
            "bornTimestamp": record.born_timestamp,
            "bornHost": record.born_host,
            "storeTimestamp": record.store_timestamp,
            "storeHost": record.store_host,
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyCRC": record.body_crc,
            "bodyLength": len(record.body),
            "bodySha256": sha256(record.body).hexdigest(),
            "topic": record.topic,
            "properties": record.properties,
            "rawProperties": record.raw_properties.decode("utf-8"),
            "offsetMsgId": record.offset_msg_id,
        }
        hosts = {name: ip_and_port(line[name]) for name in ("bornHost", "storeHost")}
        self.assertEqual(found, line | hosts)

    def dispatch(self, buf: memoryview, pos: int, record: Record) -> None:
        """Compare the quick reading with the whole one."""
        fields = dispatch_fields(buf, pos, record.size, record.offset, LEVELS)
        self.assertEqual(fields, expected_fields(record))

    def test_tags_codes_of_the_queues(self) -> None:
        """Tags codes equal those in stock brokers' consume queues, delayed ones included."""
        compared = delayed = 0
        for version, name in golden.ARCHIVES:
            files = self.log(version, name)
            for queue in golden.jsonl(version, golden.truth(name, "expected-cq.jsonl")):
                for number, (offset, size, code) in enumerate(queue["units"], queue["minOffset"]):
                    start = offset - offset % golden.LOG_FILE_SIZE
                    if size == 0x7FFFFFFF or start not in files:
                        continue  # what a stock broker writes before the first unit
                    view = memoryview(files[start])
                    fields = dispatch_fields(view, offset - start, size, offset, LEVELS)
                    self.assertEqual(
                        (fields.topic, fields.queue_id, fields.tags_code, fields.queue_offset),
                        (queue["topic"], queue["queueId"], code, number),
                    )
                    self.assertTrue(fields.has_unit)
                    compared += 1
                    delayed += fields.topic == SCHEDULE_TOPIC
        self.assertGreater(compared, 10_000)
        self.assertGreater(delayed, 10)


def expected_fields(record: Record) -> DispatchFields:
    """What dispatch needs, from a whole record, in the plainest way."""
    pairs = record.properties
    code = tags_code(pairs.get("TAGS", ""))
    level = LEVELS.level(pairs["DELAY"].encode()) if "DELAY" in pairs else 0
    if record.topic == SCHEDULE_TOPIC and level:
        code = LEVELS.deliver_time(level, record.store_timestamp)
    unique = [pairs["UNIQ_KEY"]] if "UNIQ_KEY" in pairs else []
    return DispatchFields(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        sys_flag=record.sys_flag,
        store_timestamp=record.store_timestamp,
        tags_code=code,
        has_unit=record.has_unit,
        indexable=record.indexable,
        keys=unique + [key for key in pairs.get("KEYS", "").split(" ") if key],
    )


class RecordTests(SynchronousTestCase):
    def test_magics(self) -> None:
        """Magics are signed, and the bytes to search for are theirs."""
        self.assertEqual((MAGIC_V1 % UNSIGNED, MAGIC_V2 % UNSIGNED), (0xDAA320A7, 0xDAA320AB))
        self.assertEqual(MAGIC_BLANK % UNSIGNED, 0xCBD43194)
        for magic, raw in zip((MAGIC_V1, MAGIC_V2), MAGIC_BYTES, strict=True):
            self.assertEqual(raw, (magic % UNSIGNED).to_bytes(4, "big"))

    def test_transaction_kinds(self) -> None:
        """Halves and rollbacks have no queue unit, rollbacks are not indexed either."""
        for bits, has_unit, indexable in [
            (0x0, True, True),
            (0x4, False, True),
            (0x8, True, True),
            (0xC, False, False),
        ]:
            data = stored(evolve(PLAIN, sys_flag=bits | 0x1))
            record = decode(data, 0, 0)
            fields = dispatch_fields(data, 0, len(data), 0, LEVELS)
            self.assertEqual((record.has_unit, record.indexable), (has_unit, indexable))
            self.assertEqual((fields.has_unit, fields.indexable), (has_unit, indexable))

    def test_ids(self) -> None:
        """An id has 32 digits with an IPv4 store host and 56 with IPv6."""
        self.assertEqual(offset_msg_id(("127.0.0.1", 2), 0x77), "7F000001000000020000000000000077")
        self.assertEqual(offset_msg_id(("::1", 2), 0x77), f"{1:032X}" + "000000020000000000000077")

    def test_strange_delay_level(self) -> None:
        """A delay level that is none leaves the tags' hash; one too high is the highest."""
        for text, code in [("x", 65), ("0", 65), ("-2", 65), ("99", 7_200_005)]:
            raw = properties.encode({"TAGS": "A", "DELAY": text})
            data = stored(evolve(PLAIN, topic=SCHEDULE_TOPIC, properties=raw), store_timestamp=5)
            self.assertEqual(dispatch_fields(data, 0, len(data), 0, LEVELS).tags_code, code)

    @given(messages(properties=_PAIRS.map(properties.encode)), st.booleans())
    def test_dispatch_is_the_whole_reading(self, message: Any, delayed: bool) -> None:
        """The quick reading finds what the whole one does, in any message."""
        if delayed:
            message = evolve(message, topic=SCHEDULE_TOPIC)
        data = b"before" + stored(message, queue_offset=5, offset=6, store_timestamp=9) + b"after"
        record = decode(data, 6, 6)
        fields = dispatch_fields(memoryview(data), 6, record.size, 6, LEVELS)
        self.assertEqual(fields, expected_fields(record))

    @given(messages(properties=_PAIRS.map(properties.encode)), st.data())
    def test_raw_properties(self, message: Any, data: st.DataObject) -> None:
        """The property string is found alone; in other bytes nothing, or bytes of theirs."""
        record = stored(message, queue_offset=5, offset=6, store_timestamp=9)
        buf = b"before" + record + b"after"
        found = raw_properties(memoryview(buf), 6, len(record))
        self.assertEqual(found, decode(buf, 6, 6).raw_properties)
        broken = bytearray(record)
        for at in data.draw(st.lists(st.integers(0, len(record) - 1), max_size=8)):
            broken[at] = data.draw(st.integers(0, 255))
        size = data.draw(st.integers(0, len(record)))
        wrong = raw_properties(bytes(broken[:size]), 0, size)
        self.assertTrue(wrong is None or wrong in broken)

    def test_decoding_what_is_cut(self) -> None:
        """A record that does not lie within the buffer is a typed error with its offset."""
        data = stored(PLAIN)
        for size in range(len(data)):
            with self.assertRaises(RecordCorrupt) as caught:
                decode(data[:size], 0, 4711)
            self.assertEqual(caught.exception.offset, 4711)
