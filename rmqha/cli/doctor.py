"""C{rmqha doctor}: where the messages are that a client was told are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from attrs import asdict

from rmqha.archive.manifest import ArchiveManifest
from rmqha.cli.common import FAILED, JSON, STORE, bar, complain, note
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.client_ledger import ClientLedger
from rmqha.store.offline.verify import running_notes
from rmqha.store.offline.whereabouts import (
    ARCHIVED,
    KEPT,
    LOG,
    Searched,
    Sighting,
    StoreLook,
    Whereabouts,
)


@click.command()
@click.option(
    "--ledger",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What a client was told of each message, one JSON object a line.",
)
@click.argument("stores", nargs=-1, required=True, type=STORE, metavar="STORE...")
@JSON
def doctor(path: Path, stores: tuple[Path, ...], as_json: bool) -> int:
    """Say where each message of a client's ledger is, in each STORE.

    STORE is a store's root, its commitlog folder, or an archive: each has to have all messages
    at their bytes.  A quarantine file may be named besides, to be looked in.  For a message that
    a store lacks, all logs, their quarantine, what a rebootstrap put aside and what a repair
    fetched are searched.  Nothing is changed, so nodes may be running.  Exit code 1 if a store
    lacks a message, or something could not be read.
    """
    ledger = ClientLedger.read(path)
    if ledger.ignored:
        note(f"keys of {path} that are not compared: {', '.join(ledger.ignored)}")
    found = _opened(ledger, stores)
    found.ask()
    for part in (*(store.log for store in found.stores), *found.parts):
        for text in running_notes(part.raw.root):
            note(f"{part.raw.root}: {text}")
    with bar("searching") as progress:
        found.search(progress)
    findings = found.findings()
    for finding in findings:
        complain(str(finding))
    if as_json:
        click.echo(json.dumps(_as_json(found, not findings), indent=2, ensure_ascii=False))
    else:
        for line in _lines(found):
            click.echo(line)
    return FAILED if found.missing or findings else 0


def _opened(ledger: ClientLedger, paths: tuple[Path, ...]) -> Whereabouts:
    stores, parts = list[StoreLook](), list[Searched]()
    for path in paths:
        raw = RawLog.open(path)
        if path.is_file():
            parts.append(Searched(place=KEPT, raw=raw))
            continue
        archive = raw.root is not None and ArchiveManifest.read(raw.root) is not None
        log = Searched(place=ARCHIVED if archive else LOG, raw=raw)
        stores.append(StoreLook(path=path, log=log))
    if not stores:
        raise click.UsageError("name a store too: a quarantine file has a part of a log alone")
    return Whereabouts(messages=ledger.messages, stores=stores, parts=parts)


def _lines(found: Whereabouts) -> Iterator[str]:
    count = len(found.messages)
    for number, sightings in found.missing.items():
        yield f"missing: {found.messages[number]}"
        for store in found.stores:
            if number in store.lacks:
                yield f"  not in {store.path}: {store.lacks[number]}"
        for sighting in sightings:
            yield f"  {_where(sighting, found.messages[number].offset)}"
        if not _found(sightings):
            yield "  found nowhere"
    for store in found.stores:
        has = count - len(store.lacks)
        yield f"{store.path}: has {has} of {count} messages ({_kind(store)})"
    if not found.missing:
        yield f"all {count} messages are in every store"
        return
    lost = sum(not _found(each) for each in found.missing.values())
    rest = f"{lost} of them were found nowhere" if lost else "each of them was found elsewhere"
    yield f"{len(found.missing)} messages are missing from a store; {rest}"


def _kind(store: StoreLook) -> str:
    return "archive" if store.log.place == ARCHIVED else "store"


def _found(sightings: list[Sighting]) -> bool:
    """Whether one of them is the message as it was acknowledged."""
    return not all(each.differs for each in sightings)


def _where(sighting: Sighting, offset: int | None) -> str:
    place = f"at byte {sighting.offset}, {sighting.queue}"
    if sighting.offset == offset:
        place = "at its byte"
    differs = f": {sighting.differs}" if sighting.differs else ""
    return f"{sighting.place}: {sighting.path}, {place}{differs}"


def _as_json(found: Whereabouts, sure: bool) -> dict[str, object]:
    count = len(found.messages)
    return {
        "ok": sure and not found.missing,
        "messages": count,
        "stores": [
            {"path": str(each.path), "kind": _kind(each), "has": count - len(each.lacks)}
            for each in found.stores
        ],
        "missing": [
            {
                "message": found.messages[number].as_row(),
                "notIn": {
                    str(store.path): store.lacks[number]
                    for store in found.stores
                    if number in store.lacks
                },
                "found": [asdict(each) for each in sightings],
            }
            for number, sightings in found.missing.items()
        ],
        "unread": [asdict(finding) for finding in found.findings()],
    }
