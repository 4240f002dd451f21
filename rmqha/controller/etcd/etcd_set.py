"""One set in etcd: who is master of it, as one transaction after the other decides.

Source: docs/protocol/etcd.rst.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from attrs import asdict, define, evolve, field
from twisted.internet.defer import Deferred

from rmqha.controller.coordinator import SetState
from rmqha.controller.etcd.client import (
    Answer,
    EtcdClient,
    EtcdRefused,
    EtcdWatch,
    below,
    encoded,
)
from rmqha.controller.etcd.set_keys import ELECTION, Decided, Paused, SetView, Vote
from rmqha.errors import ElectionPaused, Refused
from rmqha.wire.remoting.bodies.controller import ReplicasInfo, SetMember
from rmqha.wire.remoting.codes import ControllerResponseCode as Code

BALLOT = 0.5
"""Seconds that an election waits for the votes of members that live, and for the best of them to
take the lead."""

KEPT = 20
"""Elections that are remembered."""


def moment() -> str:
    """Now, for people and programs."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@define(eq=False)
class Lease:
    """What says that a member lives, for a while after each sign of life.

    @ivar id: As etcd gave it.
    @ivar until: Up to when it surely lives, by our own clock.
    @ivar led: The master epoch in which C{live/N} with this lease was seen to be that of the
        master; C{None} if it was not.
    """

    id: str
    until: float
    led: int | None = field(default=None, init=False)


@define(eq=False, kw_only=True)
class EtcdSet:
    """One set; a L{SetCoordinator<rmqha.controller.coordinator.SetCoordinator>}.

    @ivar prefix: Of all its keys, with a slash at the end.
    @ivar own: The id of the member that we speak for, while it has one.
    @ivar lease: Its lease; C{None} while it does not live.
    @ivar vote: What it has to say in the election after a master epoch; C{None} if it must not be
        elected.
    @ivar operator: Who speaks, where that is no member.
    @ivar now: Says what time it is.
    """

    client: EtcdClient
    prefix: str
    now: Callable[[], str] = moment
    own: int = field(default=0, init=False)
    lease: Lease | None = field(default=None, init=False)
    vote: Callable[[int], Vote | None] = field(default=lambda epoch: None, init=False)
    operator: str = field(default="", init=False)
    _view: SetView | None = field(default=None, init=False)
    _watch: EtcdWatch | None = field(default=None, init=False)
    # For which election votes are waited for, and since when.
    _voting: tuple[int, float] = field(default=(-1, 0.0), init=False)

    @classmethod
    def named(cls, client: EtcdClient, prefix: str, cluster: str, name: str) -> Self:
        """That of a cluster and a C{brokerName}."""
        return cls(client=client, prefix=f"{prefix.rstrip('/')}/{cluster}/{name}/")

    def key(self, name: str) -> str:
        """A key of the set, as the gateway takes it."""
        return encoded(self.prefix + name)

    # --- to read -------------------------------------------------------------------

    @property
    def leader(self) -> str:
        """The member of etcd that answered last."""
        return self.client.answering

    async def find_leader(self) -> str:
        """See that etcd answers, with a quorum."""
        await self.client.ask("kv/range", {"key": self.key("set")})
        return self.leader

    async def view(self) -> SetView:
        """Read all of the set, at one revision, as a quorum has it."""
        return self._viewed(await self.client.ask("kv/range", below(self.prefix)))

    def _viewed(self, answer: Answer) -> SetView:
        """What a range has, which is kept."""
        try:
            view = SetView.parse(answer, self.prefix)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EtcdRefused(
                self.client.address, 0, f"what is below {self.prefix} cannot be read: {error!r}"
            ) from None
        if self._view is None or view.at >= self._view.at:
            self._view = view
            if self.lease is not None:
                ours = view.living.get(self.own)
                leads = view.decided.master == self.own and ours is not None
                held = leads and ours is not None and ours.lease == self.lease.id
                self.lease.led = view.decided.epoch if held else None
        return view

    @property
    def paused(self) -> Paused | None:
        """Whether it is, as far as is known."""
        return None if self._view is None else self._view.paused

    # --- to change -------------------------------------------------------------------

    async def change(
        self, compare: list[Answer], puts: Mapping[str, str | None], lease: str = ""
    ) -> tuple[bool, SetView]:
        """Make one transaction.

        @param compare: What has to hold.
        @param puts: New values by name of the key; C{None} to delete it.
        @param lease: Of those below C{live/}.
        @return: Whether it was made, and what there is after it.
        @raise EtcdUnanswered: If the outcome is not known.
        """
        made = [
            {"request_delete_range": {"key": self.key(name)}}
            if value is None
            else {
                "request_put": {
                    "key": self.key(name),
                    "value": encoded(value),
                    **({"lease": lease} if name.startswith("live/") else {}),
                }
            }
            for name, value in puts.items()
        ]
        read = {"request_range": below(self.prefix)}
        answer = await self.client.ask(
            "kv/txn",
            {"compare": compare, "success": [*made, read], "failure": [read]},
            changes=True,
        )
        responses = answer.get("responses") or [{}]
        ranged = {**responses[-1].get("response_range", {}), "header": answer.get("header", {})}
        return bool(answer.get("succeeded")), self._viewed(ranged)

    def unchanged(self, name: str, revision: int) -> Answer:
        """Compares: a key was not written since."""
        key = self.key(name)
        return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}

    def lives(self, number: int, lease: str = "") -> Answer:
        """Compares: a member lives; with a lease, by that one."""
        key = self.key(f"live/{number}")
        if lease:
            return {"key": key, "target": "LEASE", "result": "EQUAL", "lease": lease}
        return {"key": key, "target": "CREATE", "result": "GREATER", "create_revision": "0"}

    def absent(self, name: str) -> Answer:
        """Compares: there is no such key."""
        key = self.key(name)
        return {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}

    # --- a coordinator ---------------------------------------------------------------

    def current(self) -> Deferred[SetState]:
        """What is decided now."""
        return Deferred.fromCoroutine(self._current())

    async def _current(self) -> SetState:
        return (await self.view()).state

    def members(self) -> Deferred[Mapping[int, str]]:
        """Where members are, whether they live or not."""
        return Deferred.fromCoroutine(self._members())

    async def _members(self) -> dict[int, str]:
        found = (await self.view()).members
        return {number: each.address for number, each in found.items() if each.address}

    async def sets(self, names: Sequence[str]) -> dict[str, ReplicasInfo]:
        """Ask what is known of this set, as controllers would tell it.

        @param names: C{brokerName}s; what is not ours is left out.
        """
        name, view = self.prefix.split("/")[-2], await self.view()
        if name not in names or not view.members:
            return {}
        decided, state = view.decided, view.state
        members = {
            number: SetMember(
                broker_name=name,
                broker_id=number,
                broker_address=each.address,
                alive=number in view.living,
            )
            for number, each in view.members.items()
        }
        inside = [number for number in members if number in decided.in_sync]
        return {
            name: ReplicasInfo(
                master_broker_id=decided.master or None,
                master_address=None if state.master is None else state.master.address,
                master_epoch=decided.epoch,
                sync_state_set_epoch=decided.set_epoch,
                in_sync_replicas=tuple(members[number] for number in inside),
                not_in_sync_replicas=tuple(
                    each for number, each in members.items() if number not in inside
                ),
            )
        }

    def elect(self, member: int, *, designated: bool = False) -> Deferred[SetState]:
        """Have a master elected, if there is none that lives."""
        return Deferred.fromCoroutine(
            self._designate(member) if designated else self._elect(member)
        )

    async def _designate(self, member: int) -> SetState:
        view = await self.view()
        if member not in view.candidates():
            why = f"id {member} is not alive and in sync"
            raise EtcdRefused(self.leader, Code.ELECT_MASTER_FAILED, why)
        return await self._lead(view, member, [self.lives(member)], f"chosen by {self.operator}")

    async def _elect(self, member: int) -> SetState:
        view = await self.view()
        lease, vote = self.lease, self.vote(view.decided.epoch)
        master = view.decided.master
        if master in view.living or lease is None or vote is None:
            return view.state
        if view.paused is not None:
            raise ElectionPaused(self.leader, Code.ELECT_MASTER_FAILED, str(view.paused))
        if view.decided.epoch and member not in view.decided.in_sync:
            if view.candidates():
                return view.state
            why = f"only {sorted(view.decided.in_sync)} may be elected, and none of them lives"
            raise EtcdRefused(self.leader, Code.ELECT_MASTER_FAILED, why)
        ours = view.living.get(member)
        if ours is None or ours.lease != lease.id:
            return view.state
        alive = self.lives(member, lease.id)
        if ours.vote != vote:
            now = evolve(ours, vote=vote)
            made, view = await self.change([alive], {f"live/{member}": now.render()}, lease.id)
            if not made:
                return view.state
        if not self._is_our_turn(view, member):
            return view.state
        entry = view.ids.get(master)
        left = "lease over" if entry is None or not entry.left else entry.left
        alone = [alive, self.absent(f"live/{master}"), self.absent("paused")]
        return await self._lead(view, member, alone, left if view.decided.epoch else "first")

    def _is_our_turn(self, view: SetView, member: int) -> bool:
        """Whether ours is the longest log of all that may lead, or time is over."""
        epoch, seconds = view.decided.epoch, self.client.clock.seconds()
        if self._voting[0] != epoch:
            self._voting = epoch, seconds
        waited = seconds - self._voting[1]
        votes, missing = {}, False
        for number, living in view.candidates().items():
            if living.vote is None or living.vote.after != epoch:
                missing = True
            else:
                votes[number] = living.vote.weight(number)
        if member not in votes or (missing and waited < BALLOT):
            return False
        return max(votes, key=lambda number: votes[number]) == member or waited >= 2 * BALLOT

    async def _lead(self, view: SetView, member: int, compare: list[Answer], why: str) -> SetState:
        decided = view.decided.elected(member)
        fields = self.now(), view.decided.master, member, decided.epoch, decided.set_epoch, why
        try:
            before = view.elections()
        except ValueError:
            before = []  # nobody is to be without a master for that
        history = [*before, dict(zip(ELECTION, fields, strict=True))][-KEPT:]
        _, view = await self.change(
            [self.unchanged("set", view.revision), *compare],
            {"set": decided.render(), "history": json.dumps(history)},
        )
        return view.state

    def alter(self, old: SetState, new: frozenset[int]) -> Deferred[SetState]:
        """Have the ids changed from which a master may be elected."""
        return Deferred.fromCoroutine(self._alter(old, new))

    async def _alter(self, old: SetState, new: frozenset[int]) -> SetState:
        view = self._view
        if view is None or not _is_same(view.decided, old):
            view = await self.view()
            self._require_same(view, old)
        lease = "" if self.lease is None else self.lease.id
        decided = evolve(view.decided, in_sync=new, set_epoch=old.set_epoch + 1)
        made, now = await self.change(
            [
                self.unchanged("set", view.revision),
                self.lives(view.decided.master, lease),
                *map(self.lives, sorted(new - old.in_sync)),
            ],
            {"set": decided.render()},
        )
        if made:
            return now.state
        self._require_same(now, old)
        ours = now.living.get(old.master.id) if old.master is not None else None
        if ours is None or ours.lease != lease:
            raise EtcdRefused(self.leader, Code.INVALID_MASTER, "the lease of its master is over")
        raise EtcdRefused(self.leader, Code.BROKER_NOT_ALIVE, f"not all of {sorted(new)} live")

    def _require_same(self, view: SetView, old: SetState) -> None:
        """@raise EtcdRefused: If something else is decided."""
        decided = view.decided
        if _is_same(decided, old):
            return
        later = decided.epoch > old.master_epoch
        code = Code.FENCED_MASTER_EPOCH if later else Code.FENCED_SYNC_STATE_SET_EPOCH
        what = f"master epoch {decided.epoch}, set epoch {decided.set_epoch}"
        raise EtcdRefused(self.leader, code, f"it is in {what} by now")

    # --- what operators do -------------------------------------------------------------

    async def pause(self) -> Paused:
        """Have no member elected by itself from now on.

        @return: Since when; earlier, if it was paused before.
        """
        ours = Paused(since=self.now(), by=self.operator)
        _, view = await self.change([self.absent("paused")], {"paused": json.dumps(asdict(ours))})
        return view.paused or ours

    async def resume(self) -> Paused | None:
        """Have members elected by themselves again.

        @return: Since when they were not; C{None} if they were.
        """
        paused = (await self.view()).paused
        if paused is not None:
            await self.change([], {"paused": None})
        return paused

    async def leave(self, lease: str, why: str) -> None:
        """Live no more, and say why."""
        if self._view is not None and self.own in self._view.ids:
            entry = evolve(self._view.ids[self.own], left=why)
            await self.change(
                [self.lives(self.own, lease)],
                {f"live/{self.own}": None, f"ids/{self.own}": entry.render()},
            )

    async def remove(self, member: int, *, in_sync: bool = False) -> SetState:
        """Take a member out of the set that never comes back.

        @param in_sync: Whether it may be one that could be elected.
        @return: What is decided then.
        @raise Refused: If it must not be.
        """
        view = await self.view()
        decided, entry, puts = view.decided, view.members.get(member), {}
        if entry is None:
            known = f"there are {list(view.members)}"
            raise Refused("remove", f"the set has no member with id {member}: {known}")
        if member in view.living:
            raise Refused("remove", f"id {member} at {entry.address} lives: stop it first")
        if member == decided.master:
            why = f"id {member} is the set's master, and may have what no other member has"
            raise Refused("remove", f"{why}: have another one elected first (rmqha set elect)")
        compare = [
            self.unchanged("set", view.revision),
            self.unchanged(f"ids/{member}", entry.revision),
            self.absent(f"live/{member}"),
        ]
        if member in decided.in_sync:
            rest = decided.in_sync - {member}
            if decided.master in view.living:
                why = f"id {member} is in the SyncStateSet, and its master is about to leave it out"
                raise Refused("remove", f"{why}: wait until rmqha set list says no, and try again")
            if not in_sync:
                raise Refused(
                    "remove",
                    f"id {member} is in the SyncStateSet and has all that was acknowledged. "
                    f"Without it only {sorted(rest)} may be elected: if their disks are lost, so "
                    "is the log. --in-sync removes it all the same",
                )
            compare.append(self.absent(f"live/{decided.master}"))
            now = evolve(decided, in_sync=rest, set_epoch=decided.set_epoch + 1)
            puts["set"] = now.render()
        gone = evolve(entry, removed=self.now())
        made, after = await self.change(compare, {f"ids/{member}": gone.render(), **puts})
        if not made:
            raise Refused("remove", "something else was decided meanwhile: rmqha set list shows it")
        return after.state

    async def forget(self) -> list[int]:
        """Delete all that is known of a set of which nobody lives.

        @return: Which members it had.
        @raise Refused: If there is no such set, or a member lives.
        """
        view = await self.view()
        if not view.ids:
            raise Refused("remove", f"there is nothing below {self.prefix}")
        answer = await self.client.ask(
            "kv/txn",
            {
                "compare": [{**self.absent("live/"), **below(f"{self.prefix}live/")}],
                "success": [{"request_delete_range": below(self.prefix)}],
            },
            changes=True,
        )
        if not answer.get("succeeded"):
            raise Refused("remove", f"{sorted((await self.view()).living)} live: stop them first")
        return list(view.members)

    async def try_to_write(self) -> None:
        """See that etcd would take a change, without one.

        @raise EtcdRefused: If it would not.
        """
        never = [self.absent("set"), self.unchanged("set", 1)]
        await self.change(never, {"set": ""})

    async def lease_seconds(self) -> dict[int, int]:
        """How long the lease of each living member goes on without a sign of life, by id."""
        found: dict[int, int] = {}
        for number, living in sorted((await self.view()).living.items()):
            answer = await self.client.ask("lease/timetolive", {"ID": living.lease})
            left = int(answer.get("TTL", 0))
            if left > 0:
                found[number] = left
        return found

    # --- to be told ------------------------------------------------------------------

    def follow(self, told: Callable[[], None]) -> None:
        """Have it called when something may have been decided."""
        self._watch = EtcdWatch(client=self.client, keys=below(self.prefix), told=told)
        self._watch.start()

    def look(self) -> None:
        """Some time has passed."""
        if self._watch is not None:
            self._watch.look()

    def close(self) -> Deferred[None]:
        """Ask no more, and end the connections."""
        if self._watch is not None:
            self._watch.stop()
        return self.client.close()


def _is_same(decided: Decided, old: SetState) -> bool:
    master = old.master
    return (decided.epoch, decided.set_epoch, decided.in_sync) == (
        old.master_epoch,
        old.set_epoch,
        old.in_sync,
    ) and (master is None or master.id == decided.master)
