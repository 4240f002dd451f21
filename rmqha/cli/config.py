"""
C{rmqha config check}: what a configuration file means here, or all that is wrong with it.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from rmqha.cli.common import JSON, note, stdout
from rmqha.config.load import ROLE_NAMES, Row, check
from rmqha.config.settings import Settings


@click.group()
def config() -> None:
    """Check configuration files."""


@config.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key; it wins over FILE."
)
@click.option("--role", type=click.Choice(sorted(ROLE_NAMES)), help="Default: by brokerRole.")
@JSON
def check_file(file: Path, overrides: tuple[str, ...], role: str | None, as_json: bool) -> None:
    """Show every key's value and where it comes from, or every problem in FILE.

    FILE is a broker.conf or, with --role namesrv, a namesrv.properties.
    """
    settings, rows = check(file, overrides, role)
    if as_json:
        click.echo(json.dumps(_as_json(settings, rows), indent=2, ensure_ascii=False))
        return
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


def _as_json(settings: Settings, rows: list[Row]) -> dict[str, object]:
    return {
        "settings": {
            row.key: {"value": row.value, "default": row.is_default, "from": row.source}
            for row in rows
        },
        "notes": list(settings.notes),
        "ignored": list(settings.ignored),
    }
