"""
Tables in Spark's catalog: C{CREATE TABLE ... USING rmqha}.

When a table is made, its options come among all its properties; when it is read, Spark 4.3
hands on none of them, only the schema that was inferred when it was made.  So they are
remembered there, as metadata of the first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

_PROVIDER = "provider"
"""A property that every table has, and no read of a path."""

_OPTION = "option."
"""How the catalog calls an option, beside its plain name."""

_MEMORY = "rmqha.options"


def is_table(given: Mapping[str, str]) -> bool:
    """
    Whether these are the properties of a table that is being made.
    """
    return _PROVIDER in given


def options_of(given: Mapping[str, str]) -> dict[str, str]:
    """
    The options among what Spark gives: all, or of a table's properties those that are some.
    """
    if not is_table(given):
        return dict(given)
    found = {name: value for name, value in given.items() if name.lower() == "path"}
    for name, value in given.items():
        if name.lower().startswith(_OPTION):
            found[name[len(_OPTION) :]] = value
    return found


def remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """
    A table's schema with its options.
    """
    first, *others = schema.fields
    memory = {**first.metadata, _MEMORY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, memory), *others])


def recalled(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """
    The options of a read: what is given now wins over what was remembered.
    """
    found: dict[str, str] = {}
    for field in schema.fields:
        found.update(json.loads(field.metadata.get(_MEMORY, "{}")))
    found.update(options_of(given))
    return found
