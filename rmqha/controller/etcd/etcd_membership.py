"""How a node becomes a member of a set that etcd coordinates, and stays one: by a lease.

While the lease lives nobody else can be elected.  So a master acknowledges what it is sent for
as long as the lease surely lives, by its own clock, counted from when the last sign of life that
etcd took was I{sent}; and only in a master epoch of which it was seen, under this very lease, that
it is ours.

Source: docs/protocol/etcd.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, evolve, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.settings import Settings
from rmqha.controller.coordinator import SetMembership, SetState
from rmqha.controller.etcd.client import EtcdRefused
from rmqha.controller.etcd.etcd_set import EtcdSet, Lease
from rmqha.controller.etcd.set_keys import IdEntry, Living, SetView, Vote
from rmqha.controller.group import ControllerClient
from rmqha.controller.identity import Identity, IdentityInvalid
from rmqha.controller.other_members import MemberLivesElsewhere, refuse_twin
from rmqha.errors import ControllerUnanswered, NoController, RmqhaError
from rmqha.health import HealthReason
from rmqha.logfiles import json_table
from rmqha.logfiles.typed_table import Natural, value_of
from rmqha.periodic import Periodic
from rmqha.wire.remoting.codes import ControllerResponseCode as Code
from rmqha.wire.store_layout import OWN_FOLDER, REGISTERED

INTERVAL = 1.0
"""Seconds between two signs of life."""

ALARMS_EVERY = 30.0
"""Seconds between two questions for etcd's alarms, which it answers through its log."""

MOST_UNDER_WAY = 3
"""Signs of life that may wait for an answer at once."""

_NOT_FOUND = 404


def margin(ttl: float) -> float:
    """What a master is careful by: two clocks that differ by 1 %, and the way of an answer."""
    return max(0.2, ttl / 20)


def read_entry(root: Path) -> IdEntry | None:
    """What a store knows of its registration; C{None} without a file.  Blocking.

    There is no C{.bak}: what is older is what must not be believed.

    @raise FileUnreadable: If the system does not let it be read.
    @raise IdentityInvalid: If it is there and makes no sense.
    """
    path = root / OWN_FOLDER / REGISTERED
    data = json_table.read_file(path)
    if data is None:
        return None
    try:
        table = json_table.parse(data) or {}
        return IdEntry(token=value_of(table, "token", str), run=value_of(table, "run", Natural))
    except ValueError as error:
        raise IdentityInvalid(str(path), f"it has no token: {error}") from None


def write_entry(root: Path, entry: IdEntry) -> None:
    """Keep it; durable on return.  Blocking.

    @raise DiskFull: If there is no room.
    """
    path = root / OWN_FOLDER / REGISTERED
    path.parent.mkdir(parents=True, exist_ok=True)
    table: json_table.Table = {"token": entry.token, "run": entry.run}
    json_table.replace_text(path, json_table.render(table), looks_whole=lambda _: False)


@define(eq=False, kw_only=True)
class EtcdMembership(SetMembership):
    """That of a member whose set is in etcd; without a sign it lets its lease go.

    @ivar client: Asks members.
    @ivar changed: Called when it may have changed whether we lead.
    @ivar trouble: Why there is no lease, in words; empty if there is one.
    @ivar alarms: etcd's own, as it names them; C{None} while they are not known.
    """

    set: EtcdSet
    settings: Settings
    client: ControllerClient
    changed: Callable[[], None]
    trouble: str = field(default="it has none yet", init=False)
    alarms: tuple[str, ...] | None = field(default=None, init=False)
    _beating: Periodic = field(init=False)
    _looking: Periodic = field(init=False)
    # Whom signs of life were sent to that are not answered.
    _under_way: list[str] = field(factory=list, init=False)
    _busy: bool = field(default=False, init=False)
    _registering: Deferred[None] | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._beating = Periodic("signs of life to etcd", self.clock, self.beat)
        self._looking = Periodic("asking etcd for its alarms", self.clock, self._look)
        self.set.vote = self._vote

    # --- to become a member ---------------------------------------------------------

    async def join(self) -> SetState:
        """Get an id, if there is none, and a lease."""
        known = await self.in_thread(self.files.read)
        if known is None:
            known = await self._apply()
        self.id = self.set.own = known.id
        return (await self._register()).state

    async def _apply(self) -> Identity:
        applied = await self.in_thread(self.files.applied)
        if applied is None:
            taken = (await self.set.view()).ids
            number, token = 1 + max(taken, default=0), uuid4().hex
            applied = await self.in_thread(self.files.apply, number, token)
        key, ours = f"ids/{applied.id}", IdEntry(token=applied.check_code)
        made, view = await self.set.change([self.set.absent(key)], {key: ours.render()})
        if not made and view.ids[applied.id].token != applied.check_code:
            await self.in_thread(self.files.withdraw)
            why = f"another store got id {applied.id} first"
            raise EtcdRefused(self.set.leader, Code.BROKER_ID_INVALID, why)
        # Before the identity: that must not be there without it.
        await self.in_thread(write_entry, self.settings.store.root, ours)
        self._log.info("This node has id {id} in its set", id=applied.id)
        given: Identity = await self.in_thread(self.files.given, applied)
        return given

    async def _register(self) -> SetView:
        """Say where we are, under a new lease."""
        view = await self.set.view()
        ours = await self.in_thread(read_entry, self.settings.store.root)
        known, there = view.ids.get(self.id), view.living.get(self.id)
        if known is None:
            why = f"it knows no id {self.id} in this set"
            raise EtcdRefused(self.set.leader, Code.BROKER_NEED_TO_BE_REGISTERED, why)
        if ours is None or ours.token != known.token:
            raise IdentityInvalid(
                str(self.files.path), f"id {self.id} is that of another store in etcd"
            )
        if known.removed:
            raise IdentityInvalid(
                str(self.files.path),
                f"id {self.id} was removed from the set at {known.removed}; rmqha "
                "controller reset makes this store a new member",
            )
        if there is not None:
            if there.address != self.address:
                name, mine = self.settings.broker.name, self.generation()
                await refuse_twin(self.client, there.address, name, self.id, mine)
            # Maybe we were that, a moment ago.
            raise MemberLivesElsewhere(self.id, there.address, copied=False)
        if ours.run < known.run:
            raise IdentityInvalid(
                str(self.files.path),
                f"id {self.id} was registered {known.run} times, and this disk knows of "
                f"{ours.run}: it is an older state of that disk, or a copy of it, and may lack "
                "what was acknowledged; rmqha controller reset makes it a new member",
            )
        now = evolve(known, run=known.run + 1, address=self.address, left="")
        await self.in_thread(write_entry, self.settings.store.root, now)
        sent = self.clock.seconds()
        wanted = {"TTL": str(self.settings.etcd.lease)}
        granted = await self.set.client.ask("lease/grant", wanted, changes=True)
        number, ttl = str(granted["ID"]), int(granted["TTL"])
        lease = Lease(number, sent + ttl - margin(ttl))
        living = Living(token=now.token, address=self.address)
        # Before the answer: what that shows is held against it.
        self.set.lease = lease
        try:
            made, view = await self.set.change(
                [
                    self.set.absent(f"live/{self.id}"),
                    self.set.unchanged(f"ids/{self.id}", known.revision),
                ],
                {f"live/{self.id}": living.render(), f"ids/{self.id}": now.render()},
                number,
            )
        except RmqhaError:
            self.set.lease = None
            raise
        if not made:
            self.set.lease = None
            where = view.living.get(self.id, living).address
            raise MemberLivesElsewhere(self.id, where, copied=False)
        self.trouble = ""
        return view

    # --- to stay one ----------------------------------------------------------------

    def start(self) -> None:
        """Begin to give signs of life, at once."""
        self._beating.start(INTERVAL, now=True)
        self._looking.start(ALARMS_EVERY, now=True)

    async def _stop(self) -> None:
        looking = self._looking.stop()
        await self._beating.stop()
        if self._registering is not None:
            self._registering.cancel()
        await self._let_go("this node stops", "clean stop")
        await looking

    def stop(self) -> Deferred[None]:
        """Give none any more, and let the lease go: others may be elected at once."""
        return Deferred.fromCoroutine(self._stop())

    def beat(self) -> None:
        """Give one.  It is not waited for: the next one goes to another member of etcd."""
        self.set.look()
        if self.sign() is None:
            self._apart(self._let_go("this member must not be elected", "not fit to lead"))
        elif self.set.lease is None:
            if not self._busy:
                self._busy = True
                self._registering = self._apart(self._again())
        elif len(self._under_way) < MOST_UNDER_WAY:
            for address in tuple(self._under_way):
                self.set.client.leave(address)
            asked = self.set.client.address
            self._under_way.append(asked)
            kept = self._apart(self._keep_alive(self.set.lease))
            kept.addBoth(lambda _: self._under_way.remove(asked))

    def _apart(self, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        def failed(failure: Failure) -> None:
            if not failure.check(CancelledError):
                self._log.failure("Looking after the lease failed", failure)

        return Deferred.fromCoroutine(work).addErrback(failed)

    async def _keep_alive(self, lease: Lease) -> None:
        sent = self.clock.seconds()
        try:
            answer = await self.set.client.ask("lease/keepalive", {"ID": lease.id})
            ttl = int((answer.get("result") or {}).get("TTL", 0))
        except NoController:
            return  # it lives on by itself, for a while
        except (RmqhaError, TypeError, ValueError) as error:
            self._log.warn("etcd did not take a sign of life: {error}", error=error)
            return
        if ttl > 0:
            was_over = self.clock.seconds() >= lease.until
            lease.until = max(lease.until, sent + ttl - margin(ttl))
            if was_over:
                self.changed()
        elif self.set.lease is lease:
            self._log.warn("The lease of this member is over: it registers again")
            self.set.lease, self.trouble = None, "it is over"
            self.changed()
            self.beat()

    async def _again(self) -> None:
        """Register once more: another member may have been elected meanwhile."""
        try:
            await self._register()
        except (RmqhaError, OSError) as error:
            if str(error) != self.trouble:
                self._log.warn("No lease in etcd: {error}", error=error)
            self.trouble = str(error)
        finally:
            self._busy = False
        self.changed()

    async def _let_go(self, why: str, left: str) -> None:
        """@param left: The same, as others are told of it."""
        lease, self.set.lease = self.set.lease, None
        if lease is None:
            return
        self.trouble = why
        try:
            try:
                await self.set.leave(lease.id, left)
            except (EtcdRefused, ControllerUnanswered) as error:
                self._log.info("Others are not told why this member leaves: {error}", error=error)
            # A second time does no harm, and without it others wait for the lease's end.
            await self.set.client.ask("lease/revoke", {"ID": lease.id})
        except EtcdRefused as error:
            if error.code != _NOT_FOUND:
                self._log.warn("The lease ends by itself: {error}", error=error)
        except RmqhaError as error:
            self._log.info("The lease ends by itself: {error}", error=error)

    def _look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._ask_alarms())

    async def _ask_alarms(self) -> None:
        try:
            answer = await self.set.client.ask("maintenance/alarm", {"action": "GET"})
            found = {str(each["alarm"]) for each in answer.get("alarms", ())}
        except (RmqhaError, KeyError, TypeError) as error:
            self._log.debug("The alarms of etcd are not known: {error}", error=error)
            self.alarms = None
        else:
            self.alarms = tuple(sorted(found))

    # --- what follows ----------------------------------------------------------------

    def _vote(self, after: int) -> Vote | None:
        sign = self.sign()
        if sign is None:
            return None
        return Vote(
            after=after,
            label=sign.epoch or 0,
            end=sign.end,
            priority=self.settings.controller.priority,
        )

    def doubt(self, epoch: int) -> str:
        """Why a master may not be sure that it leads: its lease may be over, or not its own."""
        lease = self.set.lease
        if lease is None:
            return f"this member has no lease in etcd: {self.trouble}"
        if self.clock.seconds() >= lease.until:
            return "the lease of this master may be over: etcd took no sign of life in time"
        if lease.led != epoch:
            return f"etcd has not said under this lease that master epoch {epoch} goes on"
        return ""

    def health(self) -> Iterator[HealthReason]:
        """Without a lease this member cannot be elected, and acknowledges nothing; with an alarm
        etcd takes no change; of a set that is paused nobody follows a master that is lost.
        """
        lease = self.set.lease
        if self._beating.running and lease is None:
            yield HealthReason("no-lease", f"it has no lease in etcd: {self.trouble}")
        if self.alarms:
            yield HealthReason(
                "etcd-alarm",
                f"etcd has the alarm {' and '.join(self.alarms)}: until that is disarmed "
                "no member is elected, and none gets a new lease",
            )
        paused = self.set.paused
        if paused is not None:
            yield HealthReason("paused", f"the set is, {paused}: no member is elected by itself")

    def status(self) -> dict[str, object]:
        """C{lease}, C{paused} and C{etcd} of C{/status}."""
        lease, paused = self.set.lease, self.set.paused
        return {
            "lease": {
                "secondsLeft": None if lease is None else lease.until - self.clock.seconds(),
                "leads": lease is not None and lease.led is not None,
                "trouble": self.trouble,
            },
            "paused": None if paused is None else {"since": paused.since, "by": paused.by},
            "etcd": {
                **self.set.client.status(),
                "alarms": None if self.alarms is None else list(self.alarms),
            },
        }
