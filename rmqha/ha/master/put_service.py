"""
A write's whole way on a master: store it, then wait for what was promised.

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
from rmqha.ha.master.transfer import GroupTransfer, PutStatus
from rmqha.store.store import Receipt, Store
from rmqha.wire.log.record import Message


@frozen
class PutResult:
    """
    What became of a write.

    @ivar receipt: Where it is stored.
    """

    status: PutStatus
    receipt: Receipt


class Putter(Protocol):
    """
    Who takes writes: a L{Writer}, or one that measures it.
    """

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """
        Store a message, and wait for what was promised.
        """


@define(eq=False)
class Writer:
    """
    Takes the writes of one master.

    @ivar transfer: Who knows the replicas.
    """

    store: Store
    transfer: GroupTransfer
    role: BrokerRole

    def guarantee(self) -> str:
        """
        What an acknowledged write means on this node, in words.
        """
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
        """
        Store a message and wait for what the configuration promises.

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
        held = self.transfer.wait(receipt.begin, receipt.end) if replicas else None
        return (
            self.store.flusher.wait(receipt.end)
            .addCallbacks(_flushed, _not_flushed, callbackArgs=(held,), errbackArgs=(held,))
            .addCallback(PutResult, receipt)
        )


def _flushed(flushed: bool, held: Deferred[PutStatus] | None) -> PutStatus | Deferred[PutStatus]:
    """
    Put both answers together: replication's wins over the disk's, as in RocketMQ.
    """
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
