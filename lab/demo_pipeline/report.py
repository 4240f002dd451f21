"""What came of it: the table beside the log, and beside what the client was told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field
from deltalake import DeltaTable
from rich.table import Table

from lab.demo.report import records_of
from lab.demo.traffic import Sent
from lab.demo_pipeline.picture import draw
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.wire.names import KEYS

NAMED = 3
"""Most messages that are named when some are missing."""

COLUMNS = ["topic", "physical_offset", "keys", "store_timestamp"]


@define(eq=False)
class Facts:
    """What the story knows at its end; all times are in seconds since 1970.

    @ivar commits: When a batch was in the table, and how far it went in the log.
    @ivar back: When the killed master served again.
    """

    table: Path
    picture: Path
    sent: list[Sent] = field(factory=list)
    commits: list[tuple[float, int]] = field(factory=list)
    killed: float = 0.0
    back: float = 0.0


class Report:
    """The comparison of the table with the log."""

    def __init__(self, facts: Facts, log: OfflineLog) -> None:
        """@param log: The slave's; it has ended."""
        self.wrong: list[str] = []
        self._facts = facts
        delta = DeltaTable(str(facts.table))
        self._version = delta.version()
        self._rows: pa.Table = delta.to_pyarrow_table(columns=COLUMNS)
        self._records = records_of(log)
        self._end = log.end
        self.tables = [self._checks(), self._topics()]
        draw(facts, self._rows, facts.picture)

    def _expect(self, true: bool, well: str, wrong: str) -> str:
        if true:
            return f"[green]{well}[/]"
        self.wrong.append(wrong)
        return f"[bold red]{wrong}[/]"

    def _checks(self) -> Table:
        rows = self._rows.num_rows
        offsets = self._rows["physical_offset"].to_pylist()
        held = {record.offset for record in self._records}
        # By the keys that the demo chose: the client's own ids are not all different.
        told = {one.key: one for one in self._facts.sent if one.ok}
        other = set(offsets) ^ held
        missing = told.keys() - set(self._rows["keys"].to_pylist())
        table = Table(title="The table beside the log", show_header=False)
        table.add_row("the slave's log", f"{len(held)} records, {self._end} bytes")
        table.add_row("the table", f"{rows} rows in {self._version + 1} commits")
        table.add_row(
            "rows = records of the log",
            self._expect(
                rows == len(held) and not other,
                f"all {rows}",
                f"{rows} rows, {len(held)} records, {len(other)} of one only",
            ),
        )
        table.add_row(
            "physical offsets",
            self._expect(
                len(set(offsets)) == rows, "each once", f"{rows - len(set(offsets))} more than once"
            ),
        )
        table.add_row(
            "acknowledged messages, by KEYS",
            self._expect(
                bool(told) and not missing,
                f"all {len(told)} in the table",
                f"{len(missing)} of {len(told)} are not in the table: "
                + "; ".join(self._where(told[key]) for key in sorted(missing)[:NAMED]),
            ),
        )
        return table

    def _where(self, sent: Sent) -> str:
        """Where a message is that was acknowledged and is not in the table."""
        name = f"{sent.key}, {sent.id or 'no id'},"
        for record in self._records:
            if record.properties.get(KEYS) == sent.key:
                offsets = self._rows["physical_offset"]
                row = self._rows.filter(pc.equal(offsets, record.offset)).to_pylist()
                return (
                    f"{name} is in the log at byte {record.offset}, its row is {row or 'missing'}"
                )
        return f"{name} is not in the log"

    def _topics(self) -> Table:
        rows = Counter(self._rows["topic"].to_pylist())
        records = Counter(record.topic for record in self._records)
        sent = Counter(one.key.partition("-")[0] for one in self._facts.sent if one.ok)
        table = Table(title="By topic")
        for column in ("topic", "rows", "records in the log", "acknowledged"):
            table.add_column(column, justify="left" if column == "topic" else "right")
        for topic in sorted(rows | records):
            found = self._expect(
                rows[topic] == records[topic],
                str(rows[topic]),
                f"{topic}: {rows[topic]} rows, {records[topic]} records",
            )
            acknowledged = sent[topic.lower()]
            table.add_row(topic, found, str(records[topic]), str(acknowledged or ""))
        return table
