"""C{rmqha verify}: every place where a store is not what it should be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from attrs import asdict, define, evolve, field

from rmqha.cli.common import FAILED, JSON, STORE, Whole, bar, conf_option, flag, note
from rmqha.config.load import load
from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.compare import common_range, first_difference, record_start
from rmqha.store.offline.detect_sizes import offline_settings
from rmqha.store.offline.verify import LogCheck, derived_findings, running_notes


@define(kw_only=True)
class VerifyReport:
    """Tells findings as they come, and what was looked at in the end.

    @ivar as_json: Whether to tell all of it at the end, as one JSON object.
    @ivar limit: Most findings told; all are counted.
    """

    as_json: bool
    limit: int
    count: int = 0
    told: list[Finding] = field(factory=list)
    notes: list[str] = field(factory=list)
    logs: list[dict[str, Any]] = field(factory=list)

    def faults(self, findings: Iterator[Finding]) -> int:
        """Take findings.

        @return: How many there were.
        """
        before = self.count
        for finding in findings:
            self.count += 1
            if self.limit and self.count > self.limit:
                continue
            if self.as_json:
                self.told.append(finding)
            else:
                click.echo(f"fault: {finding}")
        return self.count - before

    def note(self, text: str) -> None:
        """Take a sentence that is no fault."""
        self.notes.append(text)
        if not self.as_json:
            note(text)

    def log(self, check: LogCheck) -> None:
        """Take what one log is."""
        raw = check.raw
        seen = {
            "path": str(raw.path),
            "minOffset": raw.min_offset,
            "end": check.end,
            "endedBy": check.reason,
            "records": check.records,
            "files": len(raw.pieces),
            "fileSize": raw.file_size,
        }
        self.logs.append(seen)
        if not self.as_json:
            click.echo(
                f"{raw.path}: bytes {raw.min_offset} to {check.end} ({check.reason}), "
                f"{check.records} records in {len(raw.pieces)} files of {raw.file_size} bytes"
            )

    def end(self) -> int:
        """Say the verdict.

        @return: The exit code.
        """
        if self.as_json:
            content = {
                "ok": not self.count,
                "faultCount": self.count,
                "faults": [asdict(finding) for finding in self.told],
                "notes": self.notes,
                "logs": self.logs,
            }
            click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        else:
            untold = self.count - self.limit if self.limit else 0
            if untold > 0:
                click.echo(f"and {untold} more")
            click.echo(f"{self.count} faults" if self.count else "clean")
        return FAILED if self.count else 0


@click.command()
@click.argument("store", type=STORE)
@click.option(
    "--against", type=STORE, metavar="STORE2", help="Another store, to be compared byte for byte."
)
@flag("--deep", "Also compare consume queues and index with the log.")
@conf_option("broker.conf with the sizes, for --deep.")
@JSON
@click.option(
    "--limit",
    type=Whole(0),
    metavar="COUNT",
    default=1000,
    show_default=True,
    help="Most faults that are printed; 0: all.",
)
def verify(
    store: Path, against: Path | None, deep: bool, conf: Path | None, as_json: bool, limit: int
) -> int:
    """Check the log of STORE: records, CRCs, offsets, files.

    STORE is a store's root, its commitlog folder, or a quarantine file.  It is only
    read, so a node may be running on it.  Exit code 1 if there is a fault.
    """
    if conf is not None and not deep:
        raise click.UsageError("--conf needs --deep")
    report = VerifyReport(as_json=as_json, limit=limit)
    check = _check(store, report)
    if deep:
        _deep(check, conf, report)
    if against is not None:
        _compare(check, _check(against, report), report)
    return report.end()


def _check(path: Path, report: VerifyReport) -> LogCheck:
    raw = RawLog.open(path)
    for text in running_notes(raw.root):
        report.note(text)
    with bar(f"log of {path.name}") as progress:
        check = LogCheck(raw, progress)
        report.faults(check.findings())
    for text in check.notes:
        report.note(text)
    report.log(check)
    return check


def _deep(check: LogCheck, conf: Path | None, report: VerifyReport) -> None:
    raw = check.raw
    if raw.root is None:
        raise click.UsageError(
            f"{raw.path} has no consume queues and no index: --deep needs a store's root"
        )
    if check.damaged:
        report.note("consume queues and index were not compared: the log is damaged")
        return
    settings = _sizes(raw, raw.root, conf, report)
    with bar("queues and index") as progress:
        count = report.faults(derived_findings(check.log(), settings, progress, report.note))
    if count:
        report.note("`rmqha rebuild` makes consume queues and index again")


def _sizes(raw: RawLog, root: Path, conf: Path | None, report: VerifyReport) -> StoreSettings:
    """The sizes of derived files, which a copy of a store shares with it: nothing is written
    here.
    """
    if conf is None:
        return offline_settings(root, raw.path, raw.file_size)
    settings = load(conf).store
    if settings.root.resolve() != root.resolve():
        report.note(f"{conf} is for the store {settings.root}; its sizes are taken for this one")
    return evolve(settings, root=root, commitlog=raw.path)


def _compare(first: LogCheck, second: LogCheck, report: VerifyReport) -> None:
    ours, theirs = (OfflineLog.of(check.raw, check.end) for check in (first, second))
    start, stop = common_range(ours, theirs)
    if start > stop or (start == stop and ours.end > 0 and theirs.end > 0):
        reason = f"no byte in common with {theirs.raw.path}, which holds {theirs.min_offset} to "
        report.faults(iter([Finding(str(ours.raw.path), ours.end, f"{reason}{theirs.end}")]))
        return
    with bar("comparing") as progress:
        found = first_difference(ours, theirs, progress)
    if found is not None:
        at = record_start(ours, found.offset)
        reason = (
            f"0x{found.value:02x}, but 0x{found.other_value:02x} in {found.other_path}; "
            f"the record begins at byte {at}"
        )
        report.faults(iter([Finding(found.path, found.offset, reason)]))
        return
    report.note(f"equal from byte {start} to {stop}")
    if ours.end != theirs.end:
        ahead = ours if ours.end > theirs.end else theirs
        report.note(f"{ahead.raw.path} is {abs(ours.end - theirs.end)} bytes ahead")
