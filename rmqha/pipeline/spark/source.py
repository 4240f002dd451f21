"""The data source C{rmqha} of PySpark.

    >>> spark.read.format("rmqha").option("topic", "orders").load("/data/store")

Spark finds it by the name of the package C{pyspark_rmqha}.  Importing this module is
cheap: Spark does so in a process of its own for every plan.

Tables in Spark's catalog: C{CREATE TABLE ... USING rmqha}.

When a table is made, its options come among all its properties; when it is read or written to,
Spark 4.3 hands on none of them, only the schema that was inferred when it was made.  So they are
remembered there, as metadata of the first column.

A table may have options of reads and of writes; one that only has those of writes cannot be
read, and has the columns of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.producing.settings import SendOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType
import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from rmqha.pipeline.errors import OptionInvalid
from rmqha.pipeline.log.options import KINDS
from rmqha.pipeline.producing.settings import SEND_KINDS
from rmqha.pipeline.remoting.store_places import BROKER, HOST, asked

_PROVIDER = "provider"
"""A property that every table has, and no read of a path."""

_OPTION = "option."
"""How the catalog calls an option, beside its plain name."""

_MEMORY = "rmqha.options"

_READ = frozenset(name.lower() for name in KINDS)

_NEEDED = "nameserver"

_ASKING = frozenset({_NEEDED, "tlsconfigfile"})
"""What a read needs only where name servers say which brokers there are."""

_SEND = frozenset(name.lower() for name in SEND_KINDS) - _READ | _ASKING
"""What a write is told.  C{topic} is the read's, unless a table is only written to."""

_PLACES = frozenset({"path", "paths", "stores", "storesfile", "tier"})


def is_table(given: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being made."""
    return _PROVIDER in given


def options_of(given: Mapping[str, str]) -> dict[str, str]:
    """The options among what Spark gives: all, or of a table's properties those that are some.

    @raise OptionInvalid: If a table has a property that would be an option, and is none: it
        would do nothing.
    """
    if not is_table(given):
        return dict(given)
    found = {name: value for name, value in given.items() if name.lower() == "path"}
    for name, value in given.items():
        if name.lower().startswith(_OPTION):
            found[name[len(_OPTION) :]] = value
    told = {name.lower() for name in found}
    for name, value in given.items():
        if name.lower() in (_READ | _SEND) - told:
            raise OptionInvalid(
                name, value, "put it among the OPTIONS of the table, not its TBLPROPERTIES"
            )
    return found


def reading(options: Mapping[str, str]) -> dict[str, str]:
    """A table's options without those of writes."""
    places = [value for name, value in options.items() if name.lower() in _PLACES]
    unread = _SEND - _ASKING if any(asked(place) & {BROKER, HOST} for place in places) else _SEND
    return {name: value for name, value in options.items() if name.lower() not in unread}


def is_sink(options: Mapping[str, str]) -> bool:
    """Whether a table with these options is only written to."""
    names = {name.lower() for name in options}
    return _NEEDED in names and not names & _PLACES


def remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """A table's schema with its options."""
    first, *others = schema.fields
    memory = {**first.metadata, _MEMORY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, memory), *others])


def recalled(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a read: what is given now wins over what was remembered."""
    return {**reading(_remembered(schema)), **options_of(given)}


def recalled_for_sending(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a write, in the same way."""
    memory = _remembered(schema)
    if not is_sink(memory):
        memory = {name: value for name, value in memory.items() if name.lower() in _SEND}
    return {**memory, **options_of(given)}


def _remembered(schema: StructType) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in schema.fields:
        found.update(json.loads(field.metadata.get(_MEMORY, "{}")))
    return found


NAME = "rmqha"

SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
"""What Spark hands to the sink of a stream, though it is not for it."""


class LogSource(DataSource):
    """The data source C{rmqha}: reads the logs of stores, and writes to brokers."""

    @classmethod
    def name(cls) -> str:
        """What C{format} and C{USING} call it."""
        return NAME

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        from rmqha.pipeline.log.tables import schema_of
        from rmqha.pipeline.spark.message_rows import SENT
        from rmqha.pipeline.spark.types import spark_schema

        options = options_of(self.options)
        if not is_table(self.options):
            return spark_schema(schema_of(ReadOptions.parse(options, streaming=None)))
        if is_sink(options):
            SendOptions.parse(options)
            return remembering(spark_schema(SENT), options)
        found = schema_of(ReadOptions.parse(reading(options), streaming=None))
        return remembering(spark_schema(found), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from rmqha.pipeline.spark.batch import BatchReader

        return BatchReader(ReadOptions.parse(recalled(schema, self.options)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What plans and reads the batches of a stream."""
        from rmqha.pipeline.spark.stream import StreamReader

        options = ReadOptions.parse(recalled(schema, self.options), streaming=True)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What sends the rows of a DataFrame to brokers."""
        from rmqha.pipeline.spark.writing import BatchWriter

        options = SendOptions.parse(recalled_for_sending(schema, self.options))
        return BatchWriter(options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """What sends the rows of a stream to brokers."""
        from rmqha.pipeline.spark.writing import StreamWriter

        given = {name: self.options[name] for name in self.options if name not in SPARKS_OWN}
        options = SendOptions.parse(recalled_for_sending(schema, given))
        return StreamWriter(options, schema, overwrite)
