"""Records of a log as messages that are sent again.

Source: docs/guide/replay.rst, Replaying a log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from attrs import frozen

from rmqha.pipeline.producing.errors import MessageNotSendable
from rmqha.pipeline.producing.messages import COMPRESSION, Outgoing
from rmqha.pipeline.producing.producer import Producer
from rmqha.pipeline.producing.settings import SendOptions
from rmqha.pipeline.spark.batch import settle
from rmqha.wire.log.properties import parse
from rmqha.wire.names import CLUSTER, DELAY, TRANSACTION_PREPARED, WAIT

STRIPPED = frozenset({DELAY, WAIT, TRANSACTION_PREPARED, CLUSTER})
"""Properties of the first sending: whether to wait, for what, and whose cluster it was."""

STRIPPED_PREFIXES = ("REAL_", "TIMER_")
"""Beginnings of those that say where and when a message was to go in the end."""

SENT = "sent"
"""The outcome of a message that a broker stored."""

WEAK = "sent, answered with code "
"""The same, where its flush or its replicas were late."""

READ = ("topic", "broker_name", "queue_id", "physical_offset", "flag", "sys_flag", "body")
"""Columns that a message is made of, besides C{raw_properties}."""

OUTCOMES = pa.schema(
    [
        ("topic", pa.string()),
        ("outcome", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""What a task gives: how many messages of a topic came to what, and the bytes of their bodies."""


def kept(properties: dict[str, str]) -> dict[str, str]:
    """The properties that a message is sent with again, C{UNIQ_KEY} among them."""
    return {
        name: value
        for name, value in properties.items()
        if name not in STRIPPED and not name.startswith(STRIPPED_PREFIXES)
    }


@frozen
class Resend:
    """Sends the rows of one task, in their order.

    @ivar options: How; the rates are this task's.
    @ivar to_topic: The topic for all; C{None} for each its own.
    """

    options: SendOptions
    to_topic: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send, and tell what became of the rows.

        A row whose column C{skip} is not null is not sent, and that is its outcome.
        """
        told: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        with Producer(self.options, fold=True) as producer:
            for batch in batches:
                taken: list[tuple[str, Outgoing]] = []
                for row in batch.to_pylist():
                    topic, reason = row["topic"], row["skip"]
                    if reason is None:
                        message = self.message(row)
                        reason = _unsendable(message)
                    if reason is None:
                        taken.append((topic, message))
                    else:
                        told[topic, reason].update(messages=1, bytes=len(row["body"]))
                codes = producer.send(message for _, message in taken)
                for (topic, message), code in zip(taken, codes, strict=True):
                    outcome = f"{WEAK}{code}" if code else SENT
                    told[topic, outcome].update(messages=1, bytes=len(message.body))
        settle()
        yield pa.RecordBatch.from_pylist(
            [
                {"topic": topic, "outcome": outcome, **counts}
                for (topic, outcome), counts in told.items()
            ],
            OUTCOMES,
        )

    def message(self, row: dict[str, Any]) -> Outgoing:
        """A record as a message."""
        return Outgoing(
            self.to_topic or row["topic"],
            row["body"],
            kept(parse(row["raw_properties"].encode())),
            row["queue_id"],
            # Queues of several topics may become one; each keeps its own order.
            row["broker_name"] or "",
            row["flag"],
            row["sys_flag"] & COMPRESSION,
        )


def _unsendable(message: Outgoing) -> str | None:
    try:
        message.check()
    except MessageNotSendable as error:
        return error.reason
    return None
