"""What a broker tells of topics, groups and requests, by the names that brokers of RocketMQ 5.x
have for it.

All of it is counted anyhow, for administrators; only how far groups are is looked up here.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from itertools import accumulate

from rmqha.broker.broker import Broker
from rmqha.broker.meters.latency import ALONE, PutTimes
from rmqha.broker.sending.put_status import STORED
from rmqha.broker.sending.transactions import COMMITTED
from rmqha.durations import CREATE_BOUNDS, FINISH_BOUNDS, RPC_BOUNDS, Durations
from rmqha.ha.master.transfer import PutStatus
from rmqha.metrics.family import Buckets, Family, MetricType, Sample
from rmqha.net.remoting.calls import Calls, Kind, name_of
from rmqha.wire.columnar.queue_units import SIZES
from rmqha.wire.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rmqha.wire.remoting.codes import RequestCode, ResponseCode

MILLIS = 1000.0
"""How many of RocketMQ's units of time a second has."""

_TOPIC = "topic", "message_type", "is_system"
_GROUP = "topic", "consumer_group", "is_retry", "is_system"
_DISK = "storage_type", "storage_medium"
_LOCAL = "local", "disk"


def _gauge(name: str, unit: str, text: str, *labels: str) -> Family:
    return Family(f"rocketmq_{name}", MetricType.GAUGE, unit, text, labels)


def _counter(name: str, unit: str, text: str, *labels: str) -> Family:
    return Family(f"rocketmq_{name}_total", MetricType.COUNTER, unit, text, labels)


def _histogram(name: str, unit: str, text: str, *labels: str) -> Family:
    return Family(f"rocketmq_{name}", MetricType.HISTOGRAM, unit, text, labels)


MESSAGES_IN = _counter("messages_in", "messages", "Stored in a topic, by a master.", *_TOPIC)
THROUGHPUT_IN = _counter("throughput_in", "bytes", "The bytes of those in the log.", *_TOPIC)
MESSAGES_OUT = _counter("messages_out", "messages", "Sent to a group.", *_GROUP)
THROUGHPUT_OUT = _counter("throughput_out", "bytes", "The bytes of those.", *_GROUP)
MESSAGE_SIZE = _histogram("message_size", "bytes", "Bytes that stored messages have in the log.")
LAG = _gauge("consumer_lag_messages", "messages", "Stored, and not consumed by a group.", *_GROUP)
LATENCY = _gauge(
    "consumer_lag_latency",
    "milliseconds",
    "How long the oldest of those has been stored; 0 without any.",
    *_GROUP,
)
INFLIGHT = _gauge(
    "consumer_inflight_messages", "messages", "Pulled by a group and not consumed.", *_GROUP
)
READY = _gauge("consumer_ready_messages", "messages", "Not yet pulled by a group.", *_GROUP)
DEAD = _counter("send_to_dlq_messages", "messages", "Became dead letters.", "consumer_group")
HALF = _gauge("half_messages", "messages", "Half messages that are open.")
COMMITTED_MESSAGES = _counter("commit_messages", "messages", "Committed.", "topic")
ROLLED_BACK = _counter("rollback_messages", "messages", "Rolled back.", "topic")
FINISHED = _histogram(
    "finish_message_latency", "seconds", "From the birth of a half message to its commit.", "topic"
)
PRODUCERS = _gauge(
    "producer_connections", "connections", "Producers by what they are.", "language", "version"
)
CONSUMERS = _gauge(
    "consumer_connections",
    "connections",
    "Consumers by what they are.",
    *("consumer_group", "language", "version", "consume_mode", "is_system"),
)
PERMISSION = _gauge("broker_permission", "bits", "brokerPermission: 4 read, 2 write.")
TOPICS = _gauge("topic_number", "topics", "Topics there are, RocketMQ's own included.")
GROUPS = _gauge("consumer_group_number", "groups", "Subscription groups there are.")
STORAGE = _gauge("storage_size", "bytes", "What is used of the log's disk.", *_DISK)
FLUSH_BEHIND = _gauge("storage_flush_behind_bytes", "bytes", "Not yet on the disk.", *_DISK)
DISPATCH_BEHIND = _gauge(
    "storage_dispatch_behind_bytes", "bytes", "Not yet in consume queues and index.", *_DISK
)
RESERVE = _gauge(
    "storage_message_reserve_time", "milliseconds", "Age of the oldest message.", *_DISK
)
RPC = _histogram(
    "rpc_latency",
    "milliseconds",
    "From a request's arrival to its answer.",
    *("protocol_type", "request_code", "response_code", "is_long_polling"),
)
TOPIC_CREATION = _histogram(
    "topic_create_execution_time",
    "milliseconds",
    "How long it took to create or to change a topic.",
    "invocation_status",
)
GROUP_CREATION = _histogram(
    "consumer_group_create_execution_time",
    "milliseconds",
    "How long it took to create or to change a group.",
    "invocation_status",
)

FAMILIES = (
    *(MESSAGES_IN, THROUGHPUT_IN, MESSAGES_OUT, THROUGHPUT_OUT, MESSAGE_SIZE),
    *(LAG, LATENCY, INFLIGHT, READY, DEAD, HALF, COMMITTED_MESSAGES, ROLLED_BACK),
    FINISHED,
    *(PRODUCERS, CONSUMERS, PERMISSION, TOPICS, GROUPS),
    *(STORAGE, FLUSH_BEHIND, DISPATCH_BEHIND, RESERVE, RPC),
    *(TOPIC_CREATION, GROUP_CREATION),
)
"""All of them, in the order of the guide's page."""

IN = {"TOPIC_PUT_NUMS": MESSAGES_IN, "TOPIC_PUT_SIZE": THROUGHPUT_IN}
OUT = {"GROUP_GET_NUMS": MESSAGES_OUT, "GROUP_GET_SIZE": THROUGHPUT_OUT}
"""Which statistic of the broker is which metric."""

CREATIONS: dict[int, Family] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: TOPIC_CREATION,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: GROUP_CREATION,
}
"""Which requests create what; those for whole lists are not among them, nor are they there."""


def of_broker(broker: Broker) -> Iterator[Sample | None]:
    """All samples of a broker; C{None} where there is none yet, and a turn may end."""
    yield from _counted(broker)
    yield from _behind(broker)
    yield from _written(broker)
    yield from _clients(broker)
    yield from _storage(broker)
    yield from _creations(broker.registry.calls)
    yield from of_calls(broker.registry.calls, broker.counts.puts_took)


def _text(yes: bool) -> str:
    return "true" if yes else "false"


def _topic_labels(broker: Broker, topic: str) -> tuple[str, ...]:
    config = broker.topics.get(topic)
    attributes = None if config is None else config.attributes
    kind = (attributes or {}).get("message.type", "normal").lower()
    return topic, kind, _text(broker.topics.is_system(topic))


def _group_labels(broker: Broker, topic: str, group: str) -> tuple[str, ...]:
    system = broker.topics.is_system(topic) or group.startswith(SYSTEM_GROUP_PREFIX)
    return topic, group, _text(topic.startswith((RETRY_PREFIX, DLQ_PREFIX))), _text(system)


def _counted(broker: Broker) -> Iterator[Sample]:
    """Messages in, of a master alone: what a slave copies is counted where it was sent.  Messages
    out.
    """
    counts = broker.counts
    for name, family in OUT.items():
        for key, meter in counts.each(name):
            topic, _, group = key.partition("@")
            yield family, _group_labels(broker, topic, group), meter.total
    if broker.writer is None:
        return
    labels = cache(partial(_topic_labels, broker))
    for name, family in IN.items():
        for topic, meter in counts.each(name):
            yield family, labels(topic), meter.total
    yield MESSAGE_SIZE, (), Buckets(SIZES, [*accumulate(counts.came.steps)], counts.came.size)


def _behind(broker: Broker) -> Iterator[Sample | None]:
    now = broker.store.now_ms()
    for found in broker.lags.each(broker.consumers.broadcasts):
        if found is None:
            yield None
            continue
        topic, group, lag = found
        labels = _group_labels(broker, topic, group)
        yield LAG, labels, lag.messages
        yield INFLIGHT, labels, lag.inflight
        yield READY, labels, lag.messages - lag.inflight
        if lag.since is not None:
            yield LATENCY, labels, max(0, now - lag.since)
        elif not lag.messages:
            yield LATENCY, labels, 0


def _written(broker: Broker) -> Iterator[Sample]:
    """What a master's retries and transactions came to."""
    if broker.writer is None:
        return
    for group, count in broker.retries.dead.items():
        yield DEAD, (group,), count
    yield HALF, (), broker.transactions.halves.count()
    for (word, topic), count in broker.transactions.ended.items():
        yield COMMITTED_MESSAGES if word == COMMITTED else ROLLED_BACK, (topic,), count
    for topic, took in broker.transactions.finished.items():
        yield FINISHED, (topic,), Buckets.of(took, FINISH_BOUNDS)


def _clients(broker: Broker) -> Iterator[Sample]:
    producing = Counter(
        (member.language.name.lower(), str(member.version))
        for group in broker.producers
        for member in group.members.values()
    )
    for kind, count in producing.items():
        yield PRODUCERS, kind, count
    consuming = Counter(
        (
            group.name,
            member.language.name.lower(),
            str(member.version),
            group.consume_type.name.lower(),
            _text(group.name.startswith(SYSTEM_GROUP_PREFIX)),
        )
        for group in broker.consumers
        for member in group.members.values()
    )
    for labels, count in consuming.items():
        yield CONSUMERS, labels, count
    yield PERMISSION, (), broker.current.settings.broker.permission
    yield TOPICS, (), len(broker.topics.names())
    yield GROUPS, (), len(broker.groups.names())


def _storage(broker: Broker) -> Iterator[Sample]:
    store, log = broker.store, broker.store.log
    try:
        yield STORAGE, _LOCAL, shutil.disk_usage(store.settings.commitlog).used
    except OSError:
        pass  # a disk that does not answer has alarms of its own
    yield FLUSH_BEHIND, _LOCAL, log.end - log.flushed
    yield DISPATCH_BEHIND, _LOCAL, store.dispatcher.behind
    oldest = broker.lookup.stored_at(log.min_offset)
    if oldest is not None:
        yield RESERVE, _LOCAL, max(0, store.now_ms() - oldest)


def _creations(calls: Calls) -> Iterator[Sample]:
    found: dict[tuple[Family, str], list[Durations]] = {}
    for (code, answer, _), took in calls.took.items():
        family = CREATIONS.get(code)
        if family is not None:
            status = "success" if answer == ResponseCode.SUCCESS else "failure"
            found.setdefault((family, status), []).append(took)
    for (family, status), each in found.items():
        yield family, (status,), Buckets.of(Durations.merged(each), CREATE_BOUNDS, MILLIS)


def of_calls(calls: Calls, puts: PutTimes | None = None) -> Iterator[Sample]:
    """How long requests took.

    @param puts: Those that came in runs, which are not among the calls.
    """
    found: dict[Kind, list[Durations]] = {kind: [took] for kind, took in calls.took.items()}
    for (code, status), took in () if puts is None else puts.took.items():
        if code != ALONE:
            found.setdefault((code, _told(status), False), []).append(took)
    for (code, answer, held), each in found.items():
        labels = "remoting", name_of(code).lower(), _answer(answer), _text(held)
        yield RPC, labels, Buckets.of(Durations.merged(each), RPC_BOUNDS, MILLIS)


def _told(status: PutStatus | None) -> int:
    if status is PutStatus.PUT_OK:
        return ResponseCode.SUCCESS
    found = None if status is None else STORED.get(status)
    return ResponseCode.SERVICE_NOT_AVAILABLE if found is None else found


def _answer(code: int) -> str:
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
