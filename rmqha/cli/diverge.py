"""C{rmqha diverge}: where two stores part, or a store and a running master, and what each
would lose.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from attrs import asdict

from rmqha.cli.common import FAILED, JSON, STORE, Whole, bar, flag, note
from rmqha.cli.reach import CLIENT_PORT, Access, access_options, address_of, call_master
from rmqha.errors import Refused
from rmqha.ha.compare_with_master import MasterComparison
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end
from rmqha.net.remoting.ha_port import Address
from rmqha.store.files.lock import is_locked
from rmqha.store.offline.compare import Beyond, LogComparison, parting, valid_end
from rmqha.wire.store_layout import LOCK


@click.command()
@click.argument("store", type=STORE)
@click.option(
    "--against",
    required=True,
    metavar="STORE2|HOST:PORT",
    help="The other store, or a running master, by its client port or its HA port.",
)
@click.option(
    "--from",
    "earliest",
    type=Whole(0),
    metavar="OFFSET",
    help="With HOST:PORT: compare from this offset on, or from further back.",
)
@flag("--all", "With HOST:PORT: compare the whole log.", "everything")
@CLIENT_PORT
@access_options
@JSON
def diverge(
    store: Path,
    against: str,
    earliest: int | None,
    everything: bool,
    client_port: int | None,
    access: Access,
    as_json: bool,
) -> int:
    """Find where two logs differ first: STORE and STORE2, or a running master's.

    Nothing is changed.  All bytes that both logs have are compared, whether they are valid
    records or not.  A master is asked for the last file and at least 64 MiB, and further
    back if nothing there is equal; while connected this command looks like a slave to it.
    Exit code 0 if one log is a prefix of the other, 1 if they diverge, 3 if the master
    cannot be reached.
    """
    if everything:
        if earliest is not None:
            raise click.UsageError("--from and --all exclude each other")
        earliest = 0
    other = Path(against)
    if not other.exists():
        address, asked = address_of("--against", against, client_port)
        found = _with_master(store, address, earliest, asked, access)
    elif earliest is not None or client_port is not None:
        raise click.UsageError(
            "--from, --all and --client-port need a running master, --against HOST:PORT"
        )
    else:
        found = _with_store(store, other)
    if as_json:
        click.echo(json.dumps(_as_json(found), indent=2, ensure_ascii=False))
    else:
        _tell(found, store, against)
    return FAILED if found.difference is not None else 0


def _with_store(store: Path, other: Path) -> LogComparison:
    first, second = RawLog.open(store), RawLog.open(other)
    try:
        with bar("comparing") as progress:
            return parting(first, second, progress)
    except ValueError as error:
        raise Refused("diverge", str(error)) from error


def _with_master(
    store: Path, address: Address, earliest: int | None, client_port: int, access: Access
) -> LogComparison:
    """Compare with a running master.

    @raise Unreachable: If that cannot be done.
    """
    ours = _settled(store)

    async def run(port: MasterClientPort) -> LogComparison:
        looking = MasterComparison(ours=ours, port=port, folder=Path(folder), earliest=earliest)
        try:
            return await looking.parting(progress)
        finally:
            if port.ask is not None and port.bounds is None and looking.asked:
                note(f"asked the master without knowing where its log ends: {port.state}")

    with bar("comparing") as progress, TemporaryDirectory(prefix="rmqha-") as folder:
        return call_master(address, client_port, run, access)


def _settled(store: Path) -> OfflineLog:
    """The log of a store up to its last whole record, if a node runs on it: after that
    record there may be bytes that are still arriving.
    """
    raw = RawLog.open(store)
    log = OfflineLog.of(raw, data_end(raw, raw.min_offset))
    if raw.root is not None and is_locked(raw.root / LOCK):
        log.end = valid_end(log)
    return log


def _as_json(found: LogComparison) -> dict[str, object]:
    return {
        "diverged": found.difference is not None,
        "comparedFrom": found.start,
        "comparedTo": found.stop,
        "difference": None if found.difference is None else asdict(found.difference),
        "firstRecordNotShared": found.at,
        "versions": None if found.versions is None else asdict(found.versions),
        "store": asdict(found.first),
        "against": asdict(found.second),
    }


def _tell(found: LogComparison, store: Path, against: str) -> None:
    if found.difference is None:
        click.echo(f"equal from byte {found.start} to {found.stop}")
    else:
        click.echo(
            f"diverged: equal from byte {found.start} to {found.difference.offset}; "
            f"that byte is 0x{found.difference.value:02x} in {found.difference.path}, "
            f"0x{found.difference.other_value:02x} in {found.difference.other_path}"
        )
        click.echo(f"the first record that differs begins at byte {found.at}")
        if found.versions is not None:
            click.echo(f"from there on {found.versions.sentence(str(store), against)}")
    for name, own in ((str(store), found.first), (against, found.second)):
        click.echo(_line(name, own))


def _line(name: str, own: Beyond) -> str:
    topics = ", ".join(f"{topic}: {count}" for topic, count in own.topics.items())
    text = f"{name}: ends at byte {own.end}, {own.records} records "
    text += f"({own.bytes} bytes) of its own" + (f" ({topics})" if topics else "")
    if own.bad:
        text += f"; damaged places among them: {own.bad}"
    if own.tail:
        text += f"; {own.tail} bytes after its end are not a whole record"
    if own.unread is None:
        text += "; there may be more, which was not fetched"
    elif own.unread:
        text += f"; {own.unread} bytes after that were not fetched"
    return text
