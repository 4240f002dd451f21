"""C{rmqha dump}: the records of a log, one a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
from attrs import frozen

from rmqha.cli.common import FAILED, STORE, Whole, complain, flag, note
from rmqha.cli.record_lines import as_line, as_text
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end
from rmqha.wire.log.record import Record, decode


@frozen
class Wanted:
    """Which records to show.

    @ivar start: Physical offset of the first byte.
    @ivar stop: Physical offset just past the last; C{None} for all.
    @ivar topics: Empty for all.
    """

    start: int
    stop: int | None
    topics: frozenset[str]

    def takes(self, record: Record) -> bool:
        """Whether a record is wanted."""
        return record.offset >= self.start and (not self.topics or record.topic in self.topics)


@click.command()
@click.argument("store", type=STORE)
@click.option(
    "--from",
    "start",
    type=Whole(0),
    default=0,
    metavar="OFFSET",
    help="Physical offset of the first byte.",
)
@click.option(
    "--to",
    "stop",
    type=Whole(0),
    metavar="OFFSET",
    help="Physical offset just after the last byte.",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated."
)
@flag("--json", "Print one JSON object a line.", "as_json")
@flag("--body", "Print the bodies too, in base64; needs --json.", "with_body")
def dump(
    store: Path,
    start: int,
    stop: int | None,
    topics: tuple[str, ...],
    as_json: bool,
    with_body: bool,
) -> int:
    """Print the records of STORE in the order of its log.

    STORE is a store's root, its commitlog folder, or a quarantine file.  Damaged places
    are reported on stderr and skipped; exit code 1 if there were any.
    """
    if with_body and not as_json:
        raise click.UsageError("--body needs --json")
    if stop is not None and stop <= start:
        raise click.UsageError(f"--to {stop} must be above --from {start}")
    raw = RawLog.open(store)
    for finding in raw.findings:
        complain(str(finding))
    show: Callable[[Record], str] = as_text
    if as_json:
        show = lambda record: as_line(record, with_body)  # noqa: E731
    told = len(raw.findings)
    clean = not told
    for event in _events(raw, Wanted(start, stop, frozenset(topics))):
        if isinstance(event, Record):
            click.echo(show(event))
        else:
            clean = _bad(raw, event) and clean
    for finding in raw.findings[told:]:
        complain(str(finding))
        clean = False
    return 0 if clean else FAILED


def _events(raw: RawLog, wanted: Wanted) -> Iterator[Record | Corruption]:
    """The records wanted, and corruptions among them."""
    if not raw.pieces:
        return
    # Records begin at a file's first byte; before --from they are only counted off.
    start = raw.min_offset
    if raw.has(wanted.start):
        start = raw.at(wanted.start).start
    elif wanted.start > start:
        behind = raw.next_start(wanted.start)
        if behind is None:
            return
        start = behind
    for event in follow(raw, start):
        if isinstance(event, Corruption):
            if wanted.stop is not None and event.offset >= wanted.stop:
                return
            if event.next_valid is None or event.next_valid > wanted.start:
                yield event
            continue
        view, block = event
        for offset in block.start.tolist():
            if wanted.stop is not None and offset >= wanted.stop:
                return
            if offset >= wanted.start:
                record = decode(view, offset - block.base, offset)
                if wanted.takes(record):
                    yield record


def _bad(raw: RawLog, bad: Corruption) -> bool:
    """Report a damaged place.

    @return: Whether it is only the log's end.
    """
    path = raw.at(bad.offset).path
    if bad.next_valid is not None:
        complain(
            f"{path} at {bad.offset}: {bad.fault.value}; "
            f"continuing with the next valid record, at byte {bad.next_valid}"
        )
        return False
    behind = data_end(raw, bad.offset) - bad.offset
    if behind:
        note(
            f"{path} at {bad.offset}: the log ends here ({bad.fault.value}); {behind} bytes follow"
        )
    return True
