"""The data source C{rmqha} of PySpark.

    >>> spark.read.format("rmqha").option("topic", "orders").load("/data/store")

Spark finds it by the name of the package C{pyspark_rmqha}.  Importing this module is
cheap: Spark does so in a process of its own for every plan.
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
from rmqha.pipeline.spark.catalog import (
    is_sink,
    is_table,
    options_of,
    reading,
    recalled,
    recalled_for_sending,
    remembering,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
        """What plans and reads a batch."""
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
