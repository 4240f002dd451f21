"""C{rmqha message}: messages are sent, shown, found and watched."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Any, BinaryIO

import click
from rich.table import Table

from rmqha.cli.brokers import reading
from rmqha.cli.brokers.asking import BrokerSite, Way, addresses, ask, asks_brokers
from rmqha.cli.brokers.reading import body_text, json_of
from rmqha.cli.brokers.shown import show
from rmqha.cli.brokers.topic import TOPICS
from rmqha.cli.common import FAILED, Commands, Whole, complain, stdout
from rmqha.cli.record_lines import plain, shown_time
from rmqha.config.values import Endpoint
from rmqha.nodes.broker_admin import BrokerAdmin
from rmqha.wire.log.record import Record
from rmqha.wire.names import KEYS, TAGS, UNIQUE_KEY, WAIT
from rmqha.wire.remoting.bodies.tables import WRITE
from rmqha.wire.remoting.codes import ResponseCode

ID_SIZES = (16, 28)
"""Bytes of an id that tells where a message is: those of an address, a port and an offset."""


@click.group(cls=Commands)
def message() -> None:
    """Send, show, find and watch messages of running brokers."""


# --- sending ------------------------------------------------------------------------------


def _properties(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
    pairs = [text.partition("=") for text in texts]
    for name, equals, value in pairs:
        if not (name and equals and value) or not (name + value).isprintable():
            raise click.BadParameter(f"{name}{equals}{value} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


@message.command()
@click.argument("topic")
@click.option("--body", metavar="MESSAGE", help="What it says, in UTF-8.")
@click.option("--file", type=click.File("rb"), help="The file that it is; - for stdin.")
@click.option("--tag", metavar="TAG", help="Its tag.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key; may be repeated.")
@click.option(
    "--property",
    "more",
    multiple=True,
    callback=_properties,
    metavar="NAME=VALUE",
    help="Another property; may be repeated. DELAY=3 delays it by the third level.",
)
@click.option("--queue", type=Whole(0), metavar="N", help="Its queue. Default: any.")
@asks_brokers
def send(
    way: Way,
    topic: str,
    body: str | None,
    file: BinaryIO | None,
    tag: str | None,
    keys: tuple[str, ...],
    more: dict[str, str],
    queue: int | None,
    as_json: bool,
) -> int:
    """Send one message to a master that has TOPIC.

    Exit code 1 too if it is stored and the broker's whole promise, its flush or its slave, was not
    kept.  It is not sent again by itself: an answer that does not come leaves open whether it is.
    """
    if (body is None) == (file is None):
        raise click.UsageError("give the message by one of --body and --file")
    for text in (tag or "", *keys):
        if not text.isprintable() or " " in text:
            raise click.UsageError(f"{text!r} has blanks, and is no tag and no key")
    content = file.read() if file else (body or "").encode()
    now = int(time.time() * 1000)
    given = {UNIQUE_KEY: unique_id(now), WAIT: "true", **more}
    if tag:
        given[TAGS] = tag
    if keys:
        given[KEYS] = " ".join(keys)

    async def run(site: BrokerSite) -> tuple[ResponseCode, dict[str, Any]]:
        broker, chosen = await _place(site, topic, queue)
        code, where = await broker.send(topic, chosen, content, given, now)
        return code, {
            "status": "stored" if code == ResponseCode.SUCCESS else code.name,
            "broker": broker.address,
            "queue": where.queue_id,
            "offset": where.queue_offset,
            "id": given[UNIQUE_KEY],
            "offsetId": where.msg_id,
        }

    code, row = ask(way, run)
    show({"sent": [row]}, as_json=as_json)
    if code == ResponseCode.SUCCESS:
        return 0
    complain(f"{row['broker']} stored it and answered with code {code.value} ({code.name})")
    return FAILED


async def _place(site: BrokerSite, topic: str, queue: int | None) -> tuple[BrokerAdmin, int]:
    """Where a message goes.

    @raise click.ClickException: If it may not be written there.
    """
    there = await TOPICS.at(await site.masters(), topic)
    open_ = {each: entry.write_queue_nums for each, entry in there.items() if entry.perm & WRITE}
    found = {each: count for each, count in open_.items() if count > (queue or 0)}
    if not open_:
        raise click.ClickException(
            f"topic {topic} is not written to at {addresses(there)}, its permission lacks w; "
            f"`rmqha topic change {topic} --perm rw` gives it"
        )
    if not found:
        told = ", ".join(f"{count} at {each.address}" for each, count in open_.items())
        raise click.ClickException(f"topic {topic} has no queue {queue or 0} to write to: {told}")
    broker = random.choice(list(found))
    return broker, random.randrange(found[broker]) if queue is None else queue


def unique_id(now: int) -> str:
    """An id as Java's producers make them: the stock tools read the time in it.

    @param now: Milliseconds since 1970.
    """
    local = datetime.fromtimestamp(now / 1000).astimezone()
    month = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since = now - int(month.timestamp() * 1000)
    return f"{random.getrandbits(80):020X}{since & 0xFFFFFFFF:08X}{random.getrandbits(16):04X}"


# --- showing one --------------------------------------------------------------------------


@message.command("show")
@click.argument("which", metavar="ID|OFFSET")
@click.option("--topic", metavar="TOPIC", help="Needed for the id that its producer gave it.")
@asks_brokers
def show_(way: Way, which: str, topic: str | None, as_json: bool) -> None:
    """Show the message with an id, or at a physical OFFSET of the log of the broker at -b.

    An id with --topic is its producer's.  Without, it is the broker's, which tells where the
    message is; -b asks another broker for it, such as a slave.
    """

    async def run(site: BrokerSite) -> Record:
        if topic is not None:
            return await _by_producer(site, topic, which)
        if which.isascii() and which.isdigit() and len(which) <= 18:
            (broker, *others) = await site.readable()
            if others:
                raise click.ClickException("an offset is of one log: give one broker with -b")
            return await broker.at_byte(int(which))
        address, offset = _place_in(which)
        broker = site.at(way.brokers[0] if way.brokers else address)
        record = await broker.at_byte(offset)
        if record.offset_msg_id != which.upper():
            raise click.ClickException(
                f"at byte {offset} of {broker.address} is another message, {record.offset_msg_id}"
            )
        return record

    record = ask(way, run)
    if as_json:
        click.echo(json.dumps(json_of(record), ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for name, text in _fields(record).items():
        table.add_row(name, plain(str(text)))
    stdout().print(table, markup=False, emoji=False)
    click.echo(body_text(record, in_lines=True))


async def _by_producer(site: BrokerSite, topic: str, which: str) -> Record:
    """The message with a producer's id.

    @raise click.ClickException: If no broker has it.
    """
    there = await TOPICS.at(await site.readable(), topic)
    for broker in there:
        for record in await broker.with_key(topic, which, most=32, is_id=True):
            if record.properties.get(UNIQUE_KEY, "").upper() == which.upper():
                return record
    raise click.ClickException(
        f"no message of topic {topic} at {addresses(there)} has the id {which}; "
        f"`rmqha message find {topic} --from TIME` looks by time"
    )


def _place_in(text: str) -> tuple[str, int]:
    """The address and the physical offset that an id of a broker tells.

    @raise click.ClickException: If it is none.
    """
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    port = int.from_bytes(raw[-12:-8], "big")
    if len(raw) not in ID_SIZES or not 0 < port < 65536:
        raise click.ClickException(
            f"{text} is neither an offset nor an id that tells where a message is; "
            "if it is the id that its producer gave it, --topic says of which topic"
        )
    return Endpoint().show((str(ip_address(raw[:-12])), port)), int.from_bytes(raw[-8:], "big")


def _fields(record: Record) -> dict[str, Any]:
    """What a person wants to know of a message."""
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "queue offset": record.queue_offset,
        "physical offset": f"{record.offset}, {record.size} bytes",
        "born": f"{shown_time(record.born_timestamp)} at {record.born_host[0]}",
        "stored": f"{shown_time(record.store_timestamp)} at {Endpoint().show(record.store_host)}",
        "came again": record.reconsume_times,
        "offset id": record.offset_msg_id,
        **record.properties,
        "body": f"{len(record.body)} bytes{'' if record.body_holds else ', WRONG CHECKSUM'}",
    }


message.add_command(reading.find)
message.add_command(reading.tail)
