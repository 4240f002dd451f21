"""C{rmqha rebuild}: consume queues and index made anew from the log."""

from __future__ import annotations

from pathlib import Path

import click

from rmqha.cli.common import STORE, bar, conf_option, note, store_settings
from rmqha.errors import NotAStore
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.log import record_checksums
from rmqha.store.offline.rebuild_in_place import exclusively, remake


@click.command()
@click.argument("store", type=STORE)
@conf_option("broker.conf with the sizes of the files.")
def rebuild(store: Path, conf: Path | None) -> None:
    """Make the consume queues and the index of STORE again from its log.

    Refused while a node is running on it.  Run it as root or as the user that the node runs
    as: what is made belongs to that user.  Without --conf the new files get the sizes
    of the old ones, or RocketMQ's defaults if there are none.  The checksums of whole records,
    in rmqha/checksums, are made anew too: they vouch for what is in the log now.
    """
    raw = RawLog.open(store)
    if raw.root is None:
        raise NotAStore(str(store), "rebuild needs a store's root, not a part of a store")
    with exclusively(raw.root, raw.path):
        settings = store_settings(conf, raw.root, raw.path, raw.file_size)
        with bar("checking the log") as progress:
            log = OfflineLog.of(raw, progress=progress)
        with bar("rebuilding") as progress:
            made = remake(log, settings, progress)
        checksums = record_checksums.remake(raw.root, raw)
    for fault in made.faults:
        note(str(fault))
    if made.fault_count > len(made.faults):
        note(f"and {made.fault_count - len(made.faults)} more like this")
    click.echo(f"{raw.root}: checksums of {checksums} records, which vouch for them from now on")
    click.echo(
        f"{raw.root}: {made.records} records, {made.units} units in {made.queues} queues "
        f"(files of {settings.queue_file_size} bytes), {made.entries} index entries "
        + (
            f"({settings.index_slots} slots, {settings.index_entries} entries a file)"
            if settings.index_enable
            else "(messageIndexEnable=false: no index)"
        )
    )
