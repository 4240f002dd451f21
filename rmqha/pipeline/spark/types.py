"""Spark's names for Arrow's types, for the types our tables have.

Spark's own mapping is a private module whose signature changes between releases, and a
batch whose schema is not exactly what Spark expects is refused.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as arrow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqha.errors import ColumnUnknown
from rmqha.pipeline.errors import ColumnOfOtherType
from rmqha.pipeline.log.option_values import nearest

_SIMPLE: tuple[tuple[pa.DataType, DataType], ...] = (
    (pa.string(), StringType()),
    (pa.binary(), BinaryType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.bool_(), BooleanType()),
    (pa.timestamp("us", tz="UTC"), TimestampType()),
)


def spark_type(found: pa.DataType) -> DataType:
    """The Spark type of an Arrow type."""
    for ours, theirs in _SIMPLE:
        if found == ours:
            return theirs
    if arrow.is_map(found):
        values = found.item_field
        return MapType(spark_type(found.key_type), spark_type(values.type), values.nullable)
    if arrow.is_list(found):
        return ArrayType(spark_type(found.value_type), found.value_field.nullable)
    if arrow.is_struct(found):
        return spark_schema(found)
    raise TypeError(f"columns of type {found} are not supported")


def spark_schema(fields: pa.Schema | pa.StructType) -> StructType:
    """The Spark schema of an Arrow schema."""
    return StructType(
        [StructField(each.name, spark_type(each.type), each.nullable) for each in fields]
    )


def columns_for(wanted: StructType, table: pa.Schema) -> tuple[str, ...]:
    """The columns a schema asks for.

    @param wanted: What a caller gave to Spark, or what Spark was told.
    @param table: All columns that the table can have.
    @raise ColumnUnknown: If it has no such column.
    @raise ColumnOfOtherType: If the column is of another type.
    """
    known = {name.lower(): name for name in table.names}
    for each in wanted.fields:
        if each.name not in table.names:
            raise ColumnUnknown(each.name, nearest(each.name, known))
        ours = spark_type(table.field(each.name).type)
        if each.dataType != ours:
            names = (each.dataType.simpleString(), ours.simpleString())
            raise ColumnOfOtherType(each.name, *names)
    return tuple(wanted.names)


def arrow_schema(wanted: StructType, table: pa.Schema) -> pa.Schema:
    """The Arrow schema that Spark expects: a column that it was told is never null is not."""
    return pa.schema(
        [table.field(each.name).with_nullable(each.nullable) for each in wanted.fields]
    )
