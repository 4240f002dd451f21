"""C{rmqha tier}: keeps the full files of a store's log in an object store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import NoReturn

import click
from attrs import asdict

from rmqha.cli.archives.as_service import as_service
from rmqha.cli.common import JSON, MAX_RATE, PRIORITY, STORE, bar, flag, note, seconds, told
from rmqha.logfiles.listing import root_of
from rmqha.priority import Priority, step_back
from rmqha.tier.errors import LogCutMeanwhile, TierRefused, TierUnreachable
from rmqha.tier.objects import ObjectFolder, shown_url
from rmqha.tier.upload import TierUpload, Uploader

INTERVAL = 10.0
"""Seconds between two looks at the store: a file is full every few minutes at most."""


@click.command()
@click.argument("store", type=STORE)
@click.argument("url", metavar="URL")
@flag("--follow", "Go on as files become full, until Ctrl-C or SIGTERM.")
@seconds("--interval", INTERVAL, "With --follow, the time between two looks at the store.")
@MAX_RATE
@PRIORITY
@JSON
def tier(
    store: Path,
    url: str,
    follow: bool,
    interval: float,
    max_rate: int,
    priority: str,
    as_json: bool,
) -> None:
    """Upload the full files of a store's log to URL: s3://bucket/folder, file:///folder, ...

    Files that never change again are uploaded, each with its split index and checksums, and read
    back; the active file never is.  STORE may be that of a running node, and is not changed.  What
    is there already is not sent again, so the command can be interrupted at any moment and run
    again.  `rmqha restore` and Spark's option tier read it.

    It gives way to the broker on its host; where processors are always busy it may need
    --priority normal to keep up with what is written.

    With --follow it tries again while URL cannot be reached, and ends with exit code 78 at what
    only a person can mend, such as a tier of another log, wrong keys or a missing bucket.
    """
    step_back(Priority(priority))
    if follow:
        with as_service():
            _follow(_uploader(store, url, max_rate), interval, as_json)
    else:
        _tell(_upload(_uploader(store, url, max_rate)), url, as_json)


def _uploader(store: Path, url: str, max_rate: int) -> Uploader:
    return Uploader(root=root_of(store).absolute(), folder=ObjectFolder.at(url), rate=max_rate)


def _follow(uploader: Uploader, interval: float, as_json: bool) -> NoReturn:
    before: TierUpload | None = None
    url = uploader.folder.url
    while True:
        try:
            done = _upload(uploader)
        except TierRefused:
            raise
        except (TierUnreachable, LogCutMeanwhile, FileNotFoundError) as error:
            # A node deletes old files, also one whose turn is next.
            note(f"{told(error)}; trying again in {interval:g} s")
        else:
            if done.files:
                _tell(done, url, as_json)
            if before is not None and (done.start > before.start or done.end < before.end):
                note(
                    f"{shown_url(url)} had bytes {before.start} to {before.end}, and has "
                    f"{done.start} to {done.end} now: files were removed from it, and what the "
                    "store has no more is not there again"
                )
            before = done
        sleep(interval)


def _upload(uploader: Uploader) -> TierUpload:
    with bar("uploading") as progress:
        return uploader.run(progress)


def _tell(done: TierUpload, url: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"tier": shown_url(url), **asdict(done)}))
        return
    when = datetime.now(UTC).isoformat(timespec="seconds")
    has = f"bytes {done.start} to {done.end}" if done.end else "no file yet"
    click.echo(
        f"{when} {done.files} files uploaded, {done.bytes} bytes; {done.held} were there; "
        f"{shown_url(url)} has {has}"
    )
    for start, end in done.missing:
        note(
            f"neither the tier nor the store has bytes {start} to {end}: retention deleted them "
            "before they were uploaded"
        )
