"""C{rmqha restore}: builds a store from an archive, or from a store, as it was at some moment."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from attrs import asdict

from rmqha.archive.errors import shown_time
from rmqha.archive.restore import RestoredStore, settings_for, tables_of
from rmqha.archive.restore import restore as build
from rmqha.archive.source import RestoreSource
from rmqha.archive.target import ALLOWED, RestoreTarget
from rmqha.cli.common import JSON, STORE, PathOrUrl, Whole, bar, conf_option, note
from rmqha.config.load import load
from rmqha.ha.master_epoch import LARGEST
from rmqha.store.log import expiry
from rmqha.tier.joined_log import only_tier
from rmqha.tier.objects import shown_url

SHOWN = 10
"""Most topics that are named in a note."""


def _target(context: click.Context, option: click.Parameter, text: str | None) -> RestoreTarget:
    try:
        return RestoreTarget() if text is None else RestoreTarget.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("source", metavar="ARCHIVE|STORE|URL", type=PathOrUrl("store", STORE))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--until",
    "target",
    metavar="TIME|OFFSET",
    callback=_target,
    help=f"Restore whole records below this offset, or those before the first one that was stored "
    f"later: {ALLOWED}. Default: all there is.",
)
@click.option(
    "--tier",
    metavar="URL",
    help="Where `rmqha tier` put the files of the source: what it has no more is taken from there.",
)
@click.option(
    "--tables",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A store, or a copy of its config folder: topics, groups and offsets. Default: STORE.",
)
@conf_option("broker.conf of the new store, with DEST as storePathRootDir.")
@click.option(
    "--epoch",
    type=Whole(1, LARGEST),
    metavar="N",
    help="The new master epoch; by default one above the highest that the source knows.",
)
@JSON
def restore(
    source: Path | str,
    dest: Path,
    target: RestoreTarget,
    tier: str | None,
    tables: Path | None,
    conf: Path | None,
    epoch: int | None,
    as_json: bool,
) -> None:
    """Build a master's store in DEST from an archive, a store or a tier, up to a point in time.

    DEST must be empty or not exist.  ARCHIVE may be one that is being received, STORE that of a
    running node, which is read up to what the node has published.  The source is not changed.
    Consumer offsets above a queue's new end are moved back to it, and what waited for its time at
    that moment waits again, whatever the tables say.  The new store begins a new
    epoch, and its master epoch is raised: replicas of the old one are not fed by it before they
    have cut off what it lacks.
    """
    if isinstance(source, str):
        source = source.rstrip("/")
        if tier is not None:
            raise click.UsageError(f"{shown_url(source)} is a tier, and --tier names another")
        found = RestoreSource.look(only_tier(source), source)
        if epoch is None:
            note("a tier does not tell the master epoch: --epoch, above the highest that there was")
    else:
        found = RestoreSource.look(source, tier or "")
    dest = dest.absolute()
    settings = settings_for(found, dest)
    if conf is not None:
        settings = load(conf).store
        if settings.root.resolve() != dest.resolve():
            raise click.UsageError(f"{conf} is for the store {settings.root}, not {dest}")
    if tables is None and found.store is not None:
        tables = tables_of(found.store)
    done = build(found, target, settings, tables, bar, epoch)
    if text := expiry.of_store(settings, time.time()):
        note(text)
    if as_json:
        click.echo(json.dumps(_as_json(done), indent=2, ensure_ascii=False))
        return
    for line in _lines(done):
        click.echo(line)
    for fault in [] if done.tables is None else done.tables.faults:
        note(f"in {tables}: {fault}; taken is the generation before it")
    for found_fault in done.rebuilt.faults:
        note(str(found_fault))
    if done.damaged:
        note(f"{done.damaged} records are as damaged as they were on the master")
    unlisted = done.promotion.unlisted
    if unlisted:
        names = ", ".join(unlisted[:SHOWN])
        more = f" and {len(unlisted) - SHOWN} more" if len(unlisted) > SHOWN else ""
        note(f"there are messages of topics that are not in config/topics.json: {names}{more}")


def _lines(done: RestoredStore) -> list[str]:
    copied, rebuilt, tables = done.copied, done.rebuilt, done.tables
    last = shown_time(copied.last_stored)
    lines = [
        f"{done.root}: bytes {copied.start} to {copied.end}, {copied.records} records up to {last}",
        f"{rebuilt.units} units in {rebuilt.queues} queues, {rebuilt.entries} index entries",
        "no tables: neither topics, nor groups, nor consumer offsets"
        if tables is None
        else f"{len(tables.topics)} topics, {len(tables.groups)} groups and {tables.moved} "
        f"consumer offsets are those of {tables.source}",
    ]
    moved = done.promotion.moved
    lines += [str(one) for one in moved]
    if not moved:
        lines.append("no consumer offset or delay level's offset says more than the log")
    lines.append(
        f"a new epoch is begun at byte {done.promotion.end}, with master epoch "
        f"{done.promotion.epoch}"
    )
    return lines


def _as_json(done: RestoredStore) -> dict[str, Any]:
    return {
        "store": str(done.root),
        "minOffset": done.copied.start,
        "end": done.copied.end,
        "records": done.copied.records,
        "lastStored": done.copied.last_stored,
        "queues": done.rebuilt.queues,
        "units": done.rebuilt.units,
        "indexEntries": done.rebuilt.entries,
        "faults": [str(fault) for fault in done.rebuilt.faults],
        "tables": None if done.tables is None else done.tables.as_json(),
        "damagedRecords": done.damaged,
        "masterEpoch": done.promotion.epoch,
        "unlistedTopics": list(done.promotion.unlisted),
        "movedDelays": [asdict(one) for one in done.promotion.delays],
        "movedConsumers": [asdict(one) for one in done.promotion.consumers],
    }
