"""C{rmqha spark verify}: are copies of a log the same?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from rmqha.cli.common import FAILED, JSON, Whole, flag, note, stdout
from rmqha.cli.spark.common import POINT_FILE, Spark, spark_options, stores_argument
from rmqha.pipeline.jobs.progress import bar
from rmqha.pipeline.jobs.spark_work import Stores
from rmqha.pipeline.jobs.verify.chunks import CHUNK, DigestKind
from rmqha.pipeline.jobs.verify.digests import Digests, against, digest
from rmqha.pipeline.jobs.verify.findings import ComparisonReport, ComparisonResult
from rmqha.pipeline.jobs.verify.verify import verify as compare
from rmqha.pipeline.log.option_values import SIZE

MOST_ROWS = 20
"""Differences shown in a terminal; C{--json} has all."""


class Bytes(click.ParamType[int]):
    """A number of bytes, with a unit if one is written."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        """Read C{8m} and the like."""
        kind = SIZE
        try:
            found: int = kind.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is not {kind.allowed}", param, context)
        return found


@click.command()
@stores_argument
@click.option("--chunk", type=Bytes(), default=CHUNK, help="Bytes of a chunk (8m).")
@click.option(
    "--sum",
    "kind",
    type=click.Choice([each.value for each in DigestKind]),
    default=DigestKind.CRC32.value,
)
@click.option(
    "--end", type=Whole(0), metavar="OFFSET", help="Compare below this physical offset only."
)
@flag("--whole", "Count a copy that ends before another as different.")
@click.option(
    "--digests",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the digests of the chunks of STORE into this file, and compare nothing.",
)
@click.option(
    "--against",
    "other",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare STORE with the digests of another copy.",
)
@POINT_FILE
@JSON
@spark_options
def verify(
    stores: Stores,
    on: Spark,
    chunk: int,
    kind: str,
    end: int | None,
    whole: bool,
    digests: Path | None,
    other: Path | None,
    point_file: str,
    as_json: bool,
) -> int:
    """Compare copies of one log, byte for byte: master=/data/a slave=/data/b.

    The copies are held against the first one.  Compared is what all of them should have:
    above the first byte of every copy and below the published end of every one.  Exit code 1
    if anything differs.

    Copies that no machine sees together: --digests where one is, --against where the other is.
    """
    sum = DigestKind(kind)
    count = len(stores) if isinstance(stores, Mapping) else 1
    if digests is not None and (other is not None or as_json or whole):
        raise click.UsageError("--digests compares nothing: give it alone")
    if other is not None and end is not None:
        raise click.UsageError("--against compares the range of the digests: give no --end")
    if digests is None and other is None and count < 2:
        raise click.UsageError("a comparison needs two copies: NAME=STORE NAME=STORE")
    if (digests or other) and count > 1:
        raise click.UsageError("--digests and --against are for one STORE")
    session = on.session("verify")
    if digests is not None:
        found = digest(
            session,
            stores,
            chunk=chunk,
            sum=sum,
            end=end,
            point_file=point_file,
            shown=bar("digests"),
        )
        digests.write_text(found.to_json(), encoding="ascii")
        click.echo(f"{digests}: {len(found.digests)} digests of bytes {found.low} to {found.high}")
        return 0
    shown = bar("comparing")
    if other is not None:
        theirs = Digests.from_json(other.read_text(encoding="ascii", errors="replace"))
        report = against(session, stores, theirs, point_file=point_file, shown=shown)
    else:
        assert isinstance(stores, Mapping), "checked above"
        report = compare(
            session, stores, chunk=chunk, sum=sum, end=end, point_file=point_file, shown=shown
        )
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        _tell(report, stdout())
    wrong = report.verdict is ComparisonResult.DIFFERENT or (whole and bool(report.behind))
    return FAILED if wrong else 0


def _tell(report: ComparisonReport, console: Console) -> None:
    for each in report.skipped:
        note(f"{each.store}: bytes {each.start} to {each.end} were not compared: {each.reason}")
    if report.differences:
        table = Table("copy", "from byte", "to byte", "bytes", "why", box=None)
        for found in report.differences[:MOST_ROWS]:
            why = found.absent or "other bytes"
            table.add_row(found.store, str(found.start), str(found.end), str(found.count), str(why))
        console.print(table)
        if len(report.differences) > MOST_ROWS:
            console.print(f"and {len(report.differences) - MOST_ROWS} more")
        first = report.copies[0]
        for copy in report.copies[1:]:
            if first.root and copy.root and any(d.store == copy.name for d in report.differences):
                note(f"which records: rmqha verify {copy.root} --against {first.root}")
    click.echo(f"{report.verdict}: {report.summary}")
