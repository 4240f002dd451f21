"""Columns of the tables that queries and tasks give, by what they hold."""

from __future__ import annotations

import pyarrow as pa


def texts(*names: str) -> list[pa.Field]:
    """Columns of text, which may be null."""
    return [pa.field(name, pa.string()) for name in names]


def numbers(*names: str) -> list[pa.Field]:
    """Columns of whole numbers, which may be null."""
    return [pa.field(name, pa.int64()) for name in names]
