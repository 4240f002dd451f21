"""What the demo leaves behind, compared: both stores, what was acknowledged, what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from attrs import field, frozen
from rich.table import Table

from lab.demo.traffic import TOPIC, Sent
from lab.harness import compare_stores, golden
from lab.harness.nodes import Node, rmqha
from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.wire.log.record import Record, decode
from rmqha.wire.names import KEYS


@frozen(kw_only=True)
class Mode:
    """What was sent while the master was of one kind, and what became of it.

    @ivar requests: Send requests that the master got: a client may try a message again.
    @ivar read: Keys of what the consumers got.
    """

    role: str
    sent: list[Sent] = field(factory=list)
    requests: Counter[str] = field(factory=Counter)
    answered: Counter[str] = field(factory=Counter)
    read: set[str] = field(factory=set)

    @property
    def acknowledged(self) -> set[str]:
        return {sent.key for sent in self.sent if sent.ok}

    def count(self, status: dict[str, Any]) -> None:
        """Take down what the master counted since its start."""
        for name, count in status["remoting"]["requests"].items():
            if name.startswith("SEND_"):
                self.requests[name] += count
        self.answered.update(status["writes"])

    @property
    def counted(self) -> str:
        """The number of requests, and of writes by status, in words."""
        answered = [
            f"{n} writes answered: {status}" for status, n in sorted(self.answered.items()) if n
        ]
        requests = f"{self.requests.total()} requests"
        return "\n".join([requests, *(answered or ["no write was answered"])])


def settings_of(node: Node) -> StoreSettings:
    """What a comparison needs to know of a store."""
    return compare_stores.settings_of(
        node.root,
        file_size=golden.LOG_FILE_SIZE,
        queue_file_size=golden.QUEUE_FILE_SIZE,
        index_slots=golden.INDEX_SLOTS,
        index_entries=golden.INDEX_ENTRIES,
    )


def records_of(log: OfflineLog) -> list[Record]:
    """All records of a stopped store's log, read without the pipeline."""
    return [
        decode(view, offset - block.base, offset)
        for view, block in scan(log, log.raw.min_offset, log.end)
        for offset in block.start.tolist()
    ]


def keys_in(settings: StoreSettings) -> set[str]:
    """Keys of the demo's messages in a stopped store's log."""
    records = records_of(OfflineLog(settings.root, settings.file_size))
    return {one.properties.get(KEYS, "").strip() for one in records if one.topic == TOPIC}


def verify(node: Node) -> str:
    """What C{rmqha verify --deep} finds, run as by a user; empty if nothing."""
    done = rmqha("verify", "--deep", "--conf", node.conf, node.root, timeout=60)
    return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout}"


class Report:
    """The comparison of two nodes that have ended."""

    def __init__(self, master: Node, slave: Node, modes: Iterable[Mode]) -> None:
        self.wrong: list[str] = []
        self._master, self._slave = settings_of(master), settings_of(slave)
        self.wrong += compare_stores.damage(self._master, self._slave, exact=False)
        self.tables = [self._files(), self._modes(modes), self._checks(master, slave)]

    def _files(self) -> Table:
        table = Table(title="Log files, SHA-256 of each side")
        for column in ("file", "bytes", "master", "slave", ""):
            table.add_column(column, justify="right" if column == "bytes" else "left")
        end = compare_stores.open_log(self._master).end
        for pair in compare_stores.pairs(self._master, self._slave, end):
            verdict = "[green]equal[/]" if pair.same else "[bold red]DIFFERENT[/]"
            table.add_row(pair.name, str(pair.size), pair.master[:16], pair.slave[:16], verdict)
            if not pair.same:
                self.wrong.append(f"{pair.name} differs")
        return table

    def _modes(self, modes: Iterable[Mode]) -> Table:
        held = keys_in(self._slave)
        table = Table(title="What became of the C++ client's messages")
        table.add_column("")
        rows: dict[str, list[str]] = {}
        for mode in modes:
            table.add_column(mode.role)
            acknowledged = mode.acknowledged
            refused = len(mode.sent) - len(acknowledged)
            for name, value in (
                ("sent", f"{len(acknowledged)} acknowledged, {refused} not"),
                ("requests that the master counted", mode.counted),
                ("acknowledged, on the slave", self._all(mode, acknowledged, held, "on the slave")),
                ("acknowledged, consumed", self._all(mode, acknowledged, mode.read, "consumed")),
            ):
                rows.setdefault(name, []).append(value)
        for name, row in rows.items():
            table.add_row(name, *row)
        return table

    def _all(self, mode: Mode, wanted: set[str], found: Collection[str], where: str) -> str:
        missing = sorted(wanted - set(found))
        if not missing:
            return f"[green]all {len(wanted)}[/]"
        self.wrong.append(f"{mode.role}: {len(missing)} not {where}, the first: {missing[0]}")
        return f"[bold red]{len(wanted) - len(missing)} of {len(wanted)}[/]"

    def _checks(self, *nodes: Node) -> Table:
        table = Table(title="Both stores", show_header=False)
        for node in nodes:
            log = compare_stores.open_log(settings_of(node))
            table.add_row(f"{node.name}: log", f"bytes {log.min_offset} to {log.end}")
            found = verify(node)
            table.add_row(f"{node.name}: rmqha verify --deep", found or "[green]clean[/]")
            if found:
                self.wrong.append(f"{node.name}: {found}")
        return table
