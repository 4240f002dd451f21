"""The choice who runs the inner loops of L{rmqha.wire.columnar.record_blocks},
L{rmqha.wire.columnar.dispatch_fields} and L{rmqha.wire.columnar.decoder}.

L{rmqha.wire.columnar.kernels_numpy} has them in numpy, L{rmqha.wire.columnar._numba_kernels}
in numba, from the extra C{fast}; where the lane is compiled, L{COMPILED_CHECK} has records checked
by L{rmqha.wire.lane.check_run} and the rest in numpy.  All give equal results.
Those without numba run until L{warm_up} was called, so that no compiler starts in
the middle of a reactor turn; C{RMQHA_PURE=1} in the environment keeps them for good.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqha.wire.columnar import kernels_numpy
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.layout import MIN_RECORD

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.check_run import sound_records

Heads = Callable[[memoryview, int, int, bool, int, bool, bool], kernels_numpy.FixedColumns]


class Kernels(NamedTuple):
    """One implementation of the inner loops.

    @ivar name: C{numpy}, C{compiled} or C{numba}.
    @ivar few: Up to so many records the scalar codec is faster.
    @ivar follow: L{kernels_numpy.follow} or its twin.
    @ivar rules: L{kernels_numpy.rules} or its twin.
    @ivar crcs: L{kernels_numpy.crcs} or its twin.
    @ivar columns: L{kernels_numpy.columns} or its twin.
    @ivar layout: L{kernels_numpy.layout} or its twin.
    @ivar number: L{kernels_numpy.number} or its twin.
    @ivar properties: L{kernels_numpy.properties} or its twin.
    @ivar gather: L{_fast_texts.gather<rmqha.wire.columnar._numba_texts.gather>}; without numba
        Arrow does it.
    @ivar heads: L{_fast_heads.heads<rmqha.wire.columnar._numba_fixed_fields.heads>}; without it
        records are followed, checked and read one after the other.
    @ivar hosts: L{_fast_texts.hosts<rmqha.wire.columnar._numba_texts.hosts>}.
    @ivar offset_ids: L{_fast_texts.offset_ids<rmqha.wire.columnar._numba_texts.offset_ids>}.
    @ivar sound: L{sound}; without it records are followed, then checked.
    """

    name: str
    few: int
    follow: Callable[[memoryview, int], Array]
    rules: Callable[[memoryview, int, Array, int, bool], kernels_numpy.Bodies]
    crcs: Callable[[memoryview, Array, Array], Array]
    columns: Callable[[memoryview, Array, Array], kernels_numpy.DispatchColumns]
    layout: Callable[[memoryview, Array], kernels_numpy.StringLayout]
    number: Callable[[memoryview, Array, Array], tuple[list[str], Array]]
    properties: Callable[
        [memoryview, Array, Array, Sequence[bytes], bool], kernels_numpy.Properties
    ]
    gather: Callable[[memoryview, Array, Array, Array], None] | None = None
    heads: Heads | None = None
    hosts: Callable[[Array, Array], tuple[Array, Array]] | None = None
    offset_ids: Callable[[Array, Array, Array], Array] | None = None
    sound: Callable[[memoryview, int, int, bool, int, bool], Array] | None = None


def sound(
    buf: memoryview, base: int, stop: int, crc: bool, max_size: int, nul_is_torn: bool
) -> Array:
    """Follow records from position 0 on while they break no rule; compiled.

    @param base: Physical offset of C{buf[0]}.
    @param stop: Position of the first byte that may not be read.
    @param crc: Whether to check body CRCs.
    @return: Their positions, and where the last one ends.
    """
    chain = np.empty(max(stop, 0) // MIN_RECORD + 1, np.int64)
    chain[0] = 0
    count = sound_records(buf, base, stop, crc, max_size, nul_is_torn, chain[1:].data)
    return chain[: count + 1].copy()


# Measured: numpy costs about 60 microseconds before its first record, the scalar codec
# about 2 a record.
NUMPY = Kernels(
    "numpy",
    24,
    kernels_numpy.follow,
    kernels_numpy.rules,
    kernels_numpy.crcs,
    kernels_numpy.columns,
    kernels_numpy.layout,
    kernels_numpy.number,
    kernels_numpy.properties,
)
COMPILED_CHECK = NUMPY._replace(name="compiled", sound=sound)
_chosen = COMPILED_CHECK if COMPILED else NUMPY


def chosen() -> Kernels:
    """The loops in use now."""
    return _chosen


def warm_up() -> Kernels:
    """Compile numba's loops, when there is numba, and use them from now on.

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
