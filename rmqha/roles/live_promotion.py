"""A running slave becomes the master, in its own process, when an operator says that the master is
gone (C{rmqha failover}, C{rmqha promote}).

Whoever asks for it is on the node's machine and may write its configuration, which the node itself
often may not.  So there are two questions to the admin port, and the file is changed between them:

 1. Whether it may be: is the master gone, and is the store one that a master can have?  The whole
    log is read for that while the slave goes on serving.  Then it is noted in the store that
    whoever next opens it as a master has to promote it.
 2. To do it: the slave's service tree is stopped as at the end of its process, the store is
    promoted as C{rmqha promote} does it offline, and a master's tree is started from the
    configuration.  Nothing of the slave is left: no connection, no table, no file that is open.

A kill before the file is changed leaves a slave, which forgets the note; one after it leaves a
master, which finishes the promotion when it starts (L{rmqha.ha.promotion.finish}), unless the old
master is back.

Source: docs/operations.rst, Lost master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmqha.config.settings import Settings
from rmqha.errors import ConfigError, Refused, RemotingTimeout, RemotingUnreachable, RmqhaError
from rmqha.ha import promotion
from rmqha.ha.promotion import check_whole
from rmqha.ha.states import NodeState, SyncState
from rmqha.logfiles.raw_log import RawLog
from rmqha.roles.host.exit_codes import exit_code
from rmqha.roles.process import NAMED, Process
from rmqha.roles.slave import SlaveNode
from rmqha.roles.upstream import NamedUpstream

LOOKS = 3
"""How often the master is looked for, a second apart: one connection may fail by chance."""

OFFLINE = "stop it and promote its store: rmqha failover {conf} --stop COMMAND --start COMMAND"
"""The way that is left where the store, or how the node was started, does not allow this one."""


def _refused(why: str) -> Refused:
    return Refused("promotion", why)


@define(eq=False, kw_only=True)
class LivePromotion(Service):
    """What a slave that can become a master does about it.

    @ivar node: The slave; the master afterwards.
    @ivar conf: Its configuration file, C{None} if it was started without one.
    @ivar keeps: What in its command line would make it a slave again whatever the file says.
    @ivar reread: Reads its configuration as the next start would.
    @ivar successor: Makes the node of a configuration that was read so.
    @ivar state: C{checking}, C{refused}, C{sound} after a dry run, C{ready}, or C{changing}.
    @ivar said: What was found, in sentences; why, last, when it is C{refused}.
    """

    node: Process
    conf: Path | None
    keeps: str
    reread: Callable[[], Settings]
    successor: Callable[[Settings], Process]
    state: str = field(default="", init=False)
    said: list[str] = field(factory=list, init=False)
    _over: Deferred[None] = field(factory=lambda: succeed(None), init=False)

    _log = Logger()

    # --- asked by the admin port --------------------------------------------------------

    def status(self) -> dict[str, Any] | None:
        """C{promotion} of C{/status}; C{None} as long as nobody has asked."""
        return {"state": self.state, "said": self.said} if self.state else None

    def check(self, *, epoch: int | None, verify: bool, dry_run: bool) -> dict[str, Any]:
        """Begin to look whether it may be.

        @param epoch: The new master epoch, C{None} for the next one.
        @param verify: Whether the whole log is read.
        @param dry_run: Whether it is only looked.
        @return: What the caller has to know of this node.
        @raise Refused: If it cannot be, whatever is found.
        """
        node, conf = self._slave(), self.conf
        if self.state in ("checking", "changing"):
            raise _refused("one is under way: look with rmqha status")
        if node.settings.controller.enabled:
            raise _refused("controllers elect the master: look with `rmqha controller explain`")
        if conf is None or self.keeps:
            why = self.keeps or "it was started without a configuration file"
            raise _refused(
                f"the next start would make a slave of this node again, as {why}. Start it with "
                f"rmqha run --conf {conf or 'FILE'}, or {OFFLINE.format(conf=conf or 'FILE')}"
            )
        self.state, self.said = "checking", []
        self._over = Deferred.fromCoroutine(self._check(node, epoch, verify, dry_run))
        return {"conf": str(conf), "store": str(node.settings.store.root)}

    def begin(self) -> None:
        """The configuration is a master's now: become it.

        @raise Refused: If it is not, or if the master is back.
        """
        node = self._slave()
        if self.state != "ready":
            raise _refused("nothing was checked before: run rmqha failover again")
        self._refuse_connected(node)
        try:
            settings = self.reread()
        except ConfigError as error:
            raise _refused(f"{self.conf} cannot be read: {error}") from error
        if not settings.broker.role.is_master:
            raise _refused(f"{self.conf} does not make a master of this node")
        if settings.store.root.resolve() != node.settings.store.root.resolve():
            raise _refused(f"{self.conf} is for the store {settings.store.root}")
        self.state = "changing"
        # In another turn of the reactor, so that this one is answered.
        later: Deferred[None] = deferLater(node.reactor, 0.0, lambda: None)
        self._over = later.addCallback(
            lambda _: Deferred.fromCoroutine(self._change(node, settings))
        )

    def _slave(self) -> SlaveNode:
        if not isinstance(self.node, SlaveNode):
            raise _refused("this node is the master already")
        return self.node

    # --- may it be? ---------------------------------------------------------------------

    async def _check(self, node: SlaveNode, epoch: int | None, verify: bool, dry_run: bool) -> None:
        try:
            self._refuse_store(node)
            await self._refuse_master(node)
            store, in_thread = node.settings.store, node.environment.in_thread
            if verify:
                raw = await in_thread(RawLog.open, store.root)
                count = await in_thread(check_whole, store, raw, self._go_on, runs=True)
                self.said.append(f"verified the whole log: {count} records")
                # That may have taken a while.
                self._refuse_store(node)
                self._refuse_connected(node)
            if not dry_run:
                await in_thread(promotion.intend, store.root, epoch, self._master(node))
        except (RmqhaError, OSError) as error:
            self.state = "refused"
            self.said.append(str(error))
            self._log.warn("Not promoted: {error}", error=error)
        except BaseException:
            self.state = "refused"
            self.said.append("it failed: the log of the node says how")
            self._log.failure("Looking whether this slave can be promoted failed")
        else:
            self.state = "sound" if dry_run else "ready"

    def _go_on(self, done: int, total: int) -> None:
        """Called in the thread that reads the log.

        @raise Refused: If the node is stopping, which would wait for it.
        """
        if not self.node.running:
            raise _refused("the node is stopping")

    def _refuse_store(self, node: SlaveNode) -> None:
        for why in self._obstacles(node):
            raise _refused(why)

    def _obstacles(self, node: SlaveNode) -> Iterator[str]:
        if node.state is not NodeState.SERVING or node.following.follower is None:
            yield f"the node is {node.state}: {node.reason or 'wait until it serves'}"
            return
        sync, store = node.following.follower.sync, node.store
        if sync.is_bootstrapping:
            yield (
                "its copy of the master's log is not complete: promote another slave, or restore "
                "an archive: rmqha restore"
            )
        if sync.state.is_stop and sync.state is not SyncState.LOWER_EPOCH:
            yield f"the log is {sync.state}: {sync.reason}: run rmqha doctor on this node"
        if (higher := node.epochs.journal.fenced_by) is not None:
            yield f"{higher}: follow that one"
        if (lost := node.lost_tail()) is not None:
            yield f"{lost.text}: promote another slave, or {OFFLINE.format(conf=self.conf)}"
        if faults := store.scrubber.status()["faultCount"]:
            yield f"the log is damaged in {faults} places: rmqha repair {store.settings.root}"

    def _refuse_connected(self, node: SlaveNode) -> None:
        follower = node.following.follower
        sync = None if follower is None else follower.sync
        if sync is not None and sync.connection is not None:
            silent, most = sync.silent(), node.settings.ha.housekeeping
            raise _refused(
                f"the master at {sync.port.peer} is connected, and was heard {silent:.0f} s ago: "
                "`rmqha switchover` changes the roles without a loss; one that is silent counts "
                f"as gone after {most:g} s (haHousekeepingInterval)"
            )

    async def _refuse_master(self, node: SlaveNode) -> None:
        address = node.following.upstream.client_port
        for look in range(LOOKS):
            if look:
                await deferLater(node.reactor, 1.0, lambda: None)
            self._refuse_connected(node)
            if address and await self._answers(node, address):
                raise _refused(
                    f"the master at {address} answers: `rmqha switchover` changes the roles "
                    "without a loss; a second master would part the logs"
                )
        self.said.append(f"the master at {self._master(node)} gives no answer in {LOOKS} looks")

    def _master(self, node: SlaveNode) -> str:
        follower = node.following.follower
        peer = follower.sync.port.peer if follower else ""
        return node.following.upstream.client_port or peer

    async def _answers(self, node: SlaveNode, address: str) -> bool:
        upstream = node.following.upstream
        assert isinstance(upstream, NamedUpstream), "others are elected"
        try:
            told = await upstream.who(address)
        except (RemotingUnreachable, RemotingTimeout):
            return False
        except RmqhaError:
            return True  # something is there, whatever it thinks of us
        return told.identity.run_id != node.epochs.run_id

    # --- to become it -------------------------------------------------------------------

    async def _change(self, node: SlaveNode, settings: Settings) -> None:
        above: Any = node.parent
        if not above.running:
            return  # the process ends; its next start finishes it
        # The end of the process waits for this, and the service manager takes it for no end.
        self.setServiceParent(above)
        node.notify = lambda state: None
        self._log.info("The slave ends, to become the master")
        try:
            await node.disownServiceParent()
            done = await node.environment.in_thread(promotion.finish, settings.store)
            for line in () if done is None else promotion.told(done):
                self._log.info("{line}", line=line)
            if above.running:
                self.node = self.successor(settings)
                self.node.promotion = self
                self.node.setServiceParent(above)
        except Exception as error:
            if not isinstance(error, NAMED):
                self._log.failure("Becoming the master failed")
            self._log.critical("Cannot start as the master: {error}", error=error)
            if above.running:
                self.node.exit_with(exit_code(error))
                node.reactor.stop()
        finally:
            self.disownServiceParent()

    def stopService(self) -> Deferred[None]:
        """The process ends: a store that is being promoted is left whole."""
        super().stopService()
        return self._over
