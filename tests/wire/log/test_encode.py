"""Tests for L{rmqha.wire.log.encode}: the bytes stock brokers write, and what they should not."""

from __future__ import annotations

from struct import pack
from typing import Any

from attrs import evolve, fields_dict
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import MessageIllegal
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.encode import (
    MAX_BATCH,
    MAX_PROPERTIES,
    MAX_TOPIC,
    MAX_TOPIC_V2,
    blank,
    encode,
    encode_batch,
    place,
)
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.layout import MAX_RECORD_OVERHEAD
from rmqha.wire.log.record import Message, check, decode, dispatch_fields
from tests.wire.log.test_delay_levels import STOCK
from tests.wire.records import MAX_MESSAGE, PLAIN, messages, stored

KEYS_AND_TAGS = bytes.fromhex(
    "4b455953016b31206b320254414753015461674102554e49515f4b455901"
    "3041303130323033303030313138423441414332374638413442324330303030"
)

SINGLE = (
    bytes.fromhex(
        "000000a4daa320a73610a686000000030000000700000000000000000000000000000000000000000000018b"
        "cfe568000a01020300009c41000001a1f880ecd20a09080700002a9f00000002000000000000000000000005"
        "68656c6c6f06546f70696341003e"
    )
    + KEYS_AND_TAGS
)

EMPTY_BODY = bytes.fromhex(
    "0000006ddaa320a7000000000000000300000007000000000000000100000000000000a4000000100000018b"
    "cfe5680020010db800000000000000000000000100009c41000001a1f880ed140a09080700002a9f00000002"
    "000000000000000000000000"
    "06546f706963410000"
)

DELAYED = bytes.fromhex(
    "000000a1daa320a76c03b249000000020000000700000000000000000000000000000111000000000000018b"
    "cfe568000a01020300009c41000001a1f880ed250a09080700002a9f00000002000000000000000000000005"
    "6c61746572135343484544554c455f544f5049435f58585858002e5245414c5f544f50494301546f70696344"
    "0244454c4159013302544147530154616742025245414c5f5149440131"
)

BATCH = bytes.fromhex(
    "0000002700000000000000000000000000000001610010574149540174727565025441475301"
    "780000002100000000000000000000000900000002626200095741495401"
    "74727565"
)

BATCHED = [
    bytes.fromhex(
        "00000077daa320a768b7be430000000000000000000000000000000000000000000000000000000000000000"
        "000000017f00000100000001000001a1f88821dd7f0000010000000200000000000000000000000000000001"
        "610154001a5741495401747275650254414753017802434c55535445520143"
    ),
    bytes.fromhex(
        "00000071daa320a735ae1bae0000000000000009000000000000000100000000000000770000000000000000"
        "000000017f00000100000001000001a1f88821dd7f0000010000000200000000000000000000000000000002"
        "62620154001357414954017472756502434c55535445520143"
    ),
]


class StockBytesTests(SynchronousTestCase):
    """The same bytes as a stock broker's."""

    def test_single(self) -> None:
        """A message between IPv4 hosts, with keys and tags."""
        message = evolve(PLAIN, properties=KEYS_AND_TAGS)
        self.assertEqual(stored(message, store_timestamp=0x1A1F880ECD2), SINGLE)
        self.assertEqual(decode(SINGLE, 0, 0).offset_msg_id, "0A09080700002A9F0000000000000000")
        fields = dispatch_fields(SINGLE, 0, len(SINGLE), 0, DelayLevels.parse(STOCK))
        self.assertEqual(fields.keys, ["0A010203000118B4AAC27F8A4B2C0000", "k1", "k2"])
        self.assertEqual(fields.tags_code, 0x27A807)

    def test_empty_body_and_ipv6(self) -> None:
        """A message without body and properties, born at an IPv6 address."""
        message = evolve(PLAIN, body=b"", born_host=("2001:db8::1", 40001))
        data = stored(message, queue_offset=1, offset=164, store_timestamp=0x1A1F880ED14)
        self.assertEqual(data, EMPTY_BODY)

    def test_delayed(self) -> None:
        """A delayed message is due ten seconds after its store time."""
        message = evolve(
            PLAIN,
            topic="SCHEDULE_TOPIC_XXXX",
            queue_id=2,
            body=b"later",
            properties=b"REAL_TOPIC\x01TopicD\x02DELAY\x013\x02TAGS\x01TagB\x02REAL_QID\x011",
        )
        data = stored(message, offset=273, store_timestamp=0x1A1F880ED25)
        self.assertEqual(data, DELAYED)
        fields = dispatch_fields(data, 0, len(data), 273, DelayLevels.parse(STOCK))
        self.assertEqual(fields.tags_code, 0x1A1F8811435)

    def test_batch(self) -> None:
        """A client's batch of two becomes two records."""
        message = Message(
            topic="T",
            queue_id=0,
            body=BATCH,
            properties=b"CLUSTER\x01C",
            born_timestamp=1,
            born_host=("127.0.0.1", 1),
            store_host=("127.0.0.1", 2),
        )
        records = encode_batch(message, max_message_size=MAX_MESSAGE)
        offset = 0
        for number, record in enumerate(records):
            place(record, queue_offset=number, offset=offset, store_timestamp=0x1A1F88821DD)
            offset += len(record)
        self.assertEqual([bytes(record) for record in records], BATCHED)
        self.assertEqual(
            [decode(data, 0, at).offset_msg_id for data, at in zip(records, (0, 119), strict=True)],
            ["7F000001000000020000000000000000", "7F000001000000020000000000000077"],
        )

    def test_blank(self) -> None:
        """The blank that closes a file of 1024 bytes at 434."""
        self.assertEqual(blank(1024 - 434), bytes.fromhex("0000024ecbd43194"))


class EncodeTests(SynchronousTestCase):
    """Any message goes in and comes out."""

    @given(
        messages(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.integers(0, 1 << 50),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.integers(0, 40),
    )
    @example(evolve(PLAIN, topic="t" * 127), 0, 0, 0, 0)
    @example(evolve(PLAIN, topic="t" * 128), 0, 0, 0, 0)
    @example(evolve(PLAIN, body=b""), 0, 0, 0, 0)
    def test_round_trip(
        self, message: Message, queue_offset: int, offset: int, store_timestamp: int, pos: int
    ) -> None:
        """What is encoded and placed is checked whole and decodes to the same message."""
        data = stored(
            message, queue_offset=queue_offset, offset=offset, store_timestamp=store_timestamp
        )
        buf = memoryview(bytes(pos) + data + b"behind")
        end = pos + len(data)
        self.assertEqual(
            check(buf, pos, end, offset, offset + len(data) + 8, max_size=len(data)), len(data)
        )
        record = decode(buf, pos, offset)
        for name in fields_dict(Message).keys() - {"properties", "sys_flag"}:
            self.assertEqual(getattr(record, name), getattr(message, name), name)
        self.assertEqual(record.raw_properties, message.properties)
        self.assertEqual(record.sys_flag & ~0x30, message.sys_flag & ~0x30)
        self.assertEqual(bool(record.sys_flag & 0x10), ":" in message.born_host[0])
        self.assertEqual(bool(record.sys_flag & 0x20), ":" in message.store_host[0])
        self.assertEqual(record.version, 2 if len(message.topic.encode()) > MAX_TOPIC else 1)
        self.assertEqual(record.body_crc, body_crc(message.body))
        self.assertEqual(
            (record.queue_offset, record.stored_offset, record.store_timestamp, record.size),
            (queue_offset, offset, store_timestamp, len(data)),
        )

    def test_address_bits_are_not_believed(self) -> None:
        """Address bits in a client's sysFlag make no unreadable record (a stock broker's do)."""
        data = stored(evolve(PLAIN, sys_flag=0x30))
        self.assertEqual(check(data, 0, len(data), 0, 1 << 20, max_size=1 << 20), len(data))
        self.assertEqual(decode(data, 0, 0).sys_flag, 0)

    def test_limits(self) -> None:
        """What is just too long is refused with its name, its size and the limit."""
        fits: list[tuple[str, dict[str, Any], int]] = [
            ("topic", {"topic": "t" * MAX_TOPIC_V2}, MAX_TOPIC_V2),
            ("properties", {"properties": b"p" * MAX_PROPERTIES}, MAX_PROPERTIES),
            ("body", {"body": bytes(1000)}, 1000),
        ]
        for name, change, limit in fits:
            encode(evolve(PLAIN, **change), max_message_size=1000)
            more = {field: value + value[:1] for field, value in change.items()}
            with self.assertRaises(MessageIllegal) as caught:
                encode(evolve(PLAIN, **more), max_message_size=1000)
            error = caught.exception
            self.assertEqual((error.field, error.value, error.limit), (name, limit + 1, limit))

    def test_no_topic(self) -> None:
        """A message needs a topic."""
        with self.assertRaises(MessageIllegal) as caught:
            encode(evolve(PLAIN, topic=""), max_message_size=1000)
        self.assertEqual(caught.exception.field, "topic")

    def test_topic_is_measured_in_bytes(self) -> None:
        """Letters of several bytes make a topic long."""
        self.assertEqual(decode(stored(evolve(PLAIN, topic="é" * 64)), 0, 0).version, 2)
        with self.assertRaises(MessageIllegal):
            encode(evolve(PLAIN, topic="é" * 128), max_message_size=1000)

    def test_whole_record(self) -> None:
        """No message can exceed the room a record has beyond its body."""
        largest = evolve(
            PLAIN,
            topic="t" * MAX_TOPIC_V2,
            properties=b"p" * MAX_PROPERTIES,
            born_host=("::1", 1),
            store_host=("::1", 1),
            body=bytes(10),
        )
        self.assertLessEqual(len(encode(largest, max_message_size=10)), 10 + MAX_RECORD_OVERHEAD)


def entry(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """One message of a client's batch."""
    size = 22 + len(body) + len(properties)
    return (
        pack(">iiiii", size, 0, 0, flag, len(body))
        + body
        + pack(">h", len(properties))
        + properties
    )


class BatchTests(SynchronousTestCase):
    """A client's batch, all or nothing."""

    def illegal(self, message: Message) -> MessageIllegal:
        """The error a batch is refused with."""
        with self.assertRaises(MessageIllegal) as caught:
            encode_batch(message, max_message_size=MAX_MESSAGE)
        return caught.exception

    @given(
        st.lists(
            st.tuples(
                st.binary(max_size=40),
                st.binary(max_size=20).filter(lambda own: b"A\x01" not in own),
                st.integers(0, 9),
            ),
            min_size=1,
            max_size=5,
        ),
        messages(sys_flag=st.just(0), properties=st.sampled_from((b"", b"A\x01b\x02", b"A\x01b"))),
    )
    def test_every_entry_is_a_record(
        self, entries: list[tuple[bytes, bytes, int]], message: Message
    ) -> None:
        """Each entry becomes a record with its own body, flag, properties, all else shared."""
        batch = evolve(message, body=b"".join(entry(*parts) for parts in entries))
        records = encode_batch(batch, max_message_size=MAX_MESSAGE)
        self.assertEqual(len(records), len(entries))
        for data, (body, own, flag) in zip(records, entries, strict=True):
            record = decode(data, 0, 0)
            joint = b"\x02" if own and own[-1] != 2 else b""
            self.assertEqual(record.raw_properties, own + joint + message.properties)
            self.assertEqual((record.body, record.flag), (body, flag))
            self.assertEqual(record.topic, message.topic)
            self.assertEqual(record.prepared_transaction_offset, 0)

    def test_own_properties_win(self) -> None:
        """What an entry says itself is not said for all (a 5.x batch has its own key)."""
        shared = b"UNIQ_KEY\x01all\x02CLUSTER\x01C\x02"
        batch = evolve(
            PLAIN,
            body=entry(b"1", b"UNIQ_KEY\x01one\x02") + entry(b"2", b"TAGS\x01UNIQ_KEY"),
            properties=shared,
        )
        first, second = encode_batch(batch, max_message_size=MAX_MESSAGE)
        self.assertEqual(decode(first, 0, 0).raw_properties, b"UNIQ_KEY\x01one\x02CLUSTER\x01C\x02")
        self.assertEqual(decode(second, 0, 0).raw_properties, b"TAGS\x01UNIQ_KEY\x02" + shared)

    def test_most_entries(self) -> None:
        """There is a limit to how many messages one answer can name."""
        body = entry(b"", b"") * (MAX_BATCH + 1)
        self.assertEqual(self.illegal(evolve(PLAIN, body=body)).limit, MAX_BATCH)

    def test_sum_of_properties(self) -> None:
        """Own and shared properties together must fit (in a stock broker they overflow)."""
        own = b"A\x01" + b"x" * (MAX_PROPERTIES - 6)
        body = entry(b"1", b"") + entry(b"2", own)
        fits = evolve(PLAIN, body=body, properties=b"B\x01y")
        self.assertEqual(len(encode_batch(fits, max_message_size=MAX_MESSAGE)), 2)
        error = self.illegal(evolve(fits, properties=b"B\x01yz"))
        self.assertEqual((error.field, error.value), ("properties", MAX_PROPERTIES + 1))

    def test_transactions_and_delays(self) -> None:
        """A batch takes no part in transactions and cannot be delayed."""
        good = evolve(PLAIN, body=entry(b"1", b""))
        for bits in (0x4, 0x8, 0xC):
            self.assertIn("transaction", self.illegal(evolve(good, sys_flag=bits)).field)
        self.assertIn("delay", self.illegal(evolve(good, properties=b"DELAY\x013")).field)
        encode_batch(evolve(good, properties=b"DELAY\x010"), max_message_size=MAX_MESSAGE)

    def test_size(self) -> None:
        """The limit of a body holds for the whole batch."""
        message = evolve(PLAIN, body=entry(b"1" * 90, b""))
        with self.assertRaises(MessageIllegal):
            encode_batch(message, max_message_size=111)
        encode_batch(message, max_message_size=112)

    def test_cut_anywhere(self) -> None:
        """A batch that ends inside a message is refused, wherever it ends."""
        whole = entry(b"first", b"A\x01b") + entry(b"second", b"C\x01d")
        first = len(entry(b"first", b"A\x01b"))
        for size in range(len(whole)):
            if size != first:
                self.assertIn("batch", self.illegal(evolve(PLAIN, body=whole[:size])).field)

    def test_negative_lengths(self) -> None:
        """Lengths below zero are refused."""
        for at, width in ((16, 4), (21, 2)):
            body = bytearray(entry(b"1", b"A\x01b"))
            body[at : at + width] = b"\xff" * width
            self.assertIn("batch", self.illegal(evolve(PLAIN, body=bytes(body))).field)

    @given(st.binary(max_size=80))
    def test_any_bytes(self, body: bytes) -> None:
        """Whatever a client sends is stored or refused, and nothing else happens."""
        try:
            records = encode_batch(evolve(PLAIN, body=body), max_message_size=MAX_MESSAGE)
        except MessageIllegal:
            return
        self.assertTrue(records)
