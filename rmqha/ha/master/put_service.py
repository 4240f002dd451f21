"""A write's whole way on a master: store it, then wait for what was promised.

The statuses are RocketMQ's: the message is stored in all four, what differs is whether
the disk (C{SYNC_FLUSH}) and enough replicas (C{SYNC_MASTER}) have said so in time.
Source: docs/protocol/ha.rst, What a write waits for.
"""

from __future__ import annotations

from typing import Protocol

from attrs import define, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.store_settings import FlushDisk
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.transfer import Done, GroupTransfer, PutStatus
from rmqha.store.log.record_run import RequestRun
from rmqha.store.store import Receipt, Store
from rmqha.wire.log.record import Message


@frozen
class PutResult:
    """What became of a write.

    @ivar receipt: Where it is stored.
    """

    status: PutStatus
    receipt: Receipt


def at_once(put: Deferred[PutResult]) -> PutResult | None:
    """What became of a write of which nothing was waited for: a callback would take longer than
    all else.
    """
    return put.result if put.called and isinstance(put.result, PutResult) else None


class Putter(Protocol):
    """Who takes writes: a L{Writer}, or one that measures it."""

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """Store a message, and wait for what was promised."""

    def put_run(self, run: RequestRun, born_host: bytes, done: Done) -> None:
        """Store several messages, and tell when what was promised is so."""


@define(eq=False)
class Writer:
    """Takes the writes of one master.

    @ivar transfer: Who knows the replicas.
    """

    store: Store
    transfer: GroupTransfer
    role: BrokerRole

    def guarantee(self) -> str:
        """What an acknowledged write means on this node, in words."""
        disk = self.store.settings.flush_disk is FlushDisk.SYNC_FLUSH
        here = "on this node's disk" if disk else "in this node's page cache"
        if self.role is BrokerRole.SYNC_MASTER:
            count = self.transfer.needed
            copies = "1 replica" if count == 1 else f"{count} replicas"
            return f"SYNC: an acknowledged write is {here} and held by {copies}"
        return f"ASYNC: an acknowledged write is {here}; replicas follow"

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """Store a message and wait for what the configuration promises.

        @param wait: The message's own C{WAIT} property: without it nothing is waited for.
        @return: Fires with the result; fails with L{FlushFailed} if the disk failed.
        @raise NotWritable: If the store takes no writes.
        @raise MessageIllegal: If it cannot be stored as it is.
        """
        receipt = self.store.put(message, batch=batch)
        disk = wait and self.store.settings.flush_disk is FlushDisk.SYNC_FLUSH
        replicas = wait and self.role is BrokerRole.SYNC_MASTER
        if not disk and not replicas:
            return succeed(PutResult(PutStatus.PUT_OK, receipt))
        if not disk:
            # The common SYNC case: one Deferred, one callback.
            return self.transfer.wait(receipt.begin, receipt.end).addCallback(PutResult, receipt)
        return self._flushed(receipt.begin, receipt.end, 1, replicas).addCallback(
            PutResult, receipt
        )

    def put_run(self, run: RequestRun, born_host: bytes, done: Done) -> None:
        """Store the messages of a run, and wait for what the configuration promises.

        @param run: What was read; it says then how many were stored.
        @param born_host: Address and port of who sent them, as a record has them.
        @param done: Is told what became of all that are to be answered, maybe at once, if there
            are any; C{SERVICE_NOT_AVAILABLE} if the disk failed.
        @raise NotWritable: If the store takes no writes; none is stored.
        @raise MessageIllegal: If the first one does not fit a file of the log.
        """
        begin, end = self.store.put_run(run, born_host)
        waits = run.waits
        if not waits:
            return
        replicas = self.role is BrokerRole.SYNC_MASTER
        if self.store.settings.flush_disk is FlushDisk.SYNC_FLUSH:
            self._flushed(begin, end, waits, replicas).addErrback(_unknown).addCallback(done)
        elif replicas:
            self.transfer.tell(begin, end, waits, done)
        else:
            done(PutStatus.PUT_OK)

    def _flushed(self, begin: int, end: int, count: int, replicas: bool) -> Deferred[PutStatus]:
        """Wait for the disk, and for the replicas if they are waited for."""
        held = self.transfer.wait(begin, end, count) if replicas else None
        return self.store.flusher.wait(end).addCallbacks(
            _flushed, _not_flushed, callbackArgs=(held,), errbackArgs=(held,)
        )


def _unknown(failure: Failure) -> PutStatus:
    """Of what the disk lost nobody can say more."""
    failure.trap(FlushFailed)
    return PutStatus.SERVICE_NOT_AVAILABLE


def _flushed(flushed: bool, held: Deferred[PutStatus] | None) -> PutStatus | Deferred[PutStatus]:
    """Put both answers together: replication's wins over the disk's, as in RocketMQ."""
    disk = PutStatus.PUT_OK if flushed else PutStatus.FLUSH_DISK_TIMEOUT
    if held is None:
        return disk
    return held.addCallback(lambda status: disk if status is PutStatus.PUT_OK else status)


def _not_flushed(failure: Failure, held: Deferred[PutStatus] | None) -> PutStatus | Failure:
    if held is not None:
        # Its result is not used any more, not even that it was cancelled.
        held.addErrback(lambda cancelled: None)
        held.cancel()
    if failure.check(NotWritable):
        return PutStatus.SERVICE_NOT_AVAILABLE
    failure.trap(FlushFailed)
    return failure
