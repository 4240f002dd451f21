"""When a table of the master is believed.

A master that comes back with an empty disk, an old copy of its tables or half an answer must not
take a slave's tables with it: what is refused here leaves them as they were.  All of this is
plain functions over bytes and values; they may run in a thread.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from attrs import AttrsInstance, evolve, field, frozen

from rmqha.errors import BodyInvalid, RmqhaError
from rmqha.logfiles.published import DeletedTopic
from rmqha.store.tables.order_table import Told
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.offsets import (
    ORDERED_POPS,
    QUEUE_ENDS,
    ConsumerOffsets,
    DelayOffsets,
)
from rmqha.wire.remoting.bodies.pop_order import OrderedBatch
from rmqha.wire.remoting.bodies.request_modes import RequestModes
from rmqha.wire.remoting.bodies.tables import DELETED_MEMBER, GroupTable, TopicTable
from rmqha.wire.remoting.fastjson import JsonInvalid

TOPICS, GROUPS, OFFSETS, DELAYS = "topics", "groups", "consumer offsets", "delay offsets"
MODES = "request modes"

SHOWN = 3
"""Most names an explanation shows."""

MOST_LEVELS = 1024
"""Most delay levels that can be configured."""

B = TypeVar("B", bound=AttrsInstance)


class MetadataRefused(RmqhaError):
    """A table of the master is not believed; the one held here stays."""

    sentence = "the master's table of {table} is refused: {reason}"
    table: str
    reason: str


class AnotherBroker(MetadataRefused):
    """It is a table of another broker or cluster."""


@frozen(kw_only=True)
class Last:
    """What was adopted last of one table from one master.

    @ivar version: Its version; C{None} if nothing was.
    @ivar names: What was in it; C{None} if that is not known any more.
    """

    version: DataVersion | None = None
    names: frozenset[str] | None = None


@frozen(kw_only=True)
class TableChecks:
    """What a table is held against.

    @ivar last: What this master gave last.
    @ivar own: The names in our table that are not there from the start.
    """

    last: Last = field(factory=Last)
    own: frozenset[str] = frozenset()


def topics(body: bytes, held: TableChecks, broker: str, cluster: str) -> TopicTable:
    """The table of an answer to request 21.

    @param broker: Our broker's name: each broker has a topic of its name and one of its
        cluster's, so their absence tells another broker.
    @raise MetadataRefused: If it is not believed.
    """
    table = _read(TOPICS, TopicTable, "topicConfigTable", body)
    found = table.topic_config_table
    for name, config in found.items():
        if config.topic_name != name:
            raise MetadataRefused(TOPICS, f"the entry {name!r} holds topic {config.topic_name!r}")
        if min(config.read_queue_nums, config.write_queue_nums) < 0:
            raise MetadataRefused(TOPICS, f"topic {name!r} has a negative number of queues")
    if not found:
        raise MetadataRefused(TOPICS, "the table is empty; every broker has entries in it")
    strange = [name for name in (broker, cluster) if name not in found]
    if strange:
        raise AnotherBroker(
            TOPICS,
            f"the table is not one of brokerName={broker} in brokerClusterName={cluster}: "
            f"it has no topic {' and no topic '.join(strange)}, as every broker has",
        )
    _judge(TOPICS, found, table.data_version, held)
    return table


def take_deleted(table: TopicTable) -> dict[str, DeletedTopic]:
    """Take out of a table of topics those that were deleted; only masters of ours tell.

    @raise MetadataRefused: If they make no sense.
    """
    rows = table.extra.pop(DELETED_MEMBER, {})
    try:
        return {
            str(name): DeletedTopic(
                int(row["end"]), {int(at): int(end) for at, end in row["queues"].items()}
            )
            for name, row in rows.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MetadataRefused(TOPICS, f"{DELETED_MEMBER} makes no sense: {error!r}") from None


def groups(body: bytes, held: TableChecks) -> GroupTable:
    """The table of an answer to request 201.

    @raise MetadataRefused: If it is not believed.
    """
    table = _read(GROUPS, GroupTable, "subscriptionGroupTable", body)
    found = table.subscription_group_table
    for name, config in found.items():
        if config.group_name != name:
            raise MetadataRefused(GROUPS, f"the entry {name!r} holds group {config.group_name!r}")
    if not found:
        raise MetadataRefused(GROUPS, "the table is empty; every broker has entries in it")
    _judge(GROUPS, found, table.data_version, held)
    return table


def offsets(body: bytes, holds_some: bool) -> ConsumerOffsets:
    """The table of an answer to request 43, without what cannot be an offset: stock brokers keep
    whatever a client commits.

    Its version is no reason to refuse it: each offset is merged by itself.

    @param holds_some: Whether this master gave some before.
    @raise MetadataRefused: If it is not believed.
    """
    table = _read(OFFSETS, ConsumerOffsets, "offsetTable", body)
    if holds_some and not table.offset_table:
        raise MetadataRefused(OFFSETS, "the table is empty and was not before")
    sound: dict[str, dict[int, int]] = {}
    for key, queues in table.offset_table.items():
        if "@" not in key:
            continue
        if queues and (min(queues) < 0 or min(queues.values()) < 0):
            queues = {number: at for number, at in queues.items() if number >= 0 and at >= 0}
        sound[key] = queues
    return evolve(table, offset_table=sound)


def take_ends(table: ConsumerOffsets) -> list[tuple[str, int, int]]:
    """Take out of a table of offsets where queues go on that have no message left: topic, queue id
    and queue offset; only brokers of ours tell.

    @raise MetadataRefused: If that makes no sense.
    """
    found = table.extra.pop(QUEUE_ENDS, {})
    try:
        return [
            (str(topic), int(queue_id), int(end))
            for topic, queues in found.items()
            for queue_id, end in queues.items()
        ]
    except (AttributeError, TypeError, ValueError) as error:
        raise MetadataRefused(OFFSETS, f"{QUEUE_ENDS} makes no sense: {error!r}") from None


def take_orders(table: ConsumerOffsets) -> Told | None:
    """Take out of a table of offsets what is known of queues that are popped in order; C{None} if
    nothing is said of it: only brokers of ours tell.

    @raise MetadataRefused: If that makes no sense.
    """
    found = table.extra.pop(ORDERED_POPS, None)
    if found is None:
        return None
    try:
        return {
            str(key): {
                int(queue_id): None if row is None else json_body.from_json(OrderedBatch, row)
                for queue_id, row in rows.items()
            }
            for key, rows in found.items()
        }
    except (AttributeError, BodyInvalid, TypeError, ValueError) as error:
        raise MetadataRefused(OFFSETS, f"{ORDERED_POPS} makes no sense: {error}") from None


def delays(body: bytes, holds_some: bool) -> DelayOffsets:
    """The table of an answer to request 45.

    @param holds_some: Whether this master gave some before.
    @raise MetadataRefused: If it is not believed.
    """
    table = _read(DELAYS, DelayOffsets, "offsetTable", body)
    if holds_some and not table.offset_table:
        raise MetadataRefused(DELAYS, "the table is empty and was not before")
    for level, offset in table.offset_table.items():
        if not 0 < level <= MOST_LEVELS or offset < 0:
            raise MetadataRefused(DELAYS, f"delay level {level} has offset {offset}")
    return table


def modes(body: bytes, held: TableChecks) -> RequestModes:
    """The table of an answer to request 402.  A stock broker's has no version; it loses none of
    its rows.

    @raise MetadataRefused: If it is not believed.
    """
    table = _read(MODES, RequestModes, "messageRequestModeMap", body)
    found = table.message_request_mode_map
    for topic, groups_of in found.items():
        for group, mode in groups_of.items():
            if (mode.topic, mode.consumer_group) != (topic, group):
                raise MetadataRefused(
                    MODES,
                    f"the entry {topic!r}, {group!r} is of {mode.topic!r}, {mode.consumer_group!r}",
                )
    _judge(MODES, found, table.data_version, held)
    return table


def _read(what: str, cls: type[B], member: str, body: bytes) -> B:
    try:
        value = fastjson.loads(body)
        if not isinstance(value, dict) or not isinstance(value.get(member), dict):
            raise MetadataRefused(what, f"the answer has no {member}: {value!r:.64}")
        return json_body.from_json(cls, value, table=True)
    except (JsonInvalid, BodyInvalid) as error:
        raise MetadataRefused(
            what, f"the answer of {len(body)} bytes is not such a table: {error}"
        ) from None


def _judge(what: str, found: Collection[str], version: DataVersion, held: TableChecks) -> None:
    """Refuse what is older than what the same master gave before, and what lost more entries than
    its version counts changes.
    """
    last = held.last
    if last.version is not None and version.age < last.version.age:
        raise MetadataRefused(
            what, f"{_version(version)} is older than the adopted {_version(last.version)}"
        )
    changes = None if last.version is None else version.counter - last.version.counter
    if last.names is not None:
        lost = last.names.difference(found)
        many = changes is not None and len(lost) > changes
    else:
        # Without its names, only a table of which nothing is left is told from a right one.
        lost = held.own.difference(found)
        many = len(lost) == len(held.own) and (changes is None or len(lost) > changes)
    if lost and many:
        counted = "" if changes is None else f" in {changes} changes"
        raise MetadataRefused(what, f"{len(lost)} entries are gone{counted}: {names_of(lost)}")


def names_of(names: Collection[str]) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(sorted(names)[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _version(version: DataVersion) -> str:
    return f"version {version.counter} of {version.timestamp}"
