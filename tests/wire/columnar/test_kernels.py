"""Tests for L{rmqha.wire.columnar.kernels} and C{columns_run}, beside numpy's passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any
from unittest import skipUnless

import numpy as np
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import RecordCorrupt
from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.decoder import COLUMNS, MORE_COLUMNS, Decoder
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.record import Message
from tests.wire.columnar.test_decoder import log_of, rows_of
from tests.wire.columnar.test_record_blocks import way
from tests.wire.records import PLAIN, messages

HAS_ARROW = find_spec("pyarrow") is not None
BASE = 1 << 20
LAST = 1 << 30
"""Where the log file ends."""


def told(data: bytes, **how: Any) -> tuple[list[dict[str, Any]], int, str]:
    """All that a decoder says of a log: its rows, how much they take, and the error after them."""
    decoder = Decoder((*COLUMNS, *MORE_COLUMNS), **how)
    rows: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        try:
            batch, used = decoder.decode(
                memoryview(data)[position:], BASE + position, file_end=LAST
            )
        except RecordCorrupt as error:
            return rows, position, str(error)
        batch.validate(full=True)
        rows += rows_of(batch)
        position += used
        if not used:
            break
    return rows, position, ""


@skipUnless(COMPILED and HAS_ARROW, "needs the lane compiled, and pyarrow")
class OnePassTests(SynchronousTestCase):
    def same(self, data: bytes, **how: Any) -> tuple[list[dict[str, Any]], int, str]:
        """Decode in both ways, and compare."""
        found = []
        for chosen in (kernels.NUMPY, kernels.chosen()):
            with way(chosen, 0):
                found.append(told(data, **how))
        self.assertEqual(found[0], found[1])
        return found[1]

    @given(
        st.lists(messages(), min_size=1, max_size=6),
        st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=2),
        st.booleans(),
    )
    def test_damaged_logs(
        self, sent: list[Message], damage: Sequence[tuple[int, int]], crc: bool
    ) -> None:
        """Whatever became of a log, both see the same of it."""
        data = bytearray(log_of(sent, BASE))
        for place, value in damage:
            data[place % len(data)] = value
        self.same(bytes(data), verify_crc=crc)

    def test_cut_anywhere(self) -> None:
        """A record that is not whole is asked for again."""
        data = log_of([PLAIN, PLAIN], BASE)
        for end in range(len(data)):
            self.same(data[:end], verify_crc=True)

    def test_many_topics(self) -> None:
        """There may be as many topics as records."""
        data = log_of([evolve(PLAIN, topic=f"t{number}") for number in range(1500)], BASE)
        rows, used, _ = self.same(data)
        self.assertEqual([row["topic"] for row in rows], [f"t{n}" for n in range(1500)])
        self.assertEqual(used, len(data))

    def test_topic_that_is_no_text(self) -> None:
        """The rows end before a topic that cannot be read; other letters are no harm."""
        data = bytearray(log_of([evolve(PLAIN, topic=name) for name in ("é", "ab", "é")], BASE))
        at = data.index(b"ab")
        data[at : at + 2] = b"\xff\xfe"
        rows, _, error = self.same(bytes(data))
        self.assertEqual([row["topic"] for row in rows], ["é"])
        self.assertIn("topic", error)

    def test_some_rows(self) -> None:
        """Rows may be left out in one block, and none in the next."""
        data = log_of([evolve(PLAIN, queue_id=n % 3, body=b"%d" % n) for n in range(30)], BASE)

        def keep(heads: FixedFields) -> Array:
            return heads.column("queue_id") != (1 if heads.start[0] + len(heads) > 20 else 9)

        rows, _, _ = self.same(data, keep=keep)
        self.assertEqual(
            [row["body"] for row in rows], [b"%d" % n for n in range(30) if n % 3 != 1]
        )

    def test_without_the_c_function(self) -> None:
        """Where isal's CRC is not to be had by its address, it is asked through Python."""
        code = (
            "import sys\n"
            "from rmqha.wire.lane import native_crc\n"
            "native_crc.CRC = 0\n"
            "from rmqha.wire.columnar import kernels\n"
            "log = memoryview(sys.stdin.buffer.read())\n"
            "print(len(kernels.sound(log, 0, len(log), True, 1 << 20, False)), end=' ')\n"
            "print(len(kernels.heads(log, 0, len(log), True, 1 << 20, False, False).chain))"
        )
        data = bytearray(log_of([PLAIN] * 3, 0))
        for damaged, chain in ((False, "4 4"), (True, "3 3")):
            data[data.rindex(PLAIN.body)] ^= damaged
            done = subprocess.run(
                [sys.executable, "-c", code], check=False, input=data, capture_output=True
            )
            self.assertEqual(done.stdout.decode().strip(), chain, done.stderr)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([0, 0x7F000001, 0xFFFFFFFF]),
                st.sampled_from([0, 9, 10, 65535, -1, -(1 << 31)]),
                st.integers(0, 1 << 62),
            ),
            max_size=9,
        )
    )
    def test_texts_of_hosts(self, rows: list[tuple[int, int, int]]) -> None:
        """Addresses and ids are written as Python writes them."""
        from rmqha.wire.columnar.arrow_columns import _offset_ids
        from rmqha.wire.columnar.kernels import hosts, offset_ids

        ips = np.array([row[0] for row in rows], np.uint32)
        ports = np.array([row[1] for row in rows], np.int32)
        places = np.array([row[2] for row in rows], np.int64)
        ends, letters = hosts(ips, ports)
        text = letters.tobytes().decode()
        wanted = [
            ".".join(str(ip >> shift & 255) for shift in (24, 16, 8, 0)) + f":{port}"
            for ip, port, _ in rows
        ]
        self.assertEqual([text[a:b] for a, b in pairwise(ends)], wanted)
        ids = offset_ids(ips, ports, places).tobytes()
        self.assertEqual(ids, _offset_ids(ips, ports, places).tobytes())
