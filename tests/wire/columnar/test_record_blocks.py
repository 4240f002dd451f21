"""Tests for L{rmqha.wire.columnar.record_blocks}, L{rmqha.wire.columnar.dispatch_fields} and the
loops under them.

The scalar codec is the truth: every result has to be what it says record by record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from struct import pack, pack_into
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.wire.columnar import dispatch_fields as fields
from rmqha.wire.columnar import kernels, kernels_numpy, record_blocks
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import body_crc, java_hash, key_hash
from rmqha.wire.log.layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rmqha.wire.log.record import Fault, check, dispatch_fields
from rmqha.wire.log.sys_flag import has_unit, indexable
from rmqha.wire.names import SCHEDULE_TOPIC

LEVELS = DelayLevels.parse("1s 5s 10s 30s 1m")
MAX_SIZE = 8192
BASE = 4096


def record(
    offset: int,
    *,
    topic: bytes = b"TopicA",
    body: bytes = b"hello",
    properties: bytes = b"",
    flags: int = 0,
    version_2: bool = False,
    number: int = 0,
) -> bytes:
    """One record, laid out by hand."""
    born, store = (bytes(20 if flags & mask else 8) for mask in (0x10, 0x20))
    size = 75 + len(born) + len(store) + version_2 + len(body) + len(topic) + len(properties)
    magic = MAGIC_V2 if version_2 else MAGIC_V1
    head = pack(">iiiiiqq", size, magic, body_crc(body), number % 7, 0, number, offset)
    return b"".join(
        (
            head,
            pack(">iq", flags, 5),
            born,
            pack(">q", 1_700_000_000_000 + number),
            store,
            pack(">iqi", 0, 0, len(body)),
            body,
            pack(">h" if version_2 else ">b", len(topic)),
            topic,
            pack(">h", len(properties)),
            properties,
        )
    )


TOPICS = st.sampled_from(
    [b"TopicA", b"TopicB", b"%RETRY%g", b"t", SCHEDULE_TOPIC.encode(), "Tоpic✓𝄞".encode()]
)
VALUES = st.sampled_from(
    b" a TagA k1 true 3 99 -1 0 x \x00 a\x01b \x01 \xff\xfe polygenelubricants".split(b" ")
) | st.sampled_from(
    [
        b" ",
        b"k1 k2",
        b"  k1   k2 ",
        b"a || b",
        b"0A010203000118B4AAC27F8A4B2C0000",
        "клюґ 𝄞 é".encode(),
        b"q" * 300,
    ]
)
NAMES = st.sampled_from(
    " KEYS TAGS UNIQ_KEY DELAY WAIT K KEYZ UNIQ_KEYS MSG_REGION \x00AGS имя".encode().split(b" ")
)
PAIRS = st.lists(
    st.builds(lambda name, value: name + b"\x01" + value + b"\x02", NAMES, VALUES)
    | st.sampled_from([b"\x02", b"KEYS\x02", b"TAGS", b"\x01", b"ab\x02"]),
    max_size=6,
).map(b"".join)
PROPERTIES = st.builds(lambda raw, cut: raw[:-1] if cut else raw, PAIRS, st.booleans())
FLAGS = st.integers(0, 15).map(lambda bits: bits << 2)
BODIES = st.binary(max_size=12) | st.sampled_from([b"", b"\x01\x02" * 40, bytes(900)])
RECORDS = st.fixed_dictionaries(
    {
        "topic": TOPICS,
        "body": BODIES,
        "properties": PROPERTIES,
        "flags": FLAGS,
        "version_2": st.booleans(),
    }
)


def log(records: list[dict[str, object]], blank: int = 0) -> tuple[bytearray, list[int]]:
    """A log of records that starts at L{BASE}, and each one's position."""
    data = bytearray()
    positions = []
    for number, values in enumerate(records):
        positions.append(len(data))
        data += record(BASE + len(data), number=number, **values)  # type: ignore[arg-type]
    if blank:
        positions.append(len(data))
        data += pack(">ii", blank, MAGIC_BLANK) + bytes(blank - 8)
    return data, positions


def scalar(
    data: bytes | bytearray, base: int, limit: int, file_end: int, **how: bool
) -> tuple[list[int], list[int], int, Fault | None, int]:
    """What L{walk} has to find, by L{check} alone."""
    starts: list[int] = []
    sizes: list[int] = []
    position = 0
    while position < min(limit, file_end) - base:
        verdict = check(
            memoryview(data),
            position,
            limit - base,
            base + position,
            file_end,
            max_size=MAX_SIZE,
            **how,
        )
        if isinstance(verdict, Fault):
            return starts, sizes, base + position, verdict, 0
        if verdict < 0:
            return starts, sizes, base + position - verdict, None, -verdict
        starts.append(base + position)
        sizes.append(verdict)
        position += verdict
    return starts, sizes, base + position, None, 0


def read(data: bytes | bytearray, block: Block) -> list[tuple[object, ...]]:
    """What L{fields.fields} finds, as plain rows."""
    found = fields.fields(memoryview(data), block, LEVELS)
    hashes: list[list[int]] = [[] for _ in block.start]
    for row, value in zip(found.key_record.tolist(), found.key_hash.tolist(), strict=True):
        hashes[row].append(value)
    assert (np.diff(found.key_record) >= 0).all()
    assert len(set(found.topics)) == len(found.topics)
    columns = [
        [found.topics[number] for number in found.topic.tolist()],
        found.queue_id.tolist(),
        found.queue_offset.tolist(),
        found.sys_flag.tolist(),
        found.store_timestamp.tolist(),
        found.tags_code.tolist(),
        has_unit(found.sys_flag).tolist(),
        indexable(found.sys_flag).tolist(),
        hashes,
    ]
    return list(zip(*columns, strict=True))


def read_scalar(data: bytes | bytearray, block: Block) -> list[tuple[object, ...]]:
    """What they have to be, by L{dispatch_fields} alone."""
    rows: list[tuple[object, ...]] = []
    for start, size in zip(block.start.tolist(), block.size.tolist(), strict=True):
        row = dispatch_fields(memoryview(data), start - block.base, size, start, LEVELS)
        hashes = [key_hash(row.topic, key) for key in row.keys]
        rows.append(
            (
                row.topic,
                row.queue_id,
                row.queue_offset,
                row.sys_flag,
                row.store_timestamp,
                row.tags_code,
                row.has_unit,
                row.indexable,
                hashes,
            )
        )
    return rows


#: Loops, and the number of records up to which the scalar codec is taken.
WAYS = [(kernels.NUMPY, 0), (kernels.NUMPY, 1 << 30)]
if COMPILED:
    WAYS += [(kernels.chosen(), 0)]


@contextmanager
def way(chosen: kernels.Kernels, few: int) -> Iterator[None]:
    """Run something with certain loops."""
    with patch.object(kernels, "_chosen", chosen._replace(few=few)):
        yield


class BlockTests(SynchronousTestCase):
    """All loops there are, and the scalar way of small windows."""

    def verify(
        self,
        data: bytes | bytearray,
        limit: int | None = None,
        file_end: int = 1 << 30,
        base: int = BASE,
        **how: bool,
    ) -> Block:
        """Walk and read in all ways, and compare with the scalar codec."""
        limit = base + len(data) if limit is None else limit
        expected = scalar(data, base, limit, file_end, **how)
        rows = None
        for chosen, few in WAYS:
            with way(chosen, few):
                block = walk(memoryview(data), base, limit, file_end, max_size=MAX_SIZE, **how)
                start, size = block.start.tolist(), block.size.tolist()
                self.assertEqual((start, size, block.end, block.fault, block.blank), expected)
                self.assertEqual((block.start.dtype, block.size.dtype), (np.int64, np.int32))
                rows = read_scalar(data, block) if rows is None else rows
                self.assertEqual(read(data, block), rows)
        return block

    def test_nothing(self) -> None:
        """An empty window is an empty block without a fault."""
        block = self.verify(b"")
        self.assertEqual((block.end, block.fault, block.blank), (BASE, None, 0))

    def test_golden(self) -> None:
        """Every file of every stock store gives what the scalar codec gives."""
        records = 0
        for version, name in golden.ARCHIVES:
            for path in sorted((golden.store(version, name) / "commitlog").iterdir()):
                data = path.read_bytes()
                base = int(path.name)
                records += len(self.verify(data, None, base + len(data), base).start)
        self.assertGreater(records, 10_000)

    @given(st.lists(RECORDS, max_size=12), st.sampled_from([0, 8, 9, 100, 5000]), st.booleans())
    def test_whole_logs(
        self, records: list[dict[str, object]], blank: int, nul_is_torn: bool
    ) -> None:
        """Logs of all kinds of records are read to the end."""
        data, _ = log(records, blank)
        block = self.verify(data, None, BASE + len(data), nul_is_torn=nul_is_torn)
        if not nul_is_torn:
            self.assertEqual((block.fault, block.blank, block.end), (None, blank, BASE + len(data)))

    def test_whole_records_are_not_looked_at_again(self) -> None:
        """The rules for many records find no fault where there is none, which would be slow."""
        data, _ = log(
            [
                {"version_2": version_2, "flags": flags, "topic": topic, "body": body}
                for version_2 in (False, True)
                for flags in range(0, 64, 4)
                for topic in (b"t", "✓𝄞".encode())
                for body in (b"", b"hello")
            ],
            100,
        )
        for chosen, _ in WAYS:
            with way(chosen, 0), patch.object(record_blocks, "check", wraps=check) as asked:
                walk(memoryview(data), BASE, BASE + len(data), 1 << 30, max_size=MAX_SIZE)
            self.assertEqual(asked.call_count, 1)

    @given(
        st.lists(
            st.tuples(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"WAIT"]), st.integers(0, 6)),
            max_size=4,
        ),
        st.integers(0, 1 << 32),
        st.sampled_from(["ab", "ab \x1f", "ab \x01", "ab\x00\x02", "aé"]),
    )
    def test_properties_alike(self, pairs: list[tuple[bytes, int]], seed: int, text: str) -> None:
        """Records of one producer differ in the values only, or a little more."""
        random = Random(seed)
        letters = text.encode()
        data, _ = log(
            [
                {
                    "properties": b"".join(
                        name + b"\x01" + bytes(random.choices(letters, k=length)) + b"\x02"
                        for name, length in pairs
                    )
                }
                for _ in range(6)
            ]
        )
        self.verify(data)

    @given(
        st.lists(RECORDS, min_size=1, max_size=8),
        st.sampled_from([0, 8, 200]),
        st.lists(
            st.tuples(
                st.integers(0, 8),
                st.sampled_from([0, 4, 8, 28, 36, 84, 96, 108])
                | st.integers(0, 150)
                | st.integers(-40, -1),
                st.sampled_from(
                    [b"\0", b"\xff", b"\x80", b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4)]
                )
                | st.binary(min_size=1, max_size=4),
            ),
            min_size=1,
            max_size=3,
        ),
        st.integers(0, 400),
        st.integers(-200, 200) | st.none(),
        st.booleans(),
        st.booleans(),
    )
    def test_damaged_logs(
        self,
        records: list[dict[str, object]],
        blank: int,
        damages: list[tuple[int, int, bytes]],
        cut: int,
        file_end: int | None,
        crc: bool,
        nul_is_torn: bool,
    ) -> None:
        """The first bad record ends the block, with the fault the scalar codec names."""
        data, positions = log(records, blank)
        for which, where, value in damages:
            place = min(max(positions[which % len(positions)] + where, 0), len(data) - 1)
            data[place : place + len(value)] = value[: len(data) - place]
        end = BASE + len(data)
        self.verify(
            data,
            max(end - cut, BASE),
            max(end + (file_end or 0), BASE + 1),
            crc=crc,
            nul_is_torn=nul_is_torn,
        )

    @given(st.binary(max_size=400), st.integers(0, 12))
    def test_noise(self, noise: bytes, whole: int) -> None:
        """Any bytes may follow a good log."""
        data, _ = log([{}] * whole)
        self.verify(data + noise)

    def test_every_length_field(self) -> None:
        """No value of a length field makes a wrong record good or a read go astray."""
        usual = {"topic": b"TopicA", "body": b"hello", "properties": b"KEYS\x01a\x02"}
        for version_2 in (False, True):
            original, positions = log([{**usual, "version_2": version_2}] * 3)
            last = positions[-1]
            for where, form, most in (
                (0, ">i", 1 << 31),
                (84, ">i", 1 << 31),
                (93, ">h" if version_2 else ">b", 1 << (15 if version_2 else 7)),
                (100 + version_2, ">h", 1 << 15),
            ):
                for value in (-most, -1, 0, 1, 4, 5, 6, 7, 90, 91, 92, most - 1):
                    data = bytearray(original)
                    pack_into(form, data, last + where, value)
                    self.verify(data)

    def test_many_zeros(self) -> None:
        """The unwritten rest of a file costs nothing and is called so."""
        data, _ = log([{}] * 3)
        block = self.verify(data + bytes(1000))
        self.assertEqual((block.fault, block.end), (Fault.NOTHING, BASE + len(data)))

    def test_read_only_buffers(self) -> None:
        """The buffer may be read-only, and may be released after the call."""
        data, _ = log([{"properties": b"UNIQ_KEY\x01a\x02"}] * 3)
        for buffer in (bytes(data), bytearray(data)):
            for chosen, few in WAYS:
                with way(chosen, few), memoryview(buffer) as view:
                    block = walk(view, BASE, BASE + len(view), 1 << 30, max_size=MAX_SIZE)
                    found = fields.fields(view, block, LEVELS)
                self.assertEqual((len(block.start), found.topics), (3, ["TopicA"]))

    def test_the_order_of_keys(self) -> None:
        """In a record comes the unique key, then the words; of a name written twice the last."""
        text = b"KEYS\x01b  a \x02UNIQ_KEY\x01u\x02TAGS\x01t\x02TAGS\x01tt"
        data, _ = log([{"properties": text}, {"topic": b"TopicB"}, {"properties": text[:20]}])
        found = fields.fields(memoryview(data), self.verify(data), LEVELS)
        self.assertEqual(found.key_record.tolist(), [0, 0, 0, 2, 2])
        self.assertEqual(found.topics, ["TopicA", "TopicB"])
        self.assertEqual(found.tags_code[0], java_hash("tt"))

    def test_the_hash_without_a_positive(self) -> None:
        """A key whose hash is the smallest number is indexed under 0."""
        wanted = ((1 << 31) - java_hash("TopicA#") * 31**8) % (1 << 32)
        low = sum(33 * 31**place for place in range(8))
        wanted += -(-(low - wanted) // (1 << 32)) * (1 << 32) - low
        key = "".join(chr(33 + wanted // 31**place % 31) for place in reversed(range(8)))
        self.assertEqual(java_hash(f"TopicA#{key}"), -(1 << 31))
        data, _ = log([{"properties": f"KEYS\x01{key}\x02".encode()}] * 2)
        block = self.verify(data)
        found = fields.fields(memoryview(data), block, LEVELS)
        self.assertEqual(found.key_hash.tolist(), [0, 0])

    def test_long_tags(self) -> None:
        """A string of thousands of letters is hashed."""
        data, _ = log([{"properties": b"TAGS\x01" + b"ab" * 3900 + b"c\x02"}])
        found = fields.fields(memoryview(data), self.verify(data), LEVELS)
        self.assertEqual(found.tags_code.tolist(), [java_hash("ab" * 3900 + "c")])

    def test_very_many_keys(self) -> None:
        """A record may have as many keys as its properties have room for."""
        text = b"KEYS\x01" + b"a b " * 900 + b"\x02"
        data, _ = log([{"properties": text}] * 2)
        block = self.verify(data)
        self.assertEqual(len(fields.fields(memoryview(data), block, LEVELS).key_hash), 3600)


class ChoiceTests(SynchronousTestCase):
    def test_crc_of_parts(self) -> None:
        """CRCs are those of C{zlib}, of empty parts too."""
        view = memoryview(b"hello, world")
        found = kernels_numpy.crcs(view, np.array([0, 3, 0]), np.array([5, 3, 12]))
        self.assertEqual((found & 0x7FFFFFFF).tolist(), [0x3610A686, 0, body_crc(view)])
