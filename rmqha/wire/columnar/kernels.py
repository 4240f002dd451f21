"""
The choice who runs the inner loops of L{rmqha.wire.columnar.record_blocks},
L{rmqha.wire.columnar.dispatch_fields} and L{rmqha.wire.columnar.decoder}.

L{rmqha.wire.columnar.kernels_numpy} has them in numpy, L{rmqha.wire.columnar._numba_kernels}
in numba, from the extra C{fast}; both give equal results.
Those in numpy run until L{warm_up} was called, so that no compiler starts in
the middle of a reactor turn; C{RMQHA_PURE=1} in the environment keeps them for good.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmqha.wire.columnar import kernels_numpy as plain
from rmqha.wire.columnar.vectors import Array

Heads = Callable[[memoryview, int, int, bool, int, bool, bool], plain.FixedColumns]


class Kernels(NamedTuple):
    """
    One implementation of the inner loops.

    @ivar name: C{numpy} or C{numba}.
    @ivar few: Up to so many records the scalar codec is faster.
    @ivar follow: L{plain.follow} or its twin.
    @ivar rules: L{plain.rules} or its twin.
    @ivar crcs: L{plain.crcs} or its twin.
    @ivar columns: L{plain.columns} or its twin.
    @ivar layout: L{plain.layout} or its twin.
    @ivar number: L{plain.number} or its twin.
    @ivar properties: L{plain.properties} or its twin.
    @ivar gather: L{_fast_texts.gather<rmqha.wire.columnar._numba_texts.gather>}; without numba
        Arrow does it.
    @ivar heads: L{_fast_heads.heads<rmqha.wire.columnar._numba_fixed_fields.heads>}; without it
        records are followed, checked and read one after the other.
    @ivar hosts: L{_fast_texts.hosts<rmqha.wire.columnar._numba_texts.hosts>}.
    @ivar offset_ids: L{_fast_texts.offset_ids<rmqha.wire.columnar._numba_texts.offset_ids>}.
    """

    name: str
    few: int
    follow: Callable[[memoryview, int], Array]
    rules: Callable[[memoryview, int, Array, int, bool], plain.Bodies]
    crcs: Callable[[memoryview, Array, Array], Array]
    columns: Callable[[memoryview, Array, Array], plain.DispatchColumns]
    layout: Callable[[memoryview, Array], plain.StringLayout]
    number: Callable[[memoryview, Array, Array], tuple[list[str], Array]]
    properties: Callable[[memoryview, Array, Array, Sequence[bytes], bool], plain.Properties]
    gather: Callable[[memoryview, Array, Array, Array], None] | None = None
    heads: Heads | None = None
    hosts: Callable[[Array, Array], tuple[Array, Array]] | None = None
    offset_ids: Callable[[Array, Array, Array], Array] | None = None


# Measured: numpy costs about 60 microseconds before its first record, the scalar codec
# about 2 a record.
NUMPY = Kernels(
    "numpy",
    24,
    plain.follow,
    plain.rules,
    plain.crcs,
    plain.columns,
    plain.layout,
    plain.number,
    plain.properties,
)
_chosen = NUMPY


def chosen() -> Kernels:
    """
    The loops in use now.
    """
    return _chosen


def warm_up() -> Kernels:
    """
    Compile numba's loops, when there is numba, and use them from now on.

    Call it once, when the process starts and before it serves: numba needs
    one third of a second to load and, when it finds no cache of an earlier run, two
    seconds to compile.

    @return: What is in use now.
    """
    global _chosen
    if os.environ.get("RMQHA_PURE") != "1":
        try:
            from rmqha.wire.columnar._numba_kernels import LOOPS
        except ImportError:  # no numba, or one that does not go with this numpy
            return _chosen
        _chosen = LOOPS
    return _chosen
