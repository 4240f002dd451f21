"""What matters of nodes, for a terminal: one in six lines, several in a row each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from rmqha.nodes.poll import Seen
from rmqha.nodes.summary import (
    attention,
    behind_of,
    duration,
    lines,
    name_of,
    replicas_in_sync,
    state_of,
)

COLUMNS = (
    *("node", "role", "state", "version", "up", "log ends at", "behind", "replicas"),
    "attention",
)


def shown(seen: Seen) -> Table:
    """The six lines of a node."""
    table = Table.grid(padding=(0, 2))
    for name, text in lines(seen):
        table.add_row(name, text)
    return table


def several(all_seen: Sequence[tuple[str, Seen]]) -> Table:
    """A row for each of several nodes.

    @param all_seen: Each node's address, and what it answered.
    """
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for address, seen in all_seen:
        status = seen.status
        if status is None:
            table.add_row(address, *[""] * (len(COLUMNS) - 2), seen.problem)
            continue
        wrong = [*([seen.problem] if seen.problem else []), *attention(status)]
        table.add_row(
            name_of(status) or address,
            str(status.get("role", "")),
            state_of(status),
            str(status.get("version", "")),
            duration(status.get("uptimeSeconds")),
            _text(status.get("maxOffset")),
            behind_of(status),
            replicas_in_sync(status),
            "; ".join(wrong),
        )
    return table


def _text(value: object) -> str:
    return "" if value is None else str(value)
