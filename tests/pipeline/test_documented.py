"""The chapter on reading says what options and columns there are, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import fields
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.columnar.decoder import COLUMNS, KAFKA, MORE_COLUMNS

try:
    from rmqha.pipeline.log.options import KINDS, ReadOptions
    from rmqha.pipeline.log.tables import FILES, RANGES
    from rmqha.pipeline.spark.session import SETTINGS
    from rmqha.pipeline.spark.types import spark_type
    from rmqha.wire.columnar import arrow_columns
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "pipeline.rst"

#: What Spark makes of a list given to C{load}; nobody writes it.
UNWRITTEN = "paths"


def tables() -> Iterator[list[list[str]]]:
    """The cells of the chapter's tables, without their heads."""
    for text in GUIDE.read_text(encoding="utf-8").split(".. list-table::")[1:]:
        rows = re.findall(r"^   \* - (.*(?:\n     .*)*)", text.split("\n\n", 2)[1], re.MULTILINE)
        yield [re.split(r"\n     - ?", row) for row in rows][1:]


def table(first: str) -> list[list[str]]:
    """The table that begins with a literal."""
    return next(rows for rows in tables() if names(rows[0][0])[0] == first)


def names(cell: str) -> list[str]:
    """The literals of a cell."""
    return re.findall(r"``([^`]+)``", cell)


def types(rows: list[list[str]]) -> dict[str, str]:
    """A table of columns: names and types."""
    return {names(name)[0]: names(kind)[0] for name, kind, _ in rows}


def told(schema: Any) -> dict[str, str]:
    """Names and types of an Arrow schema, as Spark calls them."""
    return {field.name: spark_type(field.type).simpleString() for field in schema}


class DocumentedTests(SynchronousTestCase):
    """Tables of the guide against the code."""

    def test_options(self) -> None:
        """Every option is there, with its default."""
        rows = table("path")
        found = {name: names(row[1]) for row in rows for name in names(row[0])}
        self.assertEqual(KINDS.keys() - {UNWRITTEN}, found.keys())
        defaults = {
            re.sub(r"_(.)", lambda match: match[1].upper(), field.name): field.default
            for field in fields(ReadOptions)
        }
        for name, shown in found.items():
            if shown:
                self.assertEqual(defaults[name], KINDS[name].parse(shown[0]), name)
            else:
                self.assertFalse(isinstance(defaults.get(name), (str, int)), name)

    def test_columns(self) -> None:
        """Every column is there, with its type, in the order rows have."""
        wanted = {
            name: spark_type(arrow_columns.COLUMNS[name].type).simpleString()
            for name in (*COLUMNS, *MORE_COLUMNS)
        }
        self.assertEqual(list(wanted.items()), list(types(table("broker_name")).items()))
        kafka = {
            name: spark_type(arrow_columns.COLUMNS[column].type).simpleString()
            for name, column in KAFKA.items()
        }
        self.assertEqual(list(kafka.items()), list(types(table("key")).items()))

    def test_other_tables(self) -> None:
        """So are those of ranges and files."""
        self.assertEqual(told(RANGES) | told(FILES), types(table("store")))

    def test_settings(self) -> None:
        """So are a session's settings."""
        rows = table("spark.python.unix.domain.socket.enabled")
        self.assertEqual(SETTINGS, {names(row[0])[0]: names(row[1])[0] for row in rows})
