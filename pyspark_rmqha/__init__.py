"""Where Spark looks for the data source C{rmqha}: a module named C{pyspark_...} with a
C{DefaultSource}.
"""

from rmqha.pipeline.spark.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
