"""C{rmqha spark replay}: send messages of a log to a broker again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from rmqha.cli.common import JSON, Whole, file_option, flag, stdout
from rmqha.cli.spark.common import UNTIL, Setting, Spark, spark_options, stores_argument
from rmqha.net.remoting.credentials import read_credentials
from rmqha.pipeline.jobs.progress import bar
from rmqha.pipeline.jobs.replay import SELECTING, TASKS, Replayed, require_selecting
from rmqha.pipeline.jobs.replay import replay as send
from rmqha.pipeline.jobs.spark_work import Stores
from rmqha.pipeline.producing.settings import SendOptions

_SENDING = "nameServer", "maxRowsPerSecond", "maxBytesPerSecond", "retries", "sendTimeout"
"""Options of how messages are sent, by the names that the data source has for them."""


@click.command()
@stores_argument
@click.option(
    "--name-server",
    "nameServer",
    required=True,
    metavar="HOST:PORT[;...]",
    help="The name servers.",
)
@click.option("--to-topic", metavar="TOPIC", help="Send all to this topic.")
@flag("--same-topic", "Send each to the topic it was in.")
@click.option("--topic", metavar="TOPIC[,...]", help="Only messages of these topics.")
@click.option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@click.option(
    "--from",
    "startingTimestamp",
    metavar="TIME",
    help="Only messages stored at this time or later.",
)
@UNTIL
@click.option(
    "--option",
    "others",
    type=Setting(),
    multiple=True,
    help=f"Another option of the data source: {', '.join(SELECTING)}.",
)
@click.option("--rate", "maxRowsPerSecond", metavar="N", help="Most messages a second.")
@click.option(
    "--max-bytes",
    "maxBytesPerSecond",
    metavar="SIZE",
    help="Most bytes of bodies a second, like 10m.",
)
@click.option("--retries", metavar="N", help="How often a failed request is sent again.")
@click.option(
    "--send-timeout", "sendTimeout", metavar="MS", help="Milliseconds a broker has for an answer."
)
@file_option(
    "--credentials", "Sign with this account: accessKey and secretKey as in mqadmin's tools.yml."
)
@file_option(
    "--tls",
    "Connect with TLS, by the keys in this file, a client's in mqadmin's tls.config.file; it "
    "lies at the same path wherever tasks run.",
)
@click.option(
    "--tasks",
    type=Whole(1),
    metavar="COUNT",
    default=TASKS,
    show_default=True,
    help="How many producers send at the same time.",
)
@click.option(
    "--dedupe/--no-dedupe", default=True, help="Send only the first message of each UNIQ_KEY."
)
@flag("--dry-run", "Send nothing; print what would be sent.")
@JSON
@spark_options
def replay(
    stores: Stores,
    on: Spark,
    others: tuple[tuple[str, str], ...],
    credentials: Path | None,
    tls: Path | None,
    dry_run: bool,
    as_json: bool,
    **named: Any,
) -> None:
    """Send messages of STORE to brokers again, each queue in its order.

    Each message is sent at least once, with its UNIQ_KEY.  TIME is a time with its zone, like
    2026-01-31T12:00:00Z, or milliseconds since 1970.
    """
    options = dict(others)
    require_selecting(options)
    account = read_credentials(credentials)
    given = {
        **{name: named.pop(name) for name in _SENDING},
        "accessKey": account and account.access_key,
        "secretKey": account and account.secret_key,
        "tlsConfigFile": tls and str(tls.absolute()),
    }
    sending = SendOptions.parse({name: text for name, text in given.items() if text is not None})
    done = send(
        on.session("replay"),
        stores,
        sending,
        dry_run=dry_run,
        shown=bar("counting" if dry_run else "sending"),
        **{**options, **{name: each for name, each in named.items() if each is not None}},
    )
    if as_json:
        click.echo(json.dumps({"dryRun": dry_run, **done.to_json()}, indent=2, ensure_ascii=False))
    else:
        _show(done, dry_run)


def _show(done: Replayed, dry_run: bool) -> None:
    table = Table("topic", "outcome", "messages", "bytes")
    for each in done.outcomes:
        outcome = f"would be {each.outcome}" if dry_run and each.sent else each.outcome
        table.add_row(each.topic, outcome, str(each.messages), str(each.bytes))
    stdout().print(table)
    messages, size = done.count(sent=True)
    skipped, _ = done.count(sent=False)
    told = f"{messages} messages with {size} bytes, {skipped} skipped"
    if not dry_run:
        click.echo(f"sent {told}")
        return
    click.echo(f"would send {told}")
    for topic, queues in done.queues.items():
        found = f"has {queues} queues" if queues else "does not exist, says the name server"
        click.echo(f"topic {topic} {found}")
    if done.seconds is not None:
        click.echo(f"takes at least {done.seconds:.0f} s")
