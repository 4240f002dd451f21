"""Rows as messages: what a DataFrame's columns mean when it is written to a broker.

Source: docs/guide/replay.rst, Columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rmqha.errors import ColumnUnknown
from rmqha.pipeline.errors import ColumnNeeded, ColumnNotOfType, OptionMissing
from rmqha.pipeline.log.option_values import nearest
from rmqha.pipeline.producing.errors import RowUnsendable
from rmqha.pipeline.producing.messages import Outgoing
from rmqha.pipeline.spark.types import spark_type
from rmqha.wire.names import KEYS, TAGS

SENT = pa.schema(
    [
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("queue_id", pa.int32()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("flag", pa.int32()),
    ]
)
"""The columns that a row may have; a table that is only written to has them all."""

_ALSO = {"body": ("string",), "queue_id": ("bigint", "smallint", "tinyint")}
"""Spark's names of types that are taken as well."""

_LARGEST_QUEUE = (1 << 31) - 1


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Refuse rows that are no messages before any of them is made.

    @param types: Spark's name of each column's type.
    @param topic: The topic for all, if there is one.
    @raise ColumnUnknown: If a column means nothing.
    @raise ColumnNotOfType: If one has another type than it must have.
    @raise ColumnNeeded: If there is no body.
    @raise OptionMissing: If nothing says where messages go.
    """
    for name, given in types.items():
        if name not in SENT.names:
            raise ColumnUnknown(name, nearest(name, {other: other for other in SENT.names}))
        ours = spark_type(SENT.field(name).type).simpleString()
        if given not in (ours, *_ALSO.get(name, ())):
            raise ColumnNotOfType(name, ours, given)
    if "body" not in types:
        raise ColumnNeeded("body", tuple(types))
    if topic is None and "topic" not in types:
        raise OptionMissing("topic", "there is no column topic")


def messages_of(
    batch: pa.RecordBatch, topic: str | None = None, first: int = 0
) -> Iterator[Outgoing]:
    """The messages of a batch, in its order.

    @param topic: The topic of all; C{None} takes each row's own.
    @param first: The number of its first row.
    @raise RowUnsendable: If a row is none.
    """
    names = batch.schema.names
    for number, values in enumerate(zip(*(c.to_pylist() for c in batch.columns), strict=True)):
        yield _message(first + number, dict(zip(names, values, strict=True)), topic)


def _message(number: int, row: dict[str, Any], topic: str | None) -> Outgoing:
    topic = topic or row.get("topic")
    if not topic:
        raise RowUnsendable("topic", number, "is null or empty, and there is no option topic")
    body = row["body"]
    if body is None:
        raise RowUnsendable("body", number, "is null")
    queue_id = row.get("queue_id")
    if queue_id is not None and not 0 <= queue_id <= _LARGEST_QUEUE:
        raise RowUnsendable("queue_id", number, f"is {queue_id}")
    pairs = row.get("properties") or ()
    properties = {name: value for name, value in pairs if value}
    for name, column in ((TAGS, "tags"), (KEYS, "keys")):
        if row.get(column):
            properties[name] = row[column]
    return Outgoing(
        topic,
        body.encode() if isinstance(body, str) else body,
        properties,
        queue_id,
        flag=row.get("flag") or 0,
    )
