"""What a broker makes of messages before they are stored: properties, and where they wait.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

import re
from typing import Any, Self

from attrs import frozen

from rmqha.broker.tables.topics import is_forbidden
from rmqha.config.settings import Settings
from rmqha.errors import RequestRefused
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.properties import NAME_END, PAIR_END
from rmqha.wire.log.record import Host, Message, Record
from rmqha.wire.log.sys_flag import TRANSACTION
from rmqha.wire.names import (
    DELAY,
    HALF_TOPIC,
    REAL_QUEUE,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_PROPERTIES,
)
from rmqha.wire.remoting.codes import ResponseCode

_QUEUE_ID = re.compile("[0-9]{1,9}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_END, _PAIR_END = NAME_END.decode(), PAIR_END.decode()


def read_properties(text: str) -> dict[str, str]:
    """Read a request's property string: the last of equal names wins, what is empty is lost.

    @raise RequestRefused: If a name has control characters: then a value was written with the
        separators in it, and what follows may be forged.
    """
    found = {}
    for pair in text.split(_PAIR_END):
        name, _, value = pair.partition(_NAME_END)
        if value and name:
            if not name.isprintable() and _CONTROL.search(name):
                raise RequestRefused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the message is illegal: control characters in property {name[:64]!r}",
                )
            found[name] = value
    return found


@frozen
class Messages:
    """Makes what is stored out of what was sent, or was stored before.

    @ivar host: What every record says about where it is stored: C{brokerIP1} and C{listenPort}.
    @ivar cluster: C{brokerClusterName}, a property of every message.
    @ivar levels: C{messageDelayLevel}.
    """

    host: Host
    cluster: str
    levels: DelayLevels

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Make those of a broker with these settings."""
        broker = settings.broker
        levels = DelayLevels.parse(settings.store.delay_levels)
        return cls((broker.ip1, broker.listen_port), broker.cluster, levels)

    def place(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Where a message is stored: in its queue, or if it has a C{DELAY} with all of that level.

        @param properties: Are told the real place then, and lose any other time of delivery.
        @return: Topic and queue id.
        """
        asked = properties.get(DELAY)
        level = 0 if asked is None else self.levels.level(asked.encode())
        if not level:
            return topic, queue_id
        properties[DELAY] = str(level)
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        return SCHEDULE_TOPIC, self._moved(topic, queue_id, properties, level - 1)

    def half(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Where a message waits for the end of its transaction.

        @param properties: Are told the real place.
        @return: Topic and queue id.
        """
        return HALF_TOPIC, self._moved(topic, queue_id, properties, 0)

    def due(self, record: Record) -> Message | None:
        """What a delayed message becomes in the end: itself, in the queue it was sent to.  Its
        properties still tell of the delay, as in RocketMQ.

        @return: C{None} if it does not say where that is, names a topic that takes no messages, or
            is damaged: stored anew, a damaged body would get a checksum that is right.
        """
        if not record.body_holds:
            return None
        topic = record.properties.get(REAL_TOPIC, "")
        queue_id = record.properties.get(REAL_QUEUE, "")
        if not topic or is_forbidden(topic) or not _QUEUE_ID.fullmatch(queue_id):
            return None
        return self.from_record(
            record,
            topic=topic,
            queue_id=int(queue_id),
            properties=record.raw_properties,
            sys_flag=record.sys_flag,
        )

    @staticmethod
    def _moved(topic: str, queue_id: int, properties: dict[str, str], to: int) -> int:
        properties[REAL_TOPIC] = topic
        properties[REAL_QUEUE] = str(queue_id)
        return to

    def from_record(
        self, record: Record, *, topic: str, queue_id: int, properties: bytes, **changes: Any
    ) -> Message:
        """A message like one that is stored, at another place.

        @param properties: The new one's; L{encode <rmqha.wire.log.properties.encode>} writes them.
        @param changes: Other fields of L{Message}; the rest is the record's.
        """
        fields: dict[str, Any] = {
            "body": record.body,
            "flag": record.flag,
            "sys_flag": record.sys_flag & ~TRANSACTION,
            "born_timestamp": record.born_timestamp,
            "born_host": record.born_host,
            "store_host": record.store_host,
            "reconsume_times": record.reconsume_times,
        }
        return Message(topic=topic, queue_id=queue_id, properties=properties, **(fields | changes))
