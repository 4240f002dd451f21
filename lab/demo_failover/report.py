"""What a killed set leaves behind, compared: the members' logs, and what was acknowledged."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import frozen
from rich.table import Table

from lab.harness import compare_stores
from lab.stock.brokers import Sent
from rmqha.config.store_settings import StoreSettings
from rmqha.store.log.recovery import FolderReader
from rmqha.wire.log.record import decode

HASH = 32
"""Digits of a body's SHA-256 that the client tells."""


@frozen(kw_only=True)
class Kill:
    """A kill, the elected successor, and the seconds without an acknowledgement."""

    name: str
    successor: str
    pause: float


def holds(log: FolderReader, sent: Sent) -> bool:
    """Whether a log has a message where the broker said that it is."""
    for place, body in zip(sent.places, sent.bodies, strict=True):
        if not log.min_offset <= place < log.end:
            return False
        view = log.read(place, log.file_end(place) - place)
        try:
            record = decode(view, 0, place)
        except ValueError:
            return False
        if hashlib.sha256(record.body).hexdigest()[:HASH] != body:
            return False
    return True


class Report:
    """The comparison of members that have ended."""

    def __init__(
        self, stores: Mapping[str, StoreSettings], sent: Sequence[Sent], kills: Sequence[Kill]
    ) -> None:
        self.wrong: list[str] = []
        self.tables = [self._messages(stores, sent), self._logs(stores), self._kills(kills)]

    def _messages(self, stores: Mapping[str, StoreSettings], sent: Sequence[Sent]) -> Table:
        table = Table(title="What became of the client's messages", show_header=False)
        acked = [one for one in sent if one.status == "SEND_OK"]
        table.add_row("sent", str(len(sent)))
        table.add_row("acknowledged (SEND_OK)", str(len(acked)))
        others = Counter(one.status for one in sent if one.status != "SEND_OK")
        for status, count in others.most_common():
            table.add_row(f"not acknowledged: {status}", str(count))
        lost: set[int] = set()
        for name, settings in stores.items():
            log = compare_stores.open_log(settings)
            missing = [one.n for one in acked if not holds(log, one)]
            log.folder.close()
            lost.update(missing)
            found = len(acked) - len(missing)
            colour = "bold red" if missing else "green"
            table.add_row(f"acknowledged, in the log of {name}", f"[{colour}]{found}[/]")
            if missing:
                self.wrong.append(f"{name} lacks {len(missing)}, the first: {missing[0]}")
        table.add_row("lost", f"[{'bold red' if lost else 'green'}]{len(lost)}[/]")
        if not acked:
            self.wrong.append("nothing was acknowledged")
        return table

    def _logs(self, stores: Mapping[str, StoreSettings]) -> Table:
        table = Table(title="The members' logs")
        for column in ("member", "log ends at byte", "SHA-256"):
            table.add_column(column)
        ends = {name: compare_stores.open_log(settings).end for name, settings in stores.items()}
        if len(set(ends.values())) > 1:
            self.wrong.append(f"the logs end at {ends}")
        first, *others = stores.values()
        compared = [compare_stores.pairs(first, other, min(ends.values())) for other in others]
        self.wrong += [f"{pair.name} differs" for row in compared for pair in row if not pair.same]
        for name, files in zip(stores, [compared[0], *compared], strict=True):
            sums = "".join(
                pair.master if name == next(iter(stores)) else pair.slave for pair in files
            )
            table.add_row(name, str(ends[name]), hashlib.sha256(sums.encode()).hexdigest()[:HASH])
        table.caption = f"of the sums of {len(compared[0])} files, which are compared one by one"
        return table

    def _kills(self, kills: Sequence[Kill]) -> Table:
        table = Table(title="Kills (-9) of the master")
        for column in ("killed", "elected", "writes not acknowledged for"):
            table.add_column(column, justify="right" if column.startswith("writes") else "left")
        for kill in kills:
            table.add_row(kill.name, kill.successor, f"{kill.pause:.1f} s")
        return table
