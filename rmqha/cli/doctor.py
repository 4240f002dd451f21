"""C{rmqha doctor}: what is wrong with a node and what comes next; or where the messages are that a
client was told are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import treq
from attrs import asdict

from rmqha.archive.manifest import ArchiveManifest
from rmqha.cli.common import FAILED, JSON, STORE, TLS, bar, complain, file_option, in_reactor, note
from rmqha.cli.nodes.arguments import DEFAULT_ADDRESS, checked, exit_code
from rmqha.cli.reach import Access
from rmqha.logfiles.raw_log import RawLog
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.nodes.any_port import AnyPortClient
from rmqha.nodes.next_steps import UNREACHED, advice
from rmqha.nodes.poll import PollResult
from rmqha.nodes.summary import STOCK, name_of, state_of
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
@file_option("--ledger", "What a client was told of each message, one JSON object a line.", "path")
@click.argument("named", nargs=-1, metavar="[HOST[:PORT] | STORE...]")
@JSON
@TLS
@click.pass_context
def doctor(
    context: click.Context, path: Path | None, named: tuple[str, ...], as_json: bool, tls: ToolTls
) -> int:
    """Say what is wrong with a node, and the next command for each of it.

    HOST:PORT is any port of it, HOST alone its client port 10911; the default is 127.0.0.1:10914.
    Exit code 1 if anything is wrong, or it is a stock node, of which that is not known; 3 if it
    gives no answer.

    With --ledger say where each message of a client's ledger is, in each STORE.  STORE is a
    store's root, its commitlog folder, or an archive: each has to have all messages
    at their bytes.  A quarantine file may be named besides, to be looked in.  For a message that
    a store lacks, all logs, their quarantine, what a rebootstrap put aside and what a repair
    fetched are searched.  Nothing is changed, so nodes may be running.  Exit code 1 if a store
    lacks a message, or something could not be read.
    """
    if path is not None:
        if not named:
            raise click.UsageError("--ledger needs a STORE to look in")
        return _searched(path, tuple(STORE.convert(each, None, context) for each in named), as_json)
    if len(named) > 1:
        raise click.UsageError("name one node, or --ledger FILE and its stores")
    return _asked(named[0] if named else DEFAULT_ADDRESS, as_json, tls)


def _asked(named: str, as_json: bool, tls: ToolTls) -> int:
    address = checked(named)

    async def run(reactor: Any) -> PollResult:
        async with Access(tls=tls).client(reactor) as client:
            return await AnyPortClient(treq, address, reactor, remoting=client).once()

    seen = in_reactor(run)
    rows = list(advice(named, seen))
    if seen.status is None:
        rows = [(seen.problem, UNREACHED)]
    code = exit_code(seen) or (FAILED if (seen.status or {}).get("product") == STOCK else 0)
    if as_json:
        told = [{"text": text, "next": step and asdict(step)} for text, step in rows]
        click.echo(json.dumps({"status": seen.status, "wrong": told}, ensure_ascii=False))
        return code
    if seen.status is not None:
        who = name_of(seen.status) or address
        click.echo(f"{who}, {seen.status.get('role')}: {state_of(seen.status)}")
    for text, step in rows:
        click.echo(text)
        if step is not None:
            click.echo(f"  next: {step.command}\n  page: docs/{step.page}")
    if not rows:
        click.echo("nothing is wrong")
    return code


def _searched(path: Path, stores: tuple[Path, ...], as_json: bool) -> int:
    """Look for what a client was told."""
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
