"""The columns of a table: those asked for, and those that show where a row came
from.
"""

from __future__ import annotations

from typing import Self

import pyarrow as pa
from attrs import frozen

from rmqha.pipeline.errors import OptionInvalid
from rmqha.pipeline.log.options import ReadOptions, Style
from rmqha.pipeline.log.reading import MessageReader, chosen_columns
from rmqha.pipeline.sinks.table_layout import DATE, By
from rmqha.wire.columnar.decoder import STYLES

STORE = "store"
"""The column that every table has at its end: the store that a row is from."""


@frozen(kw_only=True)
class TableColumns:
    """The columns of a table by their names in its style.

    @ivar reader: Makes rows of what is needed for one, and of what folders are made by.
    @ivar kept: Those that rows of the table have, without L{STORE}.
    @ivar time: That of the store time.
    @ivar size: That of the record's size.
    @ivar place: That of the physical offset.
    """

    reader: MessageReader
    kept: tuple[str, ...]
    topic: str
    time: str
    size: str
    place: str

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """The columns that options ask for.

        @raise OptionInvalid: If the style has no name for where a record lies.
        @raise ColumnUnknown: If one is asked for that there is not.
        """
        style = options.column_style
        if style is Style.KAFKA:
            raise OptionInvalid("columnStyle", style.value, "rmqha or rocketmq for a table")
        names = {column: name for name, column in STYLES[style.value].items()}
        chosen = chosen_columns(options)
        place = names["physical_offset"]
        kept = chosen if place in chosen else (*chosen, place)
        topic, time, size = names["topic"], names["store_timestamp"], names["store_size"]
        read = tuple(dict.fromkeys((*kept, topic, time, size)))
        return cls(
            reader=MessageReader(options, read),
            kept=kept,
            topic=topic,
            time=time,
            size=size,
            place=place,
        )

    def schema(self, by: By, whole: bool) -> pa.Schema:
        """The schema of a file.

        @param whole: Whether it has the columns too that folders stand for.
        """
        read = self.reader.schema
        folders = {DATE, "topic"} if by is By.TOPIC else {DATE}
        names = [name for name in self.kept if whole or name not in folders]
        fields = [read.field(name).with_nullable(True) for name in names]
        return pa.schema([*fields, pa.field(STORE, pa.string())])

    def topics(self, rows: pa.Table) -> dict[str, tuple[int, int]]:
        """Rows, and bytes of their records, by topic."""
        table = pa.table({"topic": rows.column(self.topic), "size": rows.column(self.size)})
        found = table.group_by("topic").aggregate([("size", "sum"), ("topic", "count")])
        return {
            row["topic"] or "": (row["topic_count"], row["size_sum"] or 0)
            for row in found.to_pylist()
        }
