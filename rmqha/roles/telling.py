"""What a node tells of itself: its health, its status, its metrics, and what happened to it.

How it comes to all that is in L{rmqha.roles.node}.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from rmqha.admin.events import Facts
from rmqha.config.settings import Settings
from rmqha.ha.states import NodeState
from rmqha.health import HealthProbe, HealthReason
from rmqha.metrics import node_families
from rmqha.metrics.broker_families import of_broker
from rmqha.metrics.family import Sample
from rmqha.page.told import GroupRow
from rmqha.periodic import Job
from rmqha.roles.node import Node
from rmqha.store.published import readers

UNHEALTHY = frozenset(NodeState) - {NodeState.SERVING}
"""States in which C{/healthz} says 503."""

CLOSED = frozenset({NodeState.RECOVERING, NodeState.STOPPED, NodeState.FAILED})
"""States in which C{/readyz} says so too, whatever the role; a master has others."""

LOOK_PATIENCE = 1.0
"""Seconds that a status waits for a disk."""


class TellingNode(Node):
    """A node that is asked how it is.

    @ivar unready: States in which this role does not do what it promises its clients.
    """

    unready = CLOSED

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        super().__init__(settings, reactor, repair=repair)
        self._readers: list[dict[str, Any]] = []
        self._looking = False

    def health(self) -> Iterator[HealthReason]:
        """What is wrong now: the node's own state, and what the store and the broker give."""
        if self.state in UNHEALTHY:
            ready = HealthProbe.READY if self.state in self.unready else HealthProbe(0)
            yield HealthReason(
                self.state.value, self.reason, fails=HealthProbe.HEALTH | ready, told=True
            )
        if self.store_service.opened is not None:
            yield from self.store_service.opened.health()
        if self.broker is not None:
            yield from self.broker.health()
        lost = self.lost_tail()
        if lost is not None:
            yield HealthReason("lost-tail", lost.text)
        if self.accounts is not None:
            yield from self.accounts.health()
        yield from super().health()

    def jobs(self) -> Iterator[Job]:
        """What the store, the client ports and the broker do again and again."""
        yield from super().jobs()
        if self.store_service.opened is not None:
            yield from self.store_service.opened.jobs()
        yield from self.clients.jobs()
        if self.accounts is not None:
            yield from self.accounts.jobs()
        if self.broker is not None:
            yield from self.broker.jobs()

    def facts(self) -> Facts:
        """A process's, the state, and what the log has lost and got."""
        found = {"state": (self.state.value, self.reason), **super().facts()}
        fenced, store = self.epochs.journal.fenced_by, self.store_service.opened
        found["master epoch"] = str(self.epochs.number), ""
        found["fenced"] = "no" if fenced is None else "yes", str(fenced or "")
        if store is not None:
            retention = store.retention
            found["cuts of published bytes"] = str(len(store.publisher.point.cuts)), ""
            found["damaged ranges"] = str(store.scrubber.status()["faultCount"]), ""
            found["bytes deleted that a replica needed"] = str(retention.lost_bytes), ""
        return found

    def metric_labels(self) -> dict[str, str]:
        """A broker's, by the names that RocketMQ has for them."""
        broker = self.settings.broker
        return {
            "cluster": broker.cluster,
            "node_type": "broker",
            "node_id": broker.name,
            "broker_id": str(broker.id),
        }

    def samples(self) -> Iterator[Sample | None]:
        """A process's, and those of the store and the broker."""
        yield from super().samples()
        store, broker = self.store_service.opened, self.broker
        if store is not None:
            yield node_families.of_durations(node_families.FSYNC, store.flusher.took)
        if broker is None:
            return
        yield node_families.of_durations(node_families.READ_LATENCY, broker.counts.reads_took)
        if broker.writer is not None:
            yield from node_families.of_writes(broker.writer)
        yield from of_broker(broker)

    def groups_behind(self) -> Iterator[GroupRow | None]:
        """The consumer groups that have something to consume."""
        broker = self.broker
        if broker is None:
            return
        now = broker.store.now_ms()
        for found in broker.lags.each(broker.consumers.broadcasts):
            if found is None or not found[2].messages:
                yield None
                continue
            topic, group, lag = found
            seconds = None if lag.since is None else max(0, now - lag.since) / 1000
            yield GroupRow(group=group, topic=topic, messages=lag.messages, seconds=seconds)

    def status(self) -> dict[str, Any]:
        """What C{/status} says; docs/status.rst, Status, lists the fields."""
        store = self.store_service.opened
        log = None if store is None else store.log
        lost = self.lost_tail()
        return {
            **self.identity(),
            "state": self.state.value,
            "reason": self.reason,
            "minOffset": log.min_offset if log is not None else None,
            "maxOffset": log.end if log is not None else None,
            "confirmedOffset": log.confirmed if log is not None else None,
            "flushedOffset": log.flushed if log is not None else None,
            "dispatchedOffset": store.dispatcher.position if store is not None else None,
            "syncGuarantee": self.guarantee(),
            **self.epochs.status(),
            "clusterName": self.settings.broker.cluster,
            "brokerName": self.settings.broker.name,
            "brokerId": self.settings.broker.id,
            "store": str(self.settings.store.root),
            "recovery": self._recovery(),
            "lostTail": None if lost is None else {"from": lost.start, "to": lost.to},
            "truncatedBytes": self.truncated,
            "retention": store.retention.status() if store is not None else None,
            **self._writes(),
            "servedFaults": self.broker.served.faults if self.broker is not None else None,
            "derivedFaults": store.dispatcher.fault_count if store is not None else None,
            "published": store.publisher.status() if store is not None else None,
            "faultsFromMaster": store.faults_from_master() if store is not None else None,
            "scrub": store.scrubber.status() if store is not None else None,
            "readers": self._readers,
            "remoting": self._remoting(),
            **super().status(),
        }

    def looked(self) -> Deferred[None]:
        """Look at what L{status} tells and only a thread may read: the readers of the files.

        @return: Fires when that is done, or takes too long: then what was seen last is told.
        """
        store = self.store_service.opened
        if store is None or self._looking:
            return succeed(None)
        settings, confirm = self.settings.store, store.publisher.point.confirm
        place = settings.root, settings.commitlog, settings.file_size
        self._looking = True
        done: Deferred[None] = Deferred()
        late = self.reactor.callLater(LOOK_PATIENCE, done.callback, None)

        def over(result: object) -> None:
            self._looking = False
            if isinstance(result, Failure):
                self._log.failure("Cannot read the positions of readers", result)
            elif isinstance(result, list):
                self._readers = result
            if late.active():
                late.cancel()
                done.callback(None)

        self._in_thread(readers.look, *place, confirm, self.environment.now_ms()).addBoth(over)
        return done

    def guarantee(self) -> str:
        """What an acknowledged write means here, in words."""
        return "none: a slave takes no writes"

    def _writes(self) -> dict[str, Any]:
        """How many writes were answered with which status, and how long those of the last minute or
        two took.
        """
        if self.broker is None or self.broker.writer is None:
            return {"putMillis": None}
        puts = self.broker.counts.puts_took
        took = puts.all()
        return {
            "writes": {status.value: count for status, count in puts.results().items()},
            "putMillis": {
                "p50": took.below(0.5) * 1000,
                "p99": took.below(0.99) * 1000,
                "max": took.longest * 1000,
            },
        }

    def _remoting(self) -> dict[str, Any]:
        broker = self.broker
        return self.clients.status() | (broker.status() if broker is not None else {})

    def _recovery(self) -> dict[str, Any] | None:
        found = self.store_service.recovery
        if found is None:
            return None
        return {
            "from": found.start,
            "end": found.end,
            "records": found.records,
            "endedBy": found.reason.value if found.reason is not None else "end of files",
        }
