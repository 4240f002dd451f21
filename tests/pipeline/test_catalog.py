"""
Tests for L{rmqha.pipeline.catalog}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

try:
    from pyspark.sql.types import LongType, StructField, StructType

    from rmqha.pipeline.catalog import is_table, options_of, recalled, remembering
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

#: What Spark hands on when a table is made.
PROPERTIES = {
    "comment": "all orders",
    "location": "file:/data/store",
    "option.topic": "orders",
    "owner": "root",
    "path": "file:/data/store",
    "provider": "rmqha",
    "topic": "orders",
    "zone": "of somebody else",
}
OPTIONS = {"path": "file:/data/store", "topic": "orders"}


class CatalogTests(SynchronousTestCase):
    """
    A table's options survive in its schema.
    """

    def test_properties(self) -> None:
        """
        Of a table's properties only its options and its path count; of a read everything.
        """
        self.assertTrue(is_table(PROPERTIES))
        self.assertEqual(OPTIONS, options_of(PROPERTIES))
        self.assertFalse(is_table(OPTIONS))
        self.assertEqual({**OPTIONS, "topik": "x"}, options_of({**OPTIONS, "topik": "x"}))

    def test_memory(self) -> None:
        """
        What a schema remembers is there when Spark gives nothing, and gives way to what
        it does give.
        """
        plain = StructType([StructField("a", LongType()), StructField("b", LongType())])
        schema = remembering(plain, OPTIONS)
        self.assertEqual(plain.names, schema.names)
        schema = StructType.fromJson(schema.jsonValue())
        self.assertEqual(OPTIONS, recalled(schema, {}))
        self.assertEqual({**OPTIONS, "topic": "x"}, recalled(schema, {"topic": "x"}))
        self.assertEqual({}, recalled(plain, {}))
