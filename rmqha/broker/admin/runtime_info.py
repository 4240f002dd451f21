"""How the broker is doing: requests 28 and 907.

A slave of ours asks its master request 28 before it says a word to its log, so the log's bounds
and the time of the start must be true at any moment.  What stock brokers tell of thread pools and
timers is told as it is here, where there are none: nothing waits, and there is no limit.

Source: docs/protocol/remoting.md, Runtime information.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping

from attrs import define, field

from rmqha.broker.access.needs import ANY_ACCOUNT, Stated
from rmqha.broker.meters.meters import MINUTE, Flow
from rmqha.broker.state import BrokerState
from rmqha.errors import HeaderFieldInvalid
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.offsets import DelayOffsets
from rmqha.wire.remoting.bodies.route import KvTable
from rmqha.wire.remoting.bodies.status import HaStatus
from rmqha.wire.remoting.codes import CURRENT_VERSION, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.slave import EpochClaim

BOOTED = int(time.time() * 1000)
"""When this process was started, in milliseconds since 1970."""

RELEASE = "V4_9_8"
"""The release whose protocol this is, as tools show it."""

NO_LIMIT = "2147483647"
"""What stock brokers tell of a pool of buffers they do not have."""

IDLE = {
    **{
        f"{pool}ThreadPoolQueue{what}": text
        for pool in ("send", "pull", "litePull", "query", "ack")
        for what, text in (("Size", "0"), ("HeadWaitTimeMills", "0"), ("Capacity", NO_LIMIT))
    },
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": NO_LIMIT,
}
"""What is told of queues between threads: there are none."""

RATES = (10.0, 60.0, 600.0)
"""Over how many seconds rates are told."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@define(eq=False, kw_only=True)
class Runtime:
    """Answers about the broker itself.

    @ivar first: Where the log ended when this began, in bytes.
    @ivar delays: How far each delay level is delivered.
    @ivar timers: Tells of messages that are delivered at a time of their own.
    @ivar ha: How replication is doing.
    @ivar on_claim: Told which master another broker of our name knows, and from which host.
    @ivar booted: When the process was started, in milliseconds since 1970.
    """

    state: BrokerState
    delays: Callable[[], DelayOffsets]
    timers: Callable[[], dict[str, str]]
    ha: Callable[[], HaStatus]
    first: int
    on_claim: Callable[[str, EpochClaim], None] = lambda host, claim: None
    booted: int = field(factory=lambda: BOOTED)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: (ANY_ACCOUNT, self.info),
            RequestCode.GET_BROKER_HA_STATUS: (ANY_ACCOUNT, self.ha_status),
        }

    def info(self, connection: RemotingProtocol, command: Command) -> Answer:
        """28: a table of everything.  A broker of ours that asks tells which master it knows."""
        if command.ext:
            self._hear(connection.host, command)
        table = (
            self._self()
            | self._identity()
            | self._traffic()
            | self._log()
            | self._disks()
            | self._levels()
            | self.timers()
        )
        return command.answer(body=json_body.write(KvTable(table=table)))

    def _hear(self, host: str, command: Command) -> None:
        try:
            claim = from_ext(EpochClaim, command.ext)
        except HeaderFieldInvalid:
            return  # a client's own fields, which say nothing of masters
        if claim.broker_name == self.state.current.settings.broker.name:
            self.on_claim(host, claim)

    def ha_status(self, connection: RemotingProtocol, command: Command) -> Answer:
        """907: the replicas of a master, or the master of a slave."""
        return command.answer(body=json_body.write(self.ha()))

    def _self(self) -> dict[str, str]:
        up = max(0, self.state.store.now_ms() - self.booted) // 1000
        days, hours, minutes = up // 86400, up // 3600 % 24, up // 60 % 60
        opens = self.state.current.settings.broker.accept_sends_from
        return {
            "brokerVersionDesc": RELEASE,
            "brokerVersion": str(CURRENT_VERSION),
            "bootTimestamp": str(self.booted),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {up % 60} seconds ]",
            "brokerActive": str(
                self.state.writer is not None and not self.state.store.state
            ).lower(),
            "startAcceptSendRequestTimeStamp": str(int(opens * 1000)),
        }

    def _identity(self) -> dict[str, str]:
        """Who this is; stock brokers do not tell."""
        broker, journal = self.state.current.settings.broker, self.state.epochs.journal
        return {
            "brokerName": broker.name,
            "brokerId": str(broker.id),
            "runId": self.state.epochs.run_id,
            "masterEpoch": str(journal.number),
            "epochStarts": journal.text(),
        }

    def _traffic(self) -> dict[str, str]:
        counts = self.state.counts
        size = self.state.store.log.end - self.first
        sent, took = _rates(counts.got), counts.puts_took.all()
        waiting = counts.meter("TOPIC_PUT_NUMS", TIMER_TOPIC)
        return IDLE | {
            "msgPutTotalTodayNow": str(counts.puts.total),
            "msgPutTotalTodayMorning": str(counts.puts.morning),
            "msgPutTotalYesterdayMorning": str(counts.puts.yesterday),
            "msgGetTotalTodayNow": str(counts.got.total),
            "msgGetTotalTodayMorning": str(counts.got.morning),
            "msgGetTotalYesterdayMorning": str(counts.got.yesterday),
            "putTps": _rates(counts.puts),
            "getTotalTps": _rates(counts.pulls, counts.misses),
            "getFoundTps": _rates(counts.pulls),
            "getMissTps": _rates(counts.misses),
            # 4.9 and 5.x spell it differently.
            "getTransferedTps": sent,
            "getTransferredTps": sent,
            "timerEnqueueTps": str(0.0 if waiting is None else waiting.over(MINUTE).tps),
            "timerDequeueTps": str(counts.delivered.over(MINUTE).tps),
            "putMessageTimesTotal": str(counts.puts.total),
            "putMessageFailedTimes": str(
                0 if self.state.writer is None else self.state.writer.failed
            ),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / max(1, counts.puts.total)),
            "putMessageEntireTimeMax": str(round(took.longest * 1000)),
            "putMessageDistributeTime": took.distribution(),
            "putLatency99": f"{took.below(0.99) * 1000:.2f}",
            "putLatency999": f"{took.below(0.999) * 1000:.2f}",
            "getMessageEntireTimeMax": str(round(counts.reads_took.longest * 1000)),
        }

    def _log(self) -> dict[str, str]:
        log = self.state.store.log
        oldest = self.state.lookup.record(log.min_offset)
        return {
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.end),
            "dispatchMaxBuffer": "0",
            "dispatchBehindBytes": str(self.state.store.dispatcher.behind),
            "pageCacheLockTimeMills": "0",
            "remainHowManyDataToFlush": _size(log.end - log.flushed),
            "remainHowManyDataToCommit": _size(0),
            "remainTransientStoreBufferNumbs": NO_LIMIT,
            "earliestMessageTimeStamp": "-1" if oldest is None else str(oldest.store_timestamp),
        }

    def _disks(self) -> dict[str, str]:
        settings = self.state.store.settings
        try:
            log = self.state.store.disk_use(settings.commitlog)
            queues = self.state.store.disk_use(settings.root)
            disk = shutil.disk_usage(settings.commitlog)
        except OSError:
            return {}
        return {
            "commitLogDiskRatio": f"{log:.2f}",
            f"commitLogDiskRatio_{settings.commitlog}": f"{log:.2f}",
            "consumeQueueDiskRatio": f"{queues:.2f}",
            "commitLogDirCapacity": f"Total : {_size(disk.total)}, Free : {_size(disk.free)}.",
        }

    def _levels(self) -> dict[str, str]:
        """Of each delay level that has messages, how far it is and where it ends."""
        done = self.delays().offset_table
        return {
            f"scheduleMessageOffset_{queue.queue_id + 1}": (
                f"{done.get(queue.queue_id + 1, 0)},{queue.max_offset}"
            )
            for queue in self.state.store.queues.of(SCHEDULE_TOPIC)
        }


def _rates(*meters: Flow) -> str:
    return " ".join(str(sum(meter.rate(span) for meter in meters)) for span in RATES)


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
