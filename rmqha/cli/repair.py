"""C{rmqha repair}: damaged ranges of a log, brought back from a replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from attrs import asdict
from twisted.internet.defer import Deferred

from rmqha import event_file
from rmqha.cli.common import FAILED, JSON, STORE, bar, conf_option, flag, note, store_settings
from rmqha.cli.reach import CLIENT_PORT, Access, access_options, address_of, call_master
from rmqha.errors import NotAStore, Refused
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.rebuild_in_place import exclusively
from rmqha.store.repair.damaged_ranges import DamagedRange
from rmqha.store.repair.from_replica import RepairReport, StoreReplica
from rmqha.store.repair.stopped_store import StoppedStore, held_still


class ByteRange(click.ParamType[tuple[int, int]]):
    """C{A:B}, the bytes from A on and before B."""

    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """@raise click.UsageError: If it is none."""
        start, colon, stop = str(value).partition(":")
        if not (colon and start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
            self.fail(f"{value!r} is not two byte offsets A:B, A below B", param, ctx)
        return int(start), int(stop)


@click.command()
@click.argument("store", type=STORE)
@click.option(
    "--from",
    "source",
    required=True,
    metavar="HOST:PORT|STORE2",
    help="Who has the bytes: a running node, by its client port or its HA port, or the store of a "
    "stopped one.",
)
@click.option(
    "--range",
    "wanted",
    type=ByteRange(),
    help="Bring the bytes [A, B), widened to whole records; by default all damaged ranges.",
)
@flag("--dry-run", "Fetch and check, but leave the log as it is.")
@conf_option("broker.conf of this store.")
@CLIENT_PORT
@access_options
@JSON
def repair(
    store: Path,
    source: str,
    wanted: tuple[int, int] | None,
    dry_run: bool,
    conf: Path | None,
    client_port: int | None,
    access: Access,
    as_json: bool,
) -> int:
    """Bring damaged or missing ranges of a log back from a replica that has them.

    Refused while a node is running on STORE.  Around each range at least 64 KiB of both logs
    have to be equal, and the replica's records have to check, before a byte is written; what
    is replaced goes to a quarantine file.  Run it as root or as the user that the node runs
    as: what is made belongs to that user.  After an interruption run it again.  Exit code 1
    if something could not be had or differs still, 3 if the replica cannot be reached.
    """
    other = Path(source)
    running = None if other.exists() else address_of("--from", source, client_port)
    if running is None and client_port is not None:
        raise click.UsageError("--client-port needs a running node, --from HOST:PORT")
    raw = RawLog.open(store)
    if raw.root is None:
        raise NotAStore(str(store), "repair needs a store's root, not a part of a store")
    with exclusively(raw.root, raw.path):
        stopped = StoppedStore(settings=store_settings(conf, raw.root, raw.path, raw.file_size))
        try:
            stopped.finish_begun(dry_run=dry_run)
            ranges = _ranges(stopped, wanted)
            if not ranges:
                report = RepairReport(peer=source, ranges=(), records=0, not_had=())
            elif running is not None:
                report = _from_master(stopped, ranges, *running, access)
            else:
                report = _from_store(stopped, ranges, other)
            if not dry_run:
                report = stopped.write(report)
                stopped.full_size()
                for start, stop in report.ranges:
                    event_file.note(
                        raw.root, "repair", f"bytes {start} to {stop} replaced from {report.peer}"
                    )
        finally:
            stopped.forget()
    _tell(raw.root, stopped, ranges, report, dry_run=dry_run, as_json=as_json)
    left = not dry_run and stopped.findings()
    return FAILED if report.not_had or report.differs or left else 0


def _ranges(stopped: StoppedStore, wanted: tuple[int, int] | None) -> list[DamagedRange]:
    if wanted is not None:
        return stopped.range_of(*wanted)
    with bar("checking the log") as progress:
        return stopped.damaged_ranges(progress)


def _from_store(stopped: StoppedStore, ranges: list[DamagedRange], other: Path) -> RepairReport:
    theirs = RawLog.open(other)
    if theirs.pieces and not other.is_file() and theirs.file_size != stopped.raw.file_size:
        raise Refused(
            "repair",
            f"log files of {other} have {theirs.file_size} bytes, ours {stopped.raw.file_size}",
        )
    if theirs.root is not None and theirs.root.samefile(stopped.settings.root):
        raise Refused("repair", f"{other} is the store itself")
    with held_still(theirs.root) as still, bar("fetching") as progress:
        if theirs.root is not None and not still:
            note(f"{other} is in use or cannot be locked: it is read as it is now")
        # A folder answers at once: nothing is waited for.
        return _now(Deferred.fromCoroutine(stopped.fetch(ranges, StoreReplica(theirs), progress)))


def _now(done: Deferred[RepairReport]) -> RepairReport:
    results: list[Any] = []
    done.addBoth(results.append)
    (result,) = results
    if isinstance(result, RepairReport):
        return result
    result.raiseException()
    raise AssertionError("it raises")


def _from_master(
    stopped: StoppedStore,
    ranges: list[DamagedRange],
    address: tuple[str, int],
    client_port: int,
    access: Access,
) -> RepairReport:
    async def run(port: MasterClientPort) -> RepairReport:
        master = MasterReplica(port=port, file_size=stopped.raw.file_size)
        report = await stopped.fetch(ranges, master, progress)
        if port.ask is not None and port.bounds is None:
            note(f"asked without knowing where the log ends there: {port.state}")
        return report

    with bar("fetching") as progress:
        return call_master(address, client_port, run, access)


def _tell(
    root: Path,
    stopped: StoppedStore,
    ranges: list[DamagedRange],
    report: RepairReport,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        said = {
            "store": str(root),
            "dryRun": dry_run,
            "from": report.peer,
            "damaged": [asdict(each) for each in ranges],
            "replaced": [list(each) for each in report.ranges],
            "records": report.records,
            "notHad": [asdict(each) for each in report.not_had],
            "differs": [asdict(each) for each in report.differs],
            "quarantine": list(report.kept),
            "rebuilt": report.rebuilt,
            "left": [] if dry_run else [asdict(each) for each in stopped.findings()],
            "notes": stopped.notes,
        }
        click.echo(json.dumps(said, indent=2, ensure_ascii=False))
        return
    for text in stopped.notes:
        note(text)
    for finding in () if dry_run else stopped.findings():
        click.echo(f"left: {finding}")
    if not ranges:
        click.echo(f"{root}: no damaged or missing range")
        return
    for each in ranges:
        click.echo(f"damaged: bytes {each.start} to {each.stop}: {each.reason}")
    done = "would be replaced" if dry_run else "replaced"
    for start, stop in report.ranges:
        click.echo(f"{done}: bytes {start} to {stop}, from {report.peer}")
    for path in report.kept:
        click.echo(f"kept: what stood there, in {path}")
    for missing in report.not_had:
        click.echo(f"not had: bytes {missing.start} to {missing.stop}: {missing.reason}")
    for other in report.differs:
        click.echo(f"differs: bytes {other.start} to {other.stop}, left as is: {other.reason}")
    click.echo(f"{report.records} records {done}")
