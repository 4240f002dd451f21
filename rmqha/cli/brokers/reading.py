"""C{rmqha message find} and C{tail}: messages of a topic by key, by time, and as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from attrs import define
from twisted.internet.defer import Deferred, ensureDeferred

from rmqha.cli.brokers.asking import BrokerSite, Way, addresses, ask, asks_brokers
from rmqha.cli.brokers.shown import moment, show
from rmqha.cli.brokers.topic import TOPICS
from rmqha.cli.common import Whole, note
from rmqha.cli.record_lines import as_json as record_json
from rmqha.cli.record_lines import as_text, plain, shown_time
from rmqha.nodes.broker_admin import LARGEST_TIME, BrokerAdmin
from rmqha.wire.log.inflate import inflate
from rmqha.wire.log.record import Record
from rmqha.wire.log.sys_flag import COMPRESSED
from rmqha.wire.names import KEYS, TAGS, UNIQUE_KEY
from rmqha.wire.remoting.bodies.tables import TopicConfig

MOST = 64
"""Messages that are found where nothing is said, as with mqadmin."""

SHRUNK = 16
"""Queues behind those of a topic that are looked at: it may have had them."""

LARGEST_BODY = 64 << 20
"""Bytes that a compressed body may become."""

SHOWN = 60
"""Characters of a body in a table."""


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
