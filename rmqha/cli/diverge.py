"""
C{rmqha diverge}: where two stores part, and what each would lose.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
from attrs import asdict

from rmqha.cli.common import FAILED, STORE, bar
from rmqha.errors import Refused
from rmqha.store.diverge import Beyond, Parting, parting
from rmqha.store.raw import RawLog

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^/\s:]+):\d{1,5}")


@click.command()
@click.argument("store", type=STORE)
@click.option("--against", required=True, metavar="STORE2", help="The other store.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def diverge(context: click.Context, store: Path, against: str, as_json: bool) -> None:
    """Say where STORE and STORE2 part; nothing is changed.

    Bytes are compared, as far as both have any, whether they are valid records or not.
    Exit code 0 if one is a prefix of the other, 1 if they diverge.
    """
    other = Path(against)
    if not other.exists():
        if _ADDRESS.fullmatch(against):
            raise click.UsageError(
                f"--against {against}: comparing with a running master is not built yet, "
                "name the folder of a store"
            )
        raise click.UsageError(f"--against {against}: no such folder")
    first, second = RawLog.open(store), RawLog.open(other)
    try:
        with bar("comparing") as progress:
            found = parting(first, second, progress)
    except ValueError as error:
        raise Refused("diverge", str(error)) from error
    if as_json:
        click.echo(json.dumps(_as_json(found), indent=2, ensure_ascii=False))
    else:
        _tell(found, store, other)
    context.exit(FAILED if found.difference is not None else 0)


def _as_json(found: Parting) -> dict[str, object]:
    return {
        "diverged": found.difference is not None,
        "comparedFrom": found.start,
        "comparedTo": found.stop,
        "difference": None if found.difference is None else asdict(found.difference),
        "firstRecordNotShared": found.at,
        "store": asdict(found.first),
        "against": asdict(found.second),
    }


def _tell(found: Parting, store: Path, other: Path) -> None:
    if found.difference is None:
        click.echo(f"equal from byte {found.start} to {found.stop}")
    else:
        click.echo(
            f"diverged: equal from byte {found.start} to {found.difference.offset}; "
            f"there 0x{found.difference.value:02x} in {found.difference.path}, "
            f"0x{found.difference.other_value:02x} in {found.difference.other_path}"
        )
        click.echo(f"the first record not shared begins at byte {found.at}")
    for path, beyond in ((store, found.first), (other, found.second)):
        click.echo(_line(path, beyond))


def _line(path: Path, beyond: Beyond) -> str:
    topics = ", ".join(f"{name}: {count}" for name, count in beyond.topics.items())
    text = f"{path}: ends at byte {beyond.end}, {beyond.records} records "
    text += f"({beyond.bytes} bytes) of its own" + (f" ({topics})" if topics else "")
    if beyond.bad:
        text += f"; {beyond.bad} bad places among them"
    if beyond.tail:
        text += f"; {beyond.tail} bytes behind its end are no whole record"
    return text
