"""What the commands print: rows as tables or as JSON, and times."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import click
from rich.table import Table

from rmqha.cli.common import stdout
from rmqha.cli.record_lines import shown_time


def moment_at(milliseconds: int) -> str:
    """A time of a broker's for people; a dash for none."""
    return shown_time(milliseconds) if milliseconds > 0 else "-"


def moment(text: str) -> int:
    """A time that a person wrote, in milliseconds since 1970.

    @raise click.BadParameter: If it is none.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text} is no time such as 2026-01-31T12:00:00Z") from error
    if time.tzinfo is None:
        raise click.BadParameter(f"{text} has no time zone: append Z for UTC, or such as +02:00")
    return round(time.timestamp() * 1000)


def show(sections: dict[str, list[dict[str, Any]]], *, as_json: bool) -> None:
    """Print tables, each with a title where there are several; or all as one JSON object."""
    if as_json:
        click.echo(json.dumps(sections, ensure_ascii=False))
        return
    filled = {title: rows for title, rows in sections.items() if rows}
    for title, rows in filled.items():
        table = Table(
            *(_words(name) for name in rows[0]),
            title=title if len(sections) > 1 else None,
            title_justify="left",
            box=None,
            pad_edge=False,
        )
        for row in rows:
            table.add_row(*map(_text, row.values()))
        stdout().print(table, markup=False, emoji=False)


def _words(name: str) -> str:
    return re.sub("([A-Z])", lambda found: f" {found[1].lower()}", name)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items()) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
