"""C{rmqha config check}: what a configuration file means here, or all that is wrong with it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table
from twisted.internet.defer import execute
from twisted.internet.task import Clock

from rmqha.broker.access.acl_file import read_accounts
from rmqha.cli.common import FAILED, JSON, OVERRIDES, flag, note, stdout
from rmqha.config.load import NAMESRV, ROLE_NAMES, Row, check
from rmqha.config.settings import Settings
from rmqha.errors import StoreError
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.remoting.credentials import read_credentials
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.net.tls.node_tls import NodeTls
from rmqha.roles.advice import advice
from rmqha.store.log import expiry
from rmqha.store.offline.detect_sizes import wrong_sizes


@click.group()
def config() -> None:
    """Check configuration files."""


@config.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@OVERRIDES
@click.option("--role", type=click.Choice(sorted(ROLE_NAMES)), help="Default: by brokerRole.")
@flag("--changed", "Show only keys that differ from their defaults.")
@click.option(
    "--diff",
    "other",
    type=click.Path(path_type=Path),
    metavar="OTHER",
    help="Show only keys that mean something else in OTHER, such as the file of the pair's slave.",
)
@JSON
def check_file(
    file: Path,
    overrides: tuple[str, ...],
    role: str | None,
    changed: bool,
    other: Path | None,
    as_json: bool,
) -> int:
    """Show every key's value and where it comes from, or every problem in FILE.

    FILE is a broker.conf or, with --role namesrv, a namesrv.properties.  What is allowed and not
    wise is said besides.  Exit code 1 if there are problems, if keys, certificates or accounts
    that FILE names cannot be used, or if the store is there and its files have other sizes than
    FILE says.
    """
    settings, rows = check(file, overrides, role)
    unusable = list(_unusable(settings))
    sizes = [] if role == NAMESRV else _wrong_sizes(settings)
    advised = advice(settings, namesrv=role == NAMESRV)
    due = "" if role == NAMESRV or sizes else _due(settings)
    if other is not None:
        _show_differences(rows, check(other, (), None if role != NAMESRV else role)[1], as_json)
        return 0
    if changed:
        rows = [row for row in rows if not row.is_default]
    if as_json:
        told = _as_json(settings, rows) | {
            "advice": advised,
            "filesUnusable": unusable,
            "sizesOnDisk": sizes,
            "retention": due,
        }
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        _show(file, settings, rows)
        for text in advised:
            note(f"advice: {text}")
        if due:
            note(due)
        for text in (*unusable, *sizes):
            note(text)
    return FAILED if unusable or sizes else 0


def _unusable(settings: Settings) -> Iterator[str]:
    """What is wrong with files that are named, without which a node does not start."""
    tls = NodeTls(settings.remoting, settings.tls, Clock(), execute)
    for identity in tls.identities.all:
        try:
            identity.load()
        except TlsFilesInvalid as error:
            yield str(error)
    access = settings.access
    try:
        if access.enabled and access.accounts is not None:
            read_accounts(access.accounts)
    except KeyFileInvalid as error:
        yield str(error)
    try:
        read_credentials(access.credentials)
    except KeyFileInvalid as error:
        yield str(error)


def _due(settings: Settings) -> str:
    """Which log files go next; empty if none does, or there is no log."""
    try:
        return expiry.of_store(settings.store, time.time())
    except (StoreError, OSError) as error:
        return f"which log files go next cannot be seen: {error}"


def _wrong_sizes(settings: Settings) -> list[str]:
    root = settings.store.root
    return [
        f"{key} is {configured}, but files in {root} were made with {there}"
        for key, configured, there in wrong_sizes(settings.store)
    ]


def _show(file: Path, settings: Settings, rows: list[Row]) -> None:
    for text in settings.notes:
        note(text)
    if settings.ignored:
        note(f"ignored, without effect in rmqha: {', '.join(settings.ignored)}")
    table = Table("key", "value", "from", box=None, pad_edge=False)
    for row in rows:
        source = row.source.removeprefix(f"{file}:")
        source = f"line {source}" if source.isdigit() else source
        table.add_row(row.key, row.value, source, style="dim" if row.is_default else "bold")
    stdout().print(table, markup=False)


def _show_differences(rows: list[Row], others: list[Row], as_json: bool) -> None:
    values = {row.key: row.value for row in others}
    differing = [(row.key, row.value, values.get(row.key, "")) for row in rows]
    differing = [(key, one, two) for key, one, two in differing if one != two]
    if as_json:
        told = {key: {"file": one, "other": two} for key, one, two in differing}
        click.echo(json.dumps({"differences": told}, indent=2, ensure_ascii=False))
        return
    table = Table("key", "FILE", "OTHER", box=None, pad_edge=False)
    for each in differing:
        table.add_row(*each)
    stdout().print(table, markup=False)


def _as_json(settings: Settings, rows: list[Row]) -> dict[str, object]:
    return {
        "settings": {
            row.key: {"value": row.value, "default": row.is_default, "from": row.source}
            for row in rows
        },
        "notes": list(settings.notes),
        "ignored": list(settings.ignored),
    }
