"""Locks on queues, for consumers that take messages in their order.

A lock is a lease of a client in a group; it is not tied to the client's connection, and it is
in memory alone.  Clients ask for theirs again every 20 s and give one up that they could not
renew for 30 s.

Source: docs/protocol/remoting.md, Clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from attrs import define, field

from rmqha.broker.access.needs import SUB, Stated, Wanted, in_group, of
from rmqha.broker.state import BrokerState
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting.bodies.clients import LockedQueues, QueueLocks
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read, write

LEASE = 60.0
"""Seconds a lock holds without being asked for again, as in stock brokers."""

Leases: TypeAlias = dict[MessageQueue, tuple[str, float]]
"""Who has a queue, and until when, in the clock's seconds."""


def _locks(command: Command) -> Iterator[Wanted]:
    locks = read(QueueLocks, command.body)
    yield in_group(locks.consumer_group)
    for queue in locks.mq_set:
        yield queue.topic, SUB


_LOCKS = of("SUB: group, each topic", _locks)


@define(eq=False, slots=False)
class Locks:
    """Who may consume which queue."""

    state: BrokerState
    # By group: each queue's client, and until when.
    _groups: dict[str, Leases] = field(factory=dict, init=False)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.LOCK_BATCH_MQ: (_LOCKS, self._lock),
            RequestCode.UNLOCK_BATCH_MQ: (_LOCKS, self._unlock),
        }

    def lock(
        self, group: str, client_id: str, queues: tuple[MessageQueue, ...]
    ) -> tuple[MessageQueue, ...]:
        """Take locks, or prolong them.

        @return: The queues that are the client's now.
        """
        now = self.state.clock.seconds()
        leases = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            holder, until = leases.get(queue, ("", 0.0))
            if holder != client_id and until > now:
                continue
            if self.state.has_queue(queue.topic, queue.queue_id):
                leases[queue] = client_id, now + LEASE
                granted.append(queue)
        if not leases:
            del self._groups[group]
        return tuple(granted)

    def unlock(self, group: str, client_id: str, queues: tuple[MessageQueue, ...]) -> None:
        """Give locks back; other clients' stay."""
        leases = self._groups.get(group, {})
        for queue in queues:
            if leases.get(queue, ("", 0.0))[0] == client_id:
                del leases[queue]
        if not leases:
            self._groups.pop(group, None)

    def sweep(self) -> None:
        """Forget leases that ended; without it groups that are gone would stay for ever."""
        now = self.state.clock.seconds()
        for group, leases in list(self._groups.items()):
            for queue, (_, until) in list(leases.items()):
                if until <= now:
                    del leases[queue]
            if not leases:
                del self._groups[group]

    def _lock(self, connection: RemotingProtocol, command: Command) -> Command:
        wish = read(QueueLocks, command.body)
        locked = self.lock(wish.consumer_group, wish.client_id, wish.mq_set)
        return command.answer(body=write(LockedQueues(locked=locked)))

    def _unlock(self, connection: RemotingProtocol, command: Command) -> None:
        wish = read(QueueLocks, command.body)
        self.unlock(wish.consumer_group, wish.client_id, wish.mq_set)
