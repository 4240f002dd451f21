"""What is shown of a cluster: where it listens, and how it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.table import Table

from lab.cluster.members import NAMES, Cluster, Member

COLUMNS = ("node", "role", "state", "log end", "lag", "replicas", "topics", "writes")
STYLES = {NAMES: "yellow", "slave": "magenta"}
WELL = ("serving", "in-sync")


def addresses(cluster: Cluster) -> Table:
    """A table of the ports, stores and logs of all members."""
    table = Table("node", "clients", "slaves", "status", "store", "log", box=None, pad_edge=False)
    for member in cluster.members:
        ports = {what: f"127.0.0.1:{port}" for what, port in member.ports.items()}
        store = "" if member.name == NAMES else str(member.settings.store.root)
        table.add_row(
            member.name,
            ports["clients"],
            ports.get("slaves", ""),
            f"http://{ports['status']}/status",
            store,
            str(member.process.log_path),
        )
    return table


def row_of(member: Member, status: dict[str, Any] | None) -> tuple[str, ...]:
    """A member's row, as text."""
    if status is None:
        state = "no answer" if member.ended is None else f"ended with {member.ended}"
        return (member.name, member.role, state, *[""] * (len(COLUMNS) - 3))
    if member.name == NAMES:
        brokers = f"{status['state']}, {len(status['brokers'])} brokers"
        return (member.name, member.role, brokers, "", "", "", str(status["topics"]), "")
    upstream = status.get("upstream")
    state, lag = status["state"], ""
    if upstream is not None:
        state = f"{state}, {upstream['state']}"
        behind = upstream["lagBytes"]
        lag = "unknown" if behind is None else f"{behind} bytes"
    replicas = Counter(replica["state"] for replica in status["replicas"])
    return (
        member.name,
        member.role,
        state,
        _text(status["maxOffset"]),
        lag,
        ", ".join(f"{count} {state}" for state, count in replicas.items()),
        _text(status["remoting"].get("topics")),
        ", ".join(f"{count} {name}" for name, count in status.get("writes", {}).items() if count),
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def table_of(rows: Sequence[tuple[str, ...]]) -> Table:
    """The table with a row for each member."""
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(COLUMNS):
        table.add_column(name, no_wrap=number == 0)
    for row in rows:
        well = all(word in WELL or word.endswith(" brokers") for word in row[2].split(", "))
        style = STYLES.get(row[1], "cyan")
        table.add_row(
            f"[{style}]{row[0]}[/]", row[1], f"[{'green' if well else 'red'}]{row[2]}[/]", *row[3:]
        )
    return table


@define(eq=False)
class View:
    """Shows rows: on a terminal as one table that lives, elsewhere a line for each change."""

    console: Console
    _live: Live | None = field(default=None, init=False)
    _told: dict[str, tuple[str, ...]] = field(factory=dict, init=False)

    def __enter__(self) -> View:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, rows: Sequence[tuple[str, ...]]) -> None:
        if self._live is not None:
            self._live.update(table_of(rows), refresh=True)
            return
        for row in rows:
            if self._told.get(row[0]) != row:
                self._told[row[0]] = row
                pairs = zip(COLUMNS[1:], row[1:], strict=True)
                self.console.out(
                    f"{row[0]}: " + "; ".join(f"{name} {text}" for name, text in pairs if text)
                )
