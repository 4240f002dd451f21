"""What a slave tells of itself: how it stands to its master, and how its replicas stand to it.

How it follows is in L{rmqha.roles.slave}.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqha.admin.events import Facts
from rmqha.ha.cold_comparison import ColdComparison
from rmqha.ha.live_repair import LiveRepair
from rmqha.ha.slave.follower import Follower
from rmqha.ha.states import NodeState, SyncState
from rmqha.health import HealthReason
from rmqha.periodic import Job
from rmqha.roles.serving import Serving
from rmqha.roles.telling import TellingNode
from rmqha.roles.upstream.elected import ElectedUpstream
from rmqha.roles.upstream.upstream import Upstream
from rmqha.store.lost_tail import LostTail
from rmqha.wire.remoting.bodies.status import HaClientInfo, HaStatus


class TellingSlave(TellingNode):
    """A slave that is asked how it is.

    @ivar follower: Replication, once C{ready} has fired.
    @ivar upstream: Where the master is.
    @ivar serving: The slaves behind this one.
    @ivar repairs: Mends the log of the store that is open.
    @ivar comparison: Compares it with the master's while nothing else is to do.
    """

    upstream: Upstream | ElectedUpstream
    serving: Serving
    follower: Follower | None = None
    repairs: LiveRepair | None = None
    comparison: ColdComparison | None = None

    @property
    def state(self) -> NodeState:
        """What the node can do: while a repair closes and opens the store it recovers."""
        state = super().state
        return NodeState.RECOVERING if state is NodeState.STOPPED and self.running else state

    def _changed(self) -> None:
        super()._changed()
        service = self.store_service
        if service.state == NodeState.FAILED.value and self.follower is not None:
            self.follower.sync.fail(service.reason)

    def health(self) -> Iterator[HealthReason]:
        """A node's reasons, those of the HA port, and why the log does not follow the master's."""
        yield from super().health()
        yield from self.serving.health()
        if self.follower is not None:
            yield from self.follower.sync.health()
        yield from self.upstream.health()
        if self.comparison is not None:
            yield from self.comparison.health()

    def jobs(self) -> Iterator[Job]:
        """A node's, those of the HA port, and what follows the master."""
        yield from super().jobs()
        yield from self.serving.jobs()
        yield from self.upstream.jobs()
        if self.repairs is not None:
            yield from self.repairs.jobs()
        if self.comparison is not None:
            yield from self.comparison.jobs()

    def facts(self) -> Facts:
        """A node's, how it stands to its master, and what it was given back."""
        found = dict(super().facts())
        if self.follower is not None:
            sync = self.follower.sync
            found["replication"] = sync.state.value, sync.reason
        if self.repairs is not None:
            found["ranges repaired from the master"] = str(self.repairs.repaired), ""
        return {**found, **self.serving.facts()}

    def status(self) -> dict[str, Any]:
        """A node's status, the replicas, and the upstream."""
        status = super().status() | self.serving.status()
        store = self.store_service.opened if self.store_service.running else None
        stored = store.last_record_stored() if store is not None else 0
        status["upstream"] = self.upstream.status(stored)
        status["repair"] = None if self.repairs is None else self.repairs.status()
        comparison = self.comparison
        status["comparison"] = None if comparison is None else comparison.status()
        status["metadata"] = None if self.broker is None else self.broker.metadata.status()
        return status

    def lost_tail(self) -> LostTail | None:
        """What is missing, until it was fetched again, or the master was found to have no more."""
        lost, follower = super().lost_tail(), self.follower
        if lost is None or self.store.log.confirmed >= lost.to:
            return None
        in_sync = follower is not None and follower.sync.state is SyncState.IN_SYNC
        return None if in_sync else lost

    def ha_status(self) -> HaStatus:
        """The master, as far as it is known here."""
        log, follower = self.store.log, self.follower
        connection = None if follower is None else follower.sync.connection
        read, written = (0.0, 0.0) if connection is None else connection.last()
        return HaStatus(
            master=False,
            ha_client_runtime_info=HaClientInfo(
                master_addr=None if follower is None else follower.address,
                transferred_byte_in_second=0 if connection is None else connection.speed.last(),
                max_offset=log.end,
                last_read_timestamp=self._milliseconds(read),
                last_write_timestamp=self._milliseconds(written),
            ),
        )

    def _milliseconds(self, moment: float) -> int:
        """A moment of the reactor's clock in milliseconds since 1970; 0 for none."""
        ago = self.reactor.seconds() - moment
        return self.environment.now_ms() - int(ago * 1000) if moment else 0
