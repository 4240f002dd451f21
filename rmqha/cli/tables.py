"""C{rmqha tables}: the tables of a store and their checksums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rmqha.cli.common import JSON, STORE
from rmqha.errors import NotAStore
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.owner import as_owner
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.merge_tables import NAMES
from rmqha.store.tables.table_verdict import Source, TableVerdict
from rmqha.wire.store_layout import LOCK

SAYS = {
    Source.PRESENT: "as it was written",
    Source.FOREIGN: "written by another program since, and taken as it is",
    Source.CHANGED: "changed, and taken as it is: there is no generation before it",
    Source.BACKUP: "damaged or changed by hand: a start takes the generation before it, .bak",
    Source.NOTHING: "gone",
    Source.UNREADABLE: "unreadable: a start fails",
}
"""What is said of a table, by where a start would read it from."""


@click.command()
@click.argument("store", type=STORE)
@click.option(
    "--accept",
    multiple=True,
    metavar="NAME",
    type=click.Choice(NAMES),
    help="Take this table as it is, because it was changed on purpose.",
)
@JSON
def tables(store: Path, accept: tuple[str, ...], as_json: bool) -> int:
    """Compare the tables in STORE's config folder with their checksums.

    Exit code 1 says that a start would not take one as it is, or could not tell.
    A table that was edited, or copied from elsewhere, while the node was stopped has to be
    accepted by name.
    """
    raw = RawLog.open(store)
    if raw.root is None:
        raise NotAStore(str(store), "tables needs a store's root, not a part of a store")
    if accept:
        _accept(raw.root, raw.path, accept)
    found = dict(CheckedTables(raw.root).verdicts())
    if as_json:
        rows = {path.name: _as_json(verdict) for path, verdict in found.items()}
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not found:
        click.echo("there are no checksums of tables in this store yet")
    for path, verdict in {} if as_json else found.items():
        fault = f" ({verdict.fault})" if verdict.fault else ""
        click.echo(f"{path.relative_to(raw.root)}: {SAYS[verdict.source]}{fault}")
    if any(_wrong(verdict) for verdict in found.values()):
        return 1
    return 0


def _accept(root: Path, commitlog: Path, names: tuple[str, ...]) -> None:
    """Take tables as they are.

    @raise StoreLocked: If a node is running on the store: it would write its own over them.
    """
    with as_owner(root, commitlog):
        lock = StoreLock(root / LOCK)
        lock.take()
        try:
            checked = CheckedTables(root)
            for name in names:
                if checked.accept(checked.path(name)):
                    click.echo(f"{name} is taken as it is", err=True)
        finally:
            lock.release()


def _wrong(verdict: TableVerdict) -> bool:
    return bool(verdict.fault) and verdict.source is not Source.FOREIGN


def _as_json(verdict: TableVerdict) -> dict[str, Any]:
    return {"source": verdict.source.value, "fault": verdict.fault or None}
