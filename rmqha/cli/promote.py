"""C{rmqha promote}: turns a slave's store into a master's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from attrs import asdict, evolve

from rmqha.cli.common import (
    JSON,
    MERGED_TABLES,
    Whole,
    bar,
    conf_option,
    flag,
    note,
    store_settings,
)
from rmqha.cli.live_promotion import admin_at, promote_live
from rmqha.config.load import load
from rmqha.config.store_settings import StoreSettings
from rmqha.controller.reset import identity_in
from rmqha.errors import NotAStore, Refused
from rmqha.ha.master_epoch import LARGEST
from rmqha.ha.promotion import NotSound, Promotion, check_whole, plan, told
from rmqha.ha.promotion import promote as make_master
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.log import expiry
from rmqha.store.tables.merge_tables import MergedTables
from rmqha.wire.store_layout import INDEX

SHOWN = 10
"""Most topics that are named in a note."""


@click.command()
@click.argument("store", metavar="STORE|HOST:PORT")
@conf_option("broker.conf of this store.")
@flag("--dry-run", "Print what would be done, and change nothing.")
@flag("--repair", "Cut a damaged log at the damage; a quarantine file keeps the rest.")
@flag("--unverified", "Do not read the whole log first: check only what a start checks.")
@click.option(
    "--epoch",
    type=Whole(1, LARGEST),
    metavar="N",
    help="The new master epoch; by default one above the highest that the store knows.",
)
@MERGED_TABLES
@JSON
def promote(
    store: str | Path,
    conf: Path | None,
    dry_run: bool,
    repair: bool,
    unverified: bool,
    epoch: int | None,
    tables: Path | None,
    as_json: bool,
) -> None:
    """Turn a slave's store into a master's store, or a running slave into the master.

    The whole log is verified first.  Refused for a store while a node is running on it, for an
    unfinished first copy, and for a damaged log.  Run it as root or as the user that the node runs
    as: what is made belongs to that user.  A node that runs is named by any of its ports: that is
    `rmqha failover HOST:PORT`, with an epoch.  The old master must not run as a master any more:
    see docs/operations.rst, Changing roles.
    """
    if not Path(store).exists():
        if conf or repair or tables or as_json:
            raise click.UsageError(
                f"{store} does not exist: --conf, --repair, --tables and --json are for a store"
            )
        promote_live(admin_at(str(store)), epoch=epoch, unverified=unverified, dry_run=dry_run)
        return
    raw = RawLog.open(Path(store))
    if raw.root is None:
        raise NotAStore(str(store), "promote needs a store's root, not a part of a store")
    settings = _settings(raw, raw.root, conf)
    verified = None if unverified else _verify(settings, raw, repair=repair)
    promoting = plan if dry_run else make_master
    done = promoting(settings, repair=repair, epoch=epoch, tables=tables)
    if done.owed and tables is None:
        note(
            f"{done.owed} consumer offsets were committed here that the old master may not have; "
            "it may have others that are not here: if its tables can be had, give --tables"
        )
    if done.merged is not None and (
        done.merged.of_longer_log or any(one.after < one.before for one in done.moved)
    ):
        note(
            f"the tables of {tables} are newer than this log: what a group gave back for a retry "
            "behind its end is not retried; promoted without --tables, groups may consume it again"
        )
    for fault in [] if done.merged is None else done.merged.faults:
        note(f"in {tables}: {fault}; merged with the generation before it")
    if done.merged is not None and done.merged.not_deleted:
        note(
            "topics that were deleted there behind the end of this log come back, delete them "
            f"again with mqadmin deleteTopic: {_some(done.merged.not_deleted)}"
        )
    if (member := identity_in(raw.root)) is not None:
        note(
            f"this is the store of member {member.id} of set {member.name}: its controllers elect "
            "the master, whatever was promoted. To leave the set for a pair, stop all its members "
            f"and run `rmqha controller reset {raw.root}`"
        )
    if not dry_run and (text := expiry.of_store(settings, time.time())):
        note(text)
    if as_json:
        content = _as_json(done, dry_run) | {"verifiedRecords": verified}
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    if verified is None:
        note("the log was not verified as a whole: run `rmqha verify`")
    else:
        click.echo(f"verified the whole log: {verified} records")
    merged = () if done.merged is None else _merged(done.merged, "would be " * dry_run)
    for line in told(done, planned=dry_run, merged=merged):
        click.echo(line)
    if done.unlisted:
        names = _some(done.unlisted)
        note(f"there are messages of topics that are not in config/topics.json: {names}")
    if conf is not None and not load(conf).broker.role.is_master:
        note(
            f"{conf} configures a slave: set brokerRole=SYNC_MASTER and brokerId=0 before the start"
        )


def _verify(settings: StoreSettings, raw: RawLog, *, repair: bool) -> int:
    """Read the whole log.

    @return: How many records it has.
    @raise Refused: If it is damaged where the promotion would not cut it.
    """
    try:
        with bar(f"log of {settings.root.name}") as progress:
            return check_whole(settings, raw, progress, repair=repair)
    except NotSound as error:
        raise Refused(
            "promotion",
            f"{error}. `rmqha verify` shows all. Promote a replica whose log is sound, or copy the "
            "file from one; --unverified promotes this store as it is",
        ) from error


def _settings(raw: RawLog, root: Path, conf: Path | None) -> StoreSettings:
    settings = store_settings(conf, root, raw.path, raw.file_size)
    if conf is None and not (root / INDEX).exists():
        return evolve(settings, index_enable=False)
    return settings


def _merged(merged: MergedTables, would: str) -> Iterator[str]:
    yield (
        f"{merged.moved} consumer offsets and {merged.moved_delays} offsets of delay levels "
        f"{would}taken from {merged.source}, which are higher there"
    )
    for names, text in (
        (merged.topics, f"topics {would}taken from there"),
        (merged.groups, f"groups {would}taken from there"),
        (tuple(merged.deleted), f"topics {would}deleted, as they were there"),
    ):
        if names:
            yield f"{len(names)} {text}: {_some(names)}"


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _as_json(done: Promotion, dry_run: bool) -> dict[str, Any]:
    return {
        "store": str(done.root),
        "dryRun": dry_run,
        "minOffset": done.min_offset,
        "end": done.end,
        "endedBy": done.ended_by,
        "checkedFrom": done.checked_from,
        "records": done.records,
        "cutBytes": done.cut,
        "quarantine": done.quarantine or None,
        "queues": done.queues,
        "delayLevels": done.levels,
        "unlistedTopics": list(done.unlisted),
        "movedDelays": [asdict(one) for one in done.delays],
        "movedConsumers": [asdict(one) for one in done.consumers],
        "mergedTables": None if done.merged is None else done.merged.as_json(),
        "owedOffsets": done.owed,
        "wasMaster": done.was_master,
        "masterEpochBefore": done.epoch_before,
        "masterEpoch": done.epoch,
    }
