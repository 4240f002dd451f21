"""The child side of an elected master of ours: a node that joins a set of real controllers, has
itself elected, and serves its members by HA protocol v2.

What a member does besides (to follow, to change its role, to be fenced) is not in it: it leads, in
as many epochs as its parent asks for.

Run it as C{python -m tests.interop.elected_child CONTROLLERS --role master --conf FILE}.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import globalLogBeginner, textFileLogObserver

from lab.harness.writer_child import Driven
from rmqha.broker.cluster.set_requests import SetRequests
from rmqha.controller import epoch_labels
from rmqha.controller.coordinator import SetState
from rmqha.controller.group import ControllerGroup
from rmqha.controller.identity import IdentityFiles
from rmqha.controller.other_members import labels_of
from rmqha.errors import ControllerUnanswered, NoController
from rmqha.ha.elected.in_sync import InSyncSet
from rmqha.ha.elected.labelled_log import LabelledLog
from rmqha.ha.elected.members import Proofs
from rmqha.ha.elected.roster import Roster
from rmqha.ha.elected.set_master import SetMaster
from rmqha.ha.master.put_service import Writer
from rmqha.net.remoting.client import RemotingClient
from rmqha.roles import tap
from rmqha.store.store import Store
from rmqha.store.tables import epoch_file
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting.bodies.controller import EpochCache, EpochRange
from rmqha.wire.remoting.headers.controller import DEFAULT_PRIORITY, MemberHeartbeatRequest
from rmqha.wire.store_layout import EPOCH_FILE_CHECKPOINT

BEAT, ASK = 1.0, 2.0
"""Seconds between two signs of life, and between two questions for what is decided."""


class Leading:
    """A master node whose HA port is that of a set, in this epoch."""

    master: SetMaster | None = None

    def __init__(self, node: Any, reactor: Any, controllers: str) -> None:
        self.node, self.reactor = node, reactor
        self.client = RemotingClient(reactor)
        broker = node.settings.broker
        self.address = f"{broker.ip1}:{broker.listen_port}"
        self.group = ControllerGroup(
            addresses=tuple(controllers.split(";")),
            client=self.client,
            cluster=broker.cluster,
            name=broker.name,
            now_ms=lambda: int(time.time() * 1000),
        )
        root = node.settings.store.root
        self.identity = IdentityFiles.of(root, broker.cluster, broker.name)
        self.epochs = root / EPOCH_FILE_CHECKPOINT
        self.id = 0
        self.store: Store | None = None
        node.serve = self.serve
        node.guarantee = lambda: "an acknowledged write is held by the whole SyncStateSet"
        self._unserve, node.unserve = node.unserve, self.unserve
        self._loops = [LoopingCall(self.beat), LoopingCall(self.ask)]

    # --- the node's life ------------------------------------------------------------

    def serve(self, store: Store) -> Deferred[None]:
        """Join, have ourselves elected, and let members and clients in."""
        self.store = store
        return Deferred.fromCoroutine(self._serve())

    async def _serve(self) -> None:
        known = self.identity.read()
        if known is None:
            number = await self._next_id()
            code = f"{self.address};{int(time.time() * 1000)}"
            await self.group.apply(number, code)
            known = self.identity.given(self.identity.apply(number, code))
        self.id = known.id
        await self.group.register(self.id, self.address)
        self._loops[0].start(BEAT)
        self.lead(await self.group.elect(self.id))
        self._loops[1].start(ASK, now=False)
        await self.node.open_broker(self.store, self.node.writer)
        for code, (_, handler) in SetRequests(self.labels, lambda told: None).handlers().items():
            self.node.broker.registry.register(code, handler)

    def labels(self, token: int | None) -> EpochCache:
        """What other members are told of our log."""
        assert self.master is not None, "it leads"
        return EpochCache(
            cluster_name=self.group.cluster,
            broker_name=self.group.name,
            broker_id=0,
            epoch_list=tuple(
                EpochRange(epoch=each.label, start_offset=each.start)
                for each in self.master.labelled.labels
            ),
            max_offset=self.master.log.confirmed,
        )

    async def _next_id(self) -> int:
        """An id that nobody has, as soon as a controller leads."""
        while True:
            try:
                return await self.group.next_id()
            except (NoController, ControllerUnanswered):
                await deferLater(self.reactor, 0.5)

    def lead(self, state: SetState) -> None:
        """Begin an epoch: first its label, then members and writes."""
        assert state.master is not None, "somebody was elected"
        assert state.master.id == self.id, f"{state.master} was elected"
        store, settings = self.store, self.node.settings
        assert store is not None, "it is open"
        end = store.log.confirmed
        labels = epoch_labels.cut(epoch_file.read(self.epochs).labels or (), end)
        if not labels or labels[-1].label < state.master_epoch:
            labels = epoch_labels.appended(labels, EpochLabel(state.master_epoch, end))
        epoch_file.write(self.epochs, labels)
        before, self.master = (
            self.master,
            SetMaster(
                labelled=LabelledLog(labels),
                log=store.log,
                in_sync=InSyncSet(
                    own=self.id,
                    state=state,
                    coordinator=self.group,
                    clock=self.reactor,
                    newest_start=labels[-1].start,
                ),
                proofs=Proofs(
                    ours=LabelledLog(labels),
                    log=store.log,
                    labels_of=lambda address, token: Deferred.fromCoroutine(
                        labels_of(self.client, address, self.group.name, token)
                    ),
                    roster=Roster(own=self.id, ask=self.group.members, clock=self.reactor),
                    clock=self.reactor,
                ),
                settings=settings.ha,
                clock=self.reactor,
                feeding=self.node.serving.feeding(),
            ),
        )
        if before is not None:
            before.end()
        self.master.start()
        self.node.serving.factory = self.node.serving.gate.inner = self.master.factory
        below = Writer(store, self.master.transfer, settings.broker.role)
        self.node.writer = self.master.writer(below)

    async def unserve(self) -> None:
        for loop in self._loops:
            if loop.running:
                loop.stop()
        self.node.serving.factory = self.node.serving.gate.inner = None
        if self.master is not None:
            await self.master.end()
        await self.client.close()
        await self._unserve()

    # --- as a member ------------------------------------------------------------------

    def beat(self) -> None:
        """Give a sign of life."""
        store, master = self.store, self.master
        assert store is not None, "it is open"
        self.group.beat(
            MemberHeartbeatRequest(
                cluster_name=self.group.cluster,
                broker_addr=self.address,
                broker_name=self.group.name,
                broker_id=self.id,
                epoch=-1 if master is None else master.in_sync.state.master_epoch,
                max_offset=store.log.confirmed,
                confirm_offset=0 if master is None else master.confirm,
                heartbeat_timeout_mills=10_000,
                election_priority=DEFAULT_PRIORITY,
            )
        )

    def ask(self) -> Deferred[None]:
        return self.group.current().addCallbacks(self.told, lambda failure: None)

    def told(self, state: SetState) -> None:
        assert self.master is not None, "it leads"
        self.master.in_sync.told(state)

    async def _lapse(self) -> None:
        """Be dead for the controllers, and elected again: the same master in a newer epoch."""
        assert self.master is not None, "it leads"
        before = self.master.in_sync.state.master_epoch
        self._loops[0].stop()
        await self.client.close()
        self.client = self.group.client = RemotingClient(self.reactor)
        while (await self.group.current()).master_epoch == before:
            await deferLater(self.reactor, 0.1)
        await self.group.register(self.id, self.address)
        self._loops[0].start(BEAT)
        self.lead(await self.group.elect(self.id))

    # --- what the parent asks for ---------------------------------------------------------

    def handlers(self, driven: Driven) -> dict[str, Any]:
        def lapse(number: int) -> None:
            Deferred.fromCoroutine(self._lapse()).addCallbacks(
                lambda _: driven.commands.say(number, done=True, answer=self.told_set()),
                lambda failure: driven.commands.say(number, done=True, error=str(failure.value)),
            )

        def cut(number: int) -> int:
            assert self.master is not None, "it leads"
            inside = list(self.master.factory.door.inside)
            for connection in inside:
                connection.close("test")
            return len(inside)

        return {"set": lambda number: self.told_set(), "lapse": lapse, "cut": cut}

    def told_set(self) -> dict[str, Any]:
        assert self.master is not None, "it leads"
        return {**self.master.status(), "closed": dict(self.master.factory.closed)}


def main(arguments: list[str]) -> int:
    """Start the node as twistd does, and listen to the parent."""
    from twisted.internet import reactor

    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    controllers, *arguments = arguments
    options = tap.Options()
    options.parseOptions(arguments)
    node: Any = tap.makeService(options)
    leading = Leading(node, reactor, controllers)
    driven = Driven(node, reactor)
    driven.commands.handlers.update(leading.handlers(driven))
    StandardIO(driven.commands, reactor=reactor)
    whole = MultiService()
    node.setServiceParent(whole)
    node.ready.addCallbacks(
        lambda _: driven.commands.say(None, news="ready"),
        lambda failure: driven.commands.say(None, news="failed", error=failure.getErrorMessage()),
    )
    whole.startService()
    reactor.addSystemEventTrigger("before", "shutdown", whole.stopService)
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
