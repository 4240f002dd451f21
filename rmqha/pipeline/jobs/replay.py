"""Send messages of a log to a broker again.

Bodies go through Spark once, to where all messages of a queue are in one task and in order; each
task is a producer.  A task that is done again sends again: at least once.
Source: docs/guide/replay.rst, Replaying a log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from attrs import asdict, evolve, frozen
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rmqha.pipeline.errors import OptionInvalid, OptionMissing
from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.spark_work import Stores, read_of
from rmqha.pipeline.log.fields import numbers, texts
from rmqha.pipeline.log.option_values import NAMES
from rmqha.pipeline.producing.errors import MessageNotSendable
from rmqha.pipeline.producing.messages import COMPRESSION, Outgoing, topic_fault
from rmqha.pipeline.producing.producer import Producer
from rmqha.pipeline.producing.routes import Routes, writable
from rmqha.pipeline.producing.settings import SendOptions
from rmqha.pipeline.remoting.name_servers import NameServerClient
from rmqha.pipeline.remoting.peers import Peers
from rmqha.pipeline.spark.batch import settle
from rmqha.pipeline.spark.types import spark_schema
from rmqha.wire.log.properties import parse
from rmqha.wire.names import CLUSTER, DELAY, DLQ_PREFIX, RETRY_PREFIX, TRANSACTION_PREPARED, WAIT

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

OUTCOMES = pa.schema([*texts("topic", "outcome"), *numbers("messages", "bytes")])
"""What a task gives: how many messages of a topic came to what, and the bytes of their bodies."""


def kept(properties: dict[str, str]) -> dict[str, str]:
    """The properties that a message is sent with again, C{UNIQ_KEY} among them."""
    return {
        name: value
        for name, value in properties.items()
        if name not in STRIPPED and not name.startswith(STRIPPED_PREFIXES)
    }


def resent(
    options: SendOptions, to_topic: str | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Send the rows of one task, in their order, and tell what became of them.  A row whose column
    C{skip} is not null is not sent, and that is its outcome.

    @param options: How; the rates are this task's.
    @param to_topic: The topic for all; C{None} for each its own.
    """
    told: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    with Producer(options, fold=True) as producer:
        for batch in batches:
            taken: list[tuple[str, Outgoing]] = []
            for row in batch.to_pylist():
                topic, reason = row["topic"], row["skip"]
                if reason is None:
                    message = _message(row, to_topic)
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


def _message(row: dict[str, Any], to_topic: str | None) -> Outgoing:
    return Outgoing(
        to_topic or row["topic"],
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


TASKS = 4
"""Producers at a time, if there are as many processors."""

SELECTING = (
    "topic",
    "subscribePattern",
    "tags",
    "queueIds",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "pointFile",
    "maxPartitionBytes",
)
"""Options of the data source that choose what is sent."""

DUPLICATE = "duplicate"
RETRY = "retry or dead-letter topic, not named in --topic"
"""Why messages are not sent."""

_UNIQUE_KEYS = "(?:^|\u0002)UNIQ_KEY\u0001([^\u0002]+)"


@frozen
class Outcome:
    """What became of messages.

    @ivar topic: Their topic in the log.
    @ivar outcome: C{sent}, or why not, or how else.
    @ivar bytes: Bytes of their bodies.
    """

    topic: str
    outcome: str
    messages: int
    bytes: int

    @property
    def sent(self) -> bool:
        """Whether they are stored at a broker, or would be."""
        return self.outcome == SENT or self.outcome.startswith(WEAK)


@frozen
class Replayed:
    """What a replay did, or would do.

    @ivar outcomes: By topic and outcome.
    @ivar queues: Of a dry run, how many queues each topic has where messages would go; 0 for one
        that there is not.
    @ivar seconds: Of a dry run, how long it would take at least; C{None} without a limit.
    """

    outcomes: tuple[Outcome, ...]
    queues: dict[str, int]
    seconds: float | None = None

    def count(self, *, sent: bool) -> tuple[int, int]:
        """Messages that were sent, or those that were not, and bytes of their bodies."""
        found = [each for each in self.outcomes if each.sent is sent]
        return sum(each.messages for each in found), sum(each.bytes for each in found)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object, for C{--json}."""
        sent, skipped = self.count(sent=True), self.count(sent=False)
        return {
            "sent": {"messages": sent[0], "bytes": sent[1]},
            "skipped": {"messages": skipped[0], "bytes": skipped[1]},
            "outcomes": [asdict(each) for each in self.outcomes],
            "queues": self.queues,
            "seconds": self.seconds,
        }


def replay(
    spark: SparkSession,
    stores: Stores,
    sending: SendOptions,
    *,
    to_topic: str | None = None,
    same_topic: bool = False,
    dedupe: bool = True,
    dry_run: bool = False,
    tasks: int = TASKS,
    shown: Shown = silent,
    **options: object,
) -> Replayed:
    """Send the messages of logs to brokers again, those of each queue in their order.

    @param sending: How; its rates are those of all tasks together.
    @param to_topic: The topic for all.
    @param same_topic: Whether each goes to the topic it was in.
    @param dedupe: Whether only the first of messages with the same C{UNIQ_KEY} is sent.
    @param dry_run: Whether nothing is sent.
    @param tasks: How many producers there are.
    @param options: L{SELECTING}; those that are C{None} are left out.
    @raise OptionMissing: If nothing says which topic messages go to.
    @raise OptionInvalid: If a topic is a broker's own, or an option is none of those.
    """
    named = _checked(to_topic, same_topic, options)
    frame = marked(_read(spark, stores, options), named, dedupe)
    if dry_run:
        return _told(frame, sending, to_topic, shown)
    share, tasks = shared(sending, tasks)
    # A store's queue is a broker's; several stores' may have the same number.
    queues = frame.repartition(tasks, "topic", "broker_name", "queue_id")
    ordered = queues.sortWithinPartitions("broker_name", "physical_offset")
    done = ordered.mapInArrow(partial(resent, share, to_topic), spark_schema(OUTCOMES))
    with shown(spark):
        return Replayed(_outcomes(done.toArrow()), {})


def shared(sending: SendOptions, tasks: int) -> tuple[SendOptions, int]:
    """Divide the rates among tasks.

    @return: What each is told, and how many there may be: all together never exceed the whole.
    """
    rows, size = sending.max_rows_per_second, sending.max_bytes_per_second
    most = min(tasks, rows or tasks, size or tasks)
    share = evolve(
        sending,
        max_rows_per_second=rows and rows // most,
        max_bytes_per_second=size and size // most,
    )
    return share, most


def _checked(to_topic: str | None, same_topic: bool, options: Mapping[str, object]) -> bool:
    """Refuse what must not be replayed.

    @return: Whether topics were chosen, by name or by pattern.
    """
    if (to_topic is None) is not same_topic:
        raise OptionMissing("to-topic", "give either it or same-topic, to say where messages go")
    if to_topic is not None and (fault := topic_fault(to_topic)):
        raise OptionInvalid("to-topic", to_topic, fault)
    require_selecting(options)
    given = options.get("topic")
    for topic in NAMES.parse(str(given)) if given is not None else ():
        if fault := topic_fault(topic):
            raise OptionInvalid("topic", topic, fault)
    return given is not None or options.get("subscribePattern") is not None


def require_selecting(options: Mapping[str, object]) -> None:
    """@raise OptionInvalid: If an option is none of L{SELECTING}."""
    for name, value in options.items():
        if name not in SELECTING:
            raise OptionInvalid(name, str(value), f"one of {', '.join(SELECTING)}")


def _read(spark: SparkSession, stores: Stores, options: Mapping[str, object]) -> DataFrame:
    return read_of(spark, stores, {"columns": ",".join((*READ, "raw_properties")), **options})


def marked(frame: DataFrame, named: bool, dedupe: bool) -> DataFrame:
    """Rows with a column C{skip}: why one is not sent; null if it is.

    @param named: Whether retries and dead letters are sent too.
    @param dedupe: Whether only the first of messages with the same C{UNIQ_KEY} is.
    """
    skip: Column = F.lit(None).cast("string")
    if not named:
        retried = F.col("topic").startswith(RETRY_PREFIX) | F.col("topic").startswith(DLQ_PREFIX)
        skip = F.when(retried, F.lit(RETRY))
    if not dedupe:
        return frame.withColumn("skip", skip)
    # Messages of a 5.x client's batch share their last UNIQ_KEY and differ in their first.
    keys = F.regexp_extract_all("raw_properties", F.lit(_UNIQUE_KEYS), F.lit(1))
    place = F.array(F.concat_ws(":", "broker_name", F.col("physical_offset").cast("string")))
    first = Window.partitionBy("topic", F.when(F.size(keys) > 0, keys).otherwise(place)).orderBy(
        "broker_name", "physical_offset"
    )
    again = F.when(F.row_number().over(first) > 1, F.lit(DUPLICATE))
    return frame.withColumn("skip", F.coalesce(skip, again))


def _told(frame: DataFrame, sending: SendOptions, to_topic: str | None, shown: Shown) -> Replayed:
    """The outcome of a dry run."""
    counted = frame.groupBy("topic", F.coalesce("skip", F.lit(SENT)).alias("outcome")).agg(
        F.count("*").alias("messages"), F.sum(F.length("body")).alias("bytes")
    )
    with shown(frame.sparkSession):
        found = _outcomes(counted.toArrow())
    told = Replayed(found, _queues(found, sending, to_topic))
    rows, size = told.count(sent=True)
    limits = [
        amount / rate
        for amount, rate in (
            (rows, sending.max_rows_per_second),
            (size, sending.max_bytes_per_second),
        )
        if rate
    ]
    return evolve(told, seconds=max(limits, default=None))


def _queues(
    outcomes: Iterable[Outcome], sending: SendOptions, to_topic: str | None
) -> dict[str, int]:
    topics = sorted({to_topic or each.topic for each in outcomes if each.sent})
    with Peers(sending.send_timeout, sending.credentials, sending.tls) as peers:
        routes = Routes(NameServerClient(sending.name_server, peers))
        found = {topic: routes.route(topic) for topic in topics}
    return {topic: 0 if route is None else len(writable(route)) for topic, route in found.items()}


def _outcomes(table: pa.Table) -> tuple[Outcome, ...]:
    whole = table.group_by(["topic", "outcome"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    rows = whole.sort_by([("topic", "ascending"), ("outcome", "ascending")]).to_pylist()
    return tuple(
        Outcome(row["topic"], row["outcome"], row["messages_sum"], row["bytes_sum"]) for row in rows
    )
