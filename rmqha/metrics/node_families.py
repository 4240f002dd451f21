"""What no other broker tells: how writes, flushes and the reactor go, and how well a node is.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqha.broker.meters.latency import TimedPuts
from rmqha.durations import BOUNDS, Durations
from rmqha.health import HealthProbe, HealthReason, failing
from rmqha.metrics.family import Buckets, Family, MetricType, Sample


def _histogram(name: str, text: str) -> Family:
    return Family(f"rmqha_{name}_seconds", MetricType.HISTOGRAM, "seconds", text)


HEALTHY = Family(
    "rmqha_healthy", MetricType.GAUGE, "1", "1 while /healthz says so, 0 while anything is wrong."
)
HEALTH_REASON = Family(
    "rmqha_health_reason", MetricType.GAUGE, "1", "1 for each thing that is wrong.", ("reason",)
)
REACTOR_DELAY = _histogram(
    "reactor_delay", "How late the reactor did what had its time, looked at four times a second."
)
WRITES = Family(
    "rmqha_writes_total",
    MetricType.COUNTER,
    "messages",
    "Stored writes by what their senders were told.",
    ("status",),
)
FAILED_WRITES = Family(
    "rmqha_failed_writes_total",
    MetricType.COUNTER,
    "messages",
    "Writes that were not stored, or of which it is not known.",
)
PUT_LATENCY = _histogram("put_latency", "From a write to its answer.")
ACK_WAIT = _histogram("ack_wait", "How long SYNC writes waited for replicas, of those that had to.")
FSYNC = _histogram("fsync", "How long passes of fsync on the log took.")
READ_LATENCY = _histogram("read_latency", "How long pulls looked for messages.")

FAMILIES = (
    *(HEALTHY, HEALTH_REASON, REACTOR_DELAY),
    *(WRITES, FAILED_WRITES, PUT_LATENCY, ACK_WAIT, FSYNC, READ_LATENCY),
)
"""All of them, in the order of the guide's page."""


def of_health(reasons: Iterable[HealthReason]) -> Iterator[Sample]:
    """Whether a node is well, and why not."""
    wrong = failing(reasons, HealthProbe.HEALTH)
    yield HEALTHY, (), not wrong
    for name in sorted({reason.name for reason in wrong}):
        yield HEALTH_REASON, (name,), 1


def of_durations(family: Family, took: Durations) -> Sample:
    """A histogram in seconds."""
    return family, (), Buckets.of(took, BOUNDS)


def of_writes(puts: TimedPuts) -> Iterator[Sample]:
    """What became of a master's writes."""
    for status, count in puts.times.results().items():
        yield WRITES, (status.value,), count
    yield FAILED_WRITES, (), puts.failed
    yield of_durations(PUT_LATENCY, puts.times.all())
