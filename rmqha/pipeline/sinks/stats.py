"""Statistics of a file as Delta's log has them, from what Parquet's footer knows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

_LONGEST = 128
"""Characters of a text that is worth a place in a log."""

_MS = timedelta(milliseconds=1)


def stats_of(metadata: Any) -> dict[str, Any]:
    """Least and greatest values, and how many are missing.

    @param metadata: A C{FileMetaData} of pyarrow.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    missing: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            name, found = column.path_in_schema, column.statistics
            if "." in name:
                continue
            if found is None or not found.has_null_count:
                unknown.add(name)
                continue
            missing[name] = missing.get(name, 0) + found.null_count
            if found.has_min_max and _useful(found.min) and _useful(found.max):
                least[name] = min(least.get(name, found.min), found.min)
                most[name] = max(most.get(name, found.max), found.max)
            elif found.num_values:  # which does not count those that are missing
                unknown.add(name)
    for name in unknown:
        least.pop(name, None)
        most.pop(name, None)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _shown(value, False) for name, value in least.items()},
        "maxValues": {name: _shown(value, True) for name, value in most.items()},
        "nullCount": missing,
    }


def _useful(value: Any) -> bool:
    return isinstance(value, (int, datetime)) or (isinstance(value, str) and len(value) <= _LONGEST)


def _shown(value: Any, up: bool) -> Any:
    """A value in JSON; times there have milliseconds, and years four digits: C{%Y} does not pad."""
    if not isinstance(value, datetime):
        return value
    if up and value.microsecond % 1000:
        value += _MS
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
