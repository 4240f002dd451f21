"""All of a node's status as tables, and the progress of a slave's first copy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import define
from rich.filesize import decimal
from rich.progress_bar import ProgressBar
from rich.table import Table


def table_of(status: Mapping[str, Any]) -> list[Table]:
    """A status as tables: the node, then its replicas, brokers, readers."""
    node = Table("", "", box=None, show_header=False, pad_edge=False)
    more: list[Table] = []
    for name, value in status.items():
        if name == "periodicJobs":
            # A dozen of them go well nearly always; --json has them all.
            value = [row for row in value if row.get("failures")]
            if not value:
                continue
        _add(node, more, name, value)
    return [node, *more]


def _add(node: Table, more: list[Table], name: str, value: Any) -> None:
    """Show one field: in a row of the node's table, in several, or in a table of its own."""
    if _is_rows(value):
        more.append(_rows(name, value))
    elif isinstance(value, dict) and value:
        inner = {key: item for key, item in value.items() if isinstance(item, dict) and item}
        flat = all(not isinstance(item, dict) for row in inner.values() for item in row.values())
        if flat and len(inner) == len(value):
            more.append(_rows("", [{name: key, **row} for key, row in inner.items()]))
            return
        plain = [f"{key} {_text(item)}" for key, item in value.items() if key not in inner]
        if plain:
            node.add_row(name, ", ".join(plain))
        for key, item in inner.items():
            _add(node, more, f"{name} {key}", item)
    else:
        node.add_row(name, _text(value))


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _rows(name: str, rows: list[dict[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=name or None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_text(row.get(key)) for key in columns))
    return table


def _text(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@define
class Copying:
    """Shows the progress of a slave's first copy: how many bytes, and how fast.

    The replication protocol does not tell the total, so the bar only pulses.
    """

    _before: tuple[float, int] | None = None

    def bar(self, status: Mapping[str, Any], now: float) -> Table | None:
        """One line for a terminal; C{None} if nothing is being copied.

        @param now: Seconds of any clock.
        """
        upstream = status.get("upstream") or {}
        if not upstream.get("bootstrapping"):
            return None
        received = int(upstream.get("received") or 0)
        since, had = self._before or (now, received)
        self._before = now, received
        rate = f"{decimal(int((received - had) / (now - since)))}/s" if now > since else ""
        line = Table.grid(padding=(0, 1))
        line.add_row("copying", ProgressBar(None, width=30, pulse=True), decimal(received), rate)
        return line
