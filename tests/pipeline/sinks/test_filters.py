"""A filter finds in a table what a look at each row finds, whatever readers make of statistics."""

from __future__ import annotations

import operator
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log.encode import encode, place
from rmqha.wire.log.properties import encode as encode_properties
from rmqha.wire.log.record import Message
from rmqha.wire.names import KEYS, UNIQUE_KEY
from tests.support.effort import slow, tries

try:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable, QueryBuilder
    from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThanOrEqual

    from rmqha.pipeline.sinks.iceberg import catalog_of
    from rmqha.pipeline.sinks.target import Format, Target
    from tests.support.lake import append, rows
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"

STORED = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZERO_TIME = -62_135_596_800_000
"""What a producer sends that leaves Go's or .NET's time at its zero: the year 1."""
YEAR_999 = -30_641_760_000_000
LAST = 253_402_300_799_999
"""The last millisecond of the year 9999."""

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
}
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
KEY = st.text(st.characters(exclude_characters="\0\1\2", exclude_categories=["Cs"]), min_size=1)


def store_of(root: Path, messages: Sequence[tuple[int, str, int]]) -> Path:
    """A log of messages: birth in milliseconds, keys, and the offset of the prepared message."""
    (root / "commitlog").mkdir(parents=True)
    data = bytearray()
    for number, (born, keys, prepared) in enumerate(messages):
        message = Message(
            topic="Filters",
            queue_id=0,
            body=b"body",
            properties=encode_properties({KEYS: keys, UNIQUE_KEY: f"{number:032X}"}),
            born_timestamp=born,
            born_host=("127.0.0.1", 40000),
            store_host=("127.0.0.1", 10911),
            prepared_transaction_offset=prepared,
        )
        record = encode(message, max_message_size=1 << 20)
        place(record, queue_offset=number, offset=len(data), store_timestamp=STORED)
        data += record
    size = 1 << 20
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(size, b"\0"))
    return root


class FilterTests(SynchronousTestCase):
    """Readers that leave out files, and groups of rows, by their statistics."""

    def filled(self, messages: Sequence[tuple[int, str, int]]) -> Iterator[Target]:
        """A table of each format with these messages."""
        home = Path(tempfile.mkdtemp(prefix="filters-"))
        self.addCleanup(shutil.rmtree, home, ignore_errors=True)
        store = store_of(home / "store", messages)
        for format in Format:
            target = Target.at(home / format.value, format=format)
            append(target, store)
            yield target

    def assert_found(self, messages: Sequence[tuple[int, str, int]]) -> None:
        """Least and greatest values of a table are found by each reader with each comparison."""
        for target in self.filled(messages):
            every = rows(target)
            self.assertEqual(len(messages), every.num_rows)
            for column in ("born_timestamp", "keys", "prepared_transaction_offset"):
                values = every.column(column).to_pylist()
                known = [each for each in values if each is not None]
                for value in {min(known), max(known)} if known else ():
                    for sign, holds in OPERATORS.items():
                        wanted = sum(holds(each, value) for each in known)
                        for name, count in readers(target, column, sign, value):
                            what = (target.format.value, name, column, sign, value)
                            self.assertEqual((what, wanted), (what, count))

    def test_zero_times(self) -> None:
        """One birth in the year 1 or 999 hides no other message of its file."""
        for early in (ZERO_TIME, YEAR_999):
            self.assert_found([*((STORED + n, "a", 0) for n in range(9)), (early, "a", 0)])

    def test_last_times(self) -> None:
        """Nor does one at the end of what calendars know."""
        self.assert_found([(STORED, "a", 0), (LAST, "a", 0)])

    def test_rare_characters(self) -> None:
        """A text that begins with a character of any plane of Unicode is found."""
        for rare in ("\U00020bb7", "\U0010ffff"):
            self.assert_found([(STORED, "a", 0), (STORED, rare, 0), (STORED, rare, 0)])

    @slow
    @hypothesis(max_examples=tries(5), deadline=None)
    @given(
        st.lists(
            st.tuples(st.one_of(st.integers(ZERO_TIME, LAST), LONGS), KEY, LONGS),
            min_size=1,
            max_size=4,
        )
    )
    def test_all_values(self, messages: list[tuple[int, str, int]]) -> None:
        """Whatever a column can hold is found."""
        self.assert_found(messages)


def readers(target: Target, column: str, sign: str, value: Any) -> Iterator[tuple[str, int]]:
    """How many rows each reader of a table finds with a filter."""
    field = ds.field(column)
    chosen = {"=": field == value, ">=": field >= value, "<=": field <= value}[sign]
    if target.format is Format.ICEBERG:
        catalog = catalog_of(target.iceberg, target.shape)
        table = catalog.load_table(target.iceberg.table)
        kind = {"=": EqualTo, ">=": GreaterThanOrEqual, "<=": LessThanOrEqual}[sign]
        shown = value.isoformat() if isinstance(value, datetime) else value
        yield "pyiceberg", table.scan(row_filter=kind(column, shown)).to_arrow().num_rows
        return
    if target.format is Format.DELTA:
        table = DeltaTable(target.root)
        dataset = table.to_pyarrow_dataset()
        literal = _sql(value)
        query = f'SELECT count(*) AS n FROM t WHERE "{column}" {sign} {literal}'
        answer = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
        yield "DataFusion", answer.column("n")[0].as_py()
        kept = table.to_pyarrow_table(filters=[(column, sign, value)])
        yield "to_pyarrow_table", kept.num_rows
    else:
        dataset = ds.dataset(target.root, format="parquet", partitioning="hive")
    yield "pyarrow", dataset.count_rows(filter=chosen)
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("t", dataset)
        found = database.execute(f'SELECT count(*) FROM t WHERE "{column}" {sign} ?', [value])
        (count,) = found.fetchone() or (0,)
    yield "DuckDB", count


def _sql(value: Any) -> str:
    if isinstance(value, datetime):
        return f"to_timestamp_micros({(value - EPOCH) // timedelta(microseconds=1)})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
