"""
The data source C{rmqha} of PySpark.

    spark.read.format("rmqha").option("topic", "orders").load("/data/store")

Spark finds it by the name of the package C{pyspark_rmqha}.  Importing this module is
cheap: Spark does so in a process of its own for every plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from rmqha.pipeline.catalog import is_table, options_of, recalled, remembering
from rmqha.pipeline.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "rmqha"


class LogSource(DataSource):
    """
    The logs of stores.
    """

    @classmethod
    def name(cls) -> str:
        """
        What C{format} and C{USING} call it.
        """
        return NAME

    def schema(self) -> StructType:
        """
        The columns that the options ask for.
        """
        from rmqha.pipeline.spark_types import spark_schema
        from rmqha.pipeline.tables import schema_of

        options = options_of(self.options)
        found = spark_schema(schema_of(Options.parse(options, streaming=None)))
        return remembering(found, options) if is_table(self.options) else found

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        What plans and reads a batch.
        """
        from rmqha.pipeline.batch import BatchReader

        return BatchReader(Options.parse(recalled(schema, self.options)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        What plans and reads the batches of a stream.
        """
        from rmqha.pipeline.stream import StreamReader

        options = Options.parse(recalled(schema, self.options), streaming=True)
        return StreamReader(options, schema)
