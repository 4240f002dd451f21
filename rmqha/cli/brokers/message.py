"""C{rmqha message}: messages are sent, shown, found and watched."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Any, BinaryIO

import click
from attrs import define
from rich.table import Table
from twisted.internet.defer import Deferred, ensureDeferred

from rmqha.cli.brokers.asking import BrokerSite, Way, addresses, ask, asks_brokers
from rmqha.cli.brokers.entries import TOPICS
from rmqha.cli.brokers.shown import moment, show
from rmqha.cli.common import FAILED, Commands, Whole, complain, note, stdout
from rmqha.cli.record_lines import as_json as record_json
from rmqha.cli.record_lines import as_text, plain, shown_time
from rmqha.config.values import ENDPOINT
from rmqha.nodes.broker_admin import LARGEST_TIME, BrokerAdmin
from rmqha.wire.log.inflate import inflate
from rmqha.wire.log.record import Record
from rmqha.wire.log.sys_flag import COMPRESSED
from rmqha.wire.names import KEYS, TAGS, UNIQUE_KEY, WAIT
from rmqha.wire.remoting.bodies.tables import WRITE, TopicConfig
from rmqha.wire.remoting.codes import ResponseCode

MOST = 64
"""Messages that are found where nothing is said, as with mqadmin."""

SHRUNK = 16
"""Queues behind those of a topic that are looked at: it may have had them."""

LARGEST_BODY = 64 << 20
"""Bytes that a compressed body may become."""

SHOWN = 60
"""Characters of a body in a table."""


ID_SIZES = (16, 28)
"""Bytes of an id that tells where a message is: those of an address, a port and an offset."""


def body_of(record: Record) -> bytes:
    """What a producer sent; as it is stored if that cannot be made of it."""
    if not record.sys_flag & COMPRESSED:
        return record.body
    try:
        return inflate(record.sys_flag, memoryview(record.body), LARGEST_BODY)
    except (ValueError, ImportError) as error:
        note(f"the body at byte {record.offset} is shown as it is stored, compressed: {error}")
        return record.body


def body_text(record: Record, *, in_lines: bool = False) -> str:
    """A body for people: as text, in hexadecimal if it is none.

    @param in_lines: Whether its lines remain lines.
    """
    body = body_of(record)
    try:
        text = body.decode()
        return "\n".join(map(plain, text.splitlines())) if in_lines else plain(text)
    except UnicodeDecodeError:
        return body.hex(" ", 4)


def json_of(record: Record) -> dict[str, Any]:
    """All of a message, as C{rmqha dump} tells it, and its text if it is one."""
    found = record_json(record, with_body=True)
    try:
        found["text"] = body_of(record).decode()
    except UnicodeDecodeError:
        found["text"] = None
    return found


def _row(broker: BrokerAdmin, record: Record) -> dict[str, Any]:
    text = body_text(record)
    return {
        "broker": broker.address,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "stored": shown_time(record.store_timestamp),
        "tag": plain(record.properties.get(TAGS, "")),
        "keys": plain(record.properties.get(KEYS, "")),
        "offsetId": record.offset_msg_id,
        "body": text if len(text) <= SHOWN else f"{text[:SHOWN]}...",
    }


def _moment(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    return None if text is None else moment(text)


@click.command()
@click.argument("topic")
@click.option("--key", metavar="KEY", help="Only messages with this key.")
@click.option(
    "--from", "begin", callback=_moment, metavar="TIME", help="Stored at this time or later."
)
@click.option(
    "--to", "end", callback=_moment, metavar="TIME", help="Stored at this time or earlier."
)
@click.option(
    "--most", type=Whole(1), default=MOST, show_default=True, metavar="N", help="At most so many."
)
@asks_brokers
def find(
    way: Way,
    topic: str,
    key: str | None,
    begin: int | None,
    end: int | None,
    most: int,
    as_json: bool,
) -> None:
    """Find messages of TOPIC by key, by the time when they were stored, or both.

    A TIME is such as 2026-01-31T12:00:00Z.  Exit code 1 if there is none.
    """
    if key is None and begin is None:
        raise click.UsageError("say what is wanted by --key or --from")
    span = begin or 0, LARGEST_TIME if end is None else end

    async def run(site: BrokerSite) -> list[tuple[BrokerAdmin, Record]]:
        there = await TOPICS.at(await site.readable(), topic)
        found: list[tuple[BrokerAdmin, Record]] = []
        for broker, entry in there.items():
            if key is not None:
                records = await broker.with_key(topic, key, most=most, begin=span[0], end=span[1])
                found += [(broker, record) for record in records if has_key(record, key)]
                continue
            for queue in await read_queues(broker, topic, entry):
                records = await stored_in(broker, topic, queue, span, most + 1)
                found += [(broker, record) for record in records]
        if not found:
            raise click.ClickException(
                f"no message of topic {topic} at {addresses(there)} is so; "
                f"`rmqha topic show {topic}` tells what its queues hold"
            )
        return sorted(found, key=lambda each: each[1].store_timestamp)

    found = ask(way, run)
    if len(found) > most:
        note(f"there are more than {most}: --most N shows them")
    if as_json:
        rows = [json_of(record) for _, record in found[:most]]
        click.echo(json.dumps({"messages": rows}, ensure_ascii=False))
    else:
        show({"messages": [_row(*each) for each in found[:most]]}, as_json=False)


def has_key(record: Record, key: str) -> bool:
    """Whether a key is among a message's, or is its id."""
    keys = record.properties.get(KEYS, "").split(" ")
    return key in keys or record.properties.get(UNIQUE_KEY) == key


async def read_queues(broker: BrokerAdmin, topic: str, entry: TopicConfig) -> range:
    """The queues of a topic that are read.  What lies in others, since the topic has shrunk or more
    of them are written to, is counted and said: nobody can read it.
    """
    count, unread, last = entry.read_queue_nums, 0, 0
    for queue in range(count, max(entry.write_queue_nums, count + SHRUNK)):
        if end := await broker.end(topic, queue):
            unread, last = unread + end - await broker.first(topic, queue), queue
    if unread:
        note(
            f"{unread} messages of topic {topic} at {broker.address} are in queues that are not "
            f"read: rmqha topic change {topic} --read {last + 1}"
        )
    return range(count)


async def stored_in(
    broker: BrokerAdmin, topic: str, queue: int, span: tuple[int, int], most: int
) -> list[Record]:
    """The messages of a queue that were stored in a span of time, in the queue's order."""
    begin, end = span
    at = max(await broker.at_time(topic, queue, begin), await broker.first(topic, queue))
    stop = await broker.end(topic, queue)
    found: list[Record] = []
    while at < stop and len(found) < most:
        pulled = await broker.pull(topic, queue, at)
        found += [each for each in pulled.records if begin <= each.store_timestamp <= end]
        if pulled.next <= at or any(each.store_timestamp > end for each in pulled.records):
            break
        at = pulled.next
    return found[:most]


# --- as they come -------------------------------------------------------------------------


@define(eq=False)
class MessageTail:
    """Prints messages, and knows when it is enough.

    @ivar left: So many more are wanted; C{None} for no end.
    """

    as_json: bool
    left: int | None

    def show(self, record: Record) -> None:
        """Print one, if it is wanted."""
        if self.left == 0:
            return
        if self.as_json:
            click.echo(json.dumps(json_of(record), ensure_ascii=False))
        else:
            click.echo(f"{as_text(record)} {body_text(record)}")
        if self.left is not None:
            self.left -= 1

    async def follow(self, ends: Mapping[tuple[BrokerAdmin, int], int], topic: str) -> None:
        """Print what comes into queues, from these offsets on."""
        ended: Deferred[None] = Deferred()

        def end(outcome: Any) -> None:
            if not ended.called:
                ended.callback(outcome)

        readers = [
            ensureDeferred(self._read(broker, topic, queue, at)).addBoth(end)
            for (broker, queue), at in ends.items()
        ]
        try:
            await ended
        finally:
            for reader in readers:
                reader.cancel()

    async def _read(self, broker: BrokerAdmin, topic: str, queue: int, at: int) -> None:
        while self.left != 0:
            pulled = await broker.pull(topic, queue, at, wait=True)
            for record in pulled.records:
                self.show(record)
            at = pulled.next


@click.command()
@click.argument("topic")
@click.option(
    "--last", type=Whole(0), default=10, show_default=True, metavar="N", help="Begin with so many."
)
@click.option("--follow", "-f", is_flag=True, help="Go on with those that come, until Ctrl-C.")
@click.option("--count", type=Whole(1), metavar="N", help="End after so many.")
@asks_brokers
def tail(way: Way, topic: str, last: int, follow: bool, count: int | None, as_json: bool) -> None:
    """Print the last messages of TOPIC, a line each, and with --follow those that come.

    Nothing is committed: it reads as a tool, and no consumer misses a message.
    """

    async def run(site: BrokerSite) -> None:
        shown = MessageTail(as_json, count)
        there = await TOPICS.at(await site.readable(), topic)
        ends: dict[tuple[BrokerAdmin, int], int] = {}
        records: list[Record] = []
        for broker, entry in there.items():
            for queue in await read_queues(broker, topic, entry):
                end = ends[broker, queue] = await broker.end(topic, queue)
                at = max(await broker.first(topic, queue), end - last)
                while at < end:
                    pulled = await broker.pull(topic, queue, at)
                    records += [each for each in pulled.records if each.queue_offset < end]
                    at = max(pulled.next, at + 1)
        records.sort(key=lambda each: each.store_timestamp)
        for record in records[max(0, len(records) - last) :]:
            shown.show(record)
        if follow and shown.left != 0:
            await shown.follow(ends, topic)

    ask(way, run)


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
    return ENDPOINT.show((str(ip_address(raw[:-12])), port)), int.from_bytes(raw[-8:], "big")


def _fields(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "queue offset": record.queue_offset,
        "physical offset": f"{record.offset}, {record.size} bytes",
        "born": f"{shown_time(record.born_timestamp)} at {record.born_host[0]}",
        "stored": f"{shown_time(record.store_timestamp)} at {ENDPOINT.show(record.store_host)}",
        "came again": record.reconsume_times,
        "offset id": record.offset_msg_id,
        **record.properties,
        "body": f"{len(record.body)} bytes{'' if record.body_holds else ', WRONG CHECKSUM'}",
    }


message.add_command(find)
message.add_command(tail)
