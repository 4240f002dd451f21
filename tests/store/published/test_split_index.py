"""Tests for L{rmqha.store.published.split_index}: its loops.  What it writes is tested with
L{rmqha.store.published.publish}.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from unittest import skipUnless
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.store.published import split_index
from rmqha.store.published.split_index import SplitIndex
from rmqha.wire.columnar import kernels
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.split_spans import SpanMaker
from rmqha.wire.store_layout import OWN_FOLDER
from tests.wire.columnar.test_record_blocks import BASE, RECORDS, log


@skipUnless(COMPILED, "the lane is not compiled here")
class LoopsTests(SynchronousTestCase):
    """The compiled loops and those in numpy."""

    @given(
        st.lists(RECORDS, max_size=40),
        st.sampled_from([0, 16]),
        st.integers(-1, 1 << 12),
        st.sampled_from([300, 1500, 1 << 20]),
    )
    def test_like_numpy(
        self, records: list[dict[str, object]], blank: int, damage: int, step: int
    ) -> None:
        """Both come as far, and write the same."""
        data, _ = log(records, blank)
        if 0 <= damage < len(data):
            data[damage] ^= 0x40
        found = [
            self._made(bytes(data), step, loops) for loops in (kernels.chosen(), kernels.NUMPY)
        ]
        self.assertEqual(*found)

    def _made(self, data: bytes, step: int, loops: kernels.Kernels) -> tuple[object, ...]:
        root = Path(mkdtemp())
        try:
            (root / OWN_FOLDER).mkdir()
            made = SplitIndex(root, SpanMaker(BASE), len(data))
            with (
                patch.object(kernels, "_chosen", loops),
                patch.object(split_index, "STEP", step),
                patch.object(split_index, "REST", 0.0),
            ):
                further = made.advance(memoryview(data), BASE + len(data))
            files = {
                str(path.relative_to(root)): path.read_bytes()
                for path in root.rglob("*")
                if path.is_file()
            }
            return further, made.position, made.start, repr(made._spans), files
        finally:
            shutil.rmtree(root)
