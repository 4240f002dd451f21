"""The steps of a planned change of roles in a classic pair.

Everything is asked of, and seen at, the two client ports, so stock brokers and ours change roles
with each other.  Before a step the journal names it; the step itself first looks whether it was
done.  So the command can be ended at any moment, and run again.

There is one point from which the way back is another way: the new master's first write.  Up to
there the old master's log has all there is.

On the way back of one that was interrupted: what a command of C{--promote} has begun on the new
master's machine may go on after all that is seen from here: behind a connection that broke,
detached, or in a thread of somebody's tool.  So the old master is restored with the number of the
change, which the promotion was told too (L{UnderWay.number<rmqha.switchover.journal.UnderWay>}),
and the way back ends only where the new one follows it with that number.  Where that cannot be, a
person has to look.

And of two masters that are seen, one takes no more writes.

Source: docs/guide/switchover.rst.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, evolve

from rmqha.errors import RmqhaError
from rmqha.switchover.acts import NUMBER, Act, Hands
from rmqha.switchover.asked_broker import AskedBroker, BrokerState, lower_offsets
from rmqha.switchover.errors import ActFailed, PairUnfit, SwitchoverError
from rmqha.switchover.journal import Phase, SwitchoverJournal, UnderWay
from rmqha.switchover.waiting import Missing, Patience, follows, is_gone, is_master
from rmqha.wire.remoting.bodies.tables import READ, WRITE


@define(eq=False, kw_only=True)
class WayBack:
    """Has the old master be master again.

    @ivar old: That one.
    @ivar new: The slave that was to be master.
    @ivar hands: Stops and starts processes, or has that done.
    @ivar say: Tells the operator something.
    @ivar waiting: Waits for what can be seen.
    """

    old: AskedBroker
    new: AskedBroker
    hands: Hands
    say: Callable[[str], None]
    waiting: Patience

    async def go(self, under_way: UnderWay) -> None:
        """Until the old one is master, and the new one follows it if it might have become one.

        @raise SwitchoverError: If that cannot be, or stands still.
        """
        if under_way.phase is Phase.FOLLOWING:
            raise self._none()
        late = under_way.phase is Phase.PROMOTING

        async def serves() -> str:
            await self.refuse_two(under_way, served=False)
            return await is_master(self.old)()

        if await serves():
            if late:
                self._refuse_unsafe(under_way)
            try:
                what = self._what(under_way, late=late)
                by_command = await self.hands.do(Act.RESTORE, what, under_way.number)
            except ActFailed as error:
                await serves()
                raise PairUnfit(
                    f"{error}. {self.old.address} refuses to start beside {self.new.address}, if "
                    "that has become master: then run this command without --back, to its end"
                ) from error
            await self.waiting.until(serves, f"{self.old.address} serves", patient=not by_command)
        if late:
            await self._followed(under_way)

    def _what(self, under_way: UnderWay, *, late: bool) -> str:
        start = f"start {self.old.address} as a master, with the configuration that it had"
        if not late:
            return start
        return (
            f"see on its machine that nothing promotes {self.new.address} any more, and that it is "
            f"stopped; run {_promote(under_way)} on the store of {self.old.address}, unless that "
            f"is a stock broker; {start}"
        )

    def _refuse_unsafe(self, under_way: UnderWay) -> None:
        """A command restores the old master only if a new one that comes late refuses to start."""
        if Act.RESTORE not in self.hands.commands:
            return
        old, new = self.old.address, self.new.address
        if not under_way.refuses:
            raise PairUnfit(
                f"{new} may still be promoted, by what {Act.PROMOTE.value} has begun on its "
                f"machine, and would not refuse to start beside {old}: one of the two is a stock "
                f"broker, or they know no name server in common, or that command does not name "
                f"${NUMBER}. Run this command without --back, to its end; or with --back and "
                f"without {Act.RESTORE.value}: then it says what to look at first"
            )
        if not self.hands.numbered(Act.RESTORE):
            raise PairUnfit(
                f"{new} may still be promoted, and would not refuse to start beside {old}: the "
                f"command of {Act.RESTORE.value} has to run {_promote(under_way)} on the store of "
                f"{old} before it starts it, and to take that number from ${NUMBER}"
            )

    async def _followed(self, under_way: UnderWay) -> None:
        """Wait until the new one follows, so that it cannot be promoted to the same number any
        more.
        """
        old, new = self.old.address, self.new.address
        look = await self.old.look()
        if look.ours and look.epoch < under_way.number:
            closed = await self._make_read_only(self.old, under_way)
            raise PairUnfit(
                f"{old} is master with master epoch {look.epoch}, and {new}, which may still be "
                f"promoted to {under_way.number}, would not refuse to start beside it; {closed}. "
                f"Stop {old}, run {_promote(under_way)} on its store, start it, and run this "
                "command with --back again"
            )
        following = follows(self.new, self.old, look.epoch)

        async def missing() -> str:
            await self.refuse_two(under_way, served=True)
            return await following()

        if await self.new.seen() is None:
            self.say(f"now you: start {new} as a slave of {old}")
        await self.waiting.until(missing, f"{new} follows", patient=True)

    async def refuse_two(self, under_way: UnderWay, *, served: bool) -> None:
        """There is no way back beside a new master; and of two masters one takes no more writes.

        @param served: Whether the old one is known to have been master before the new one.
        @raise PairUnfit: If there is a new one.
        """
        new = await self.new.seen()
        if new is None or not new.is_master:
            return
        old = await self.old.seen()
        if old is None or not old.is_master:
            raise self._none()
        if served or (old.writable and not new.writable):
            closed = await self._make_read_only(self.new, under_way)
            raise PairUnfit(
                f"two masters: {self.new.address} became one beside {self.old.address}; {closed}. "
                f"Stop {self.new.address}, start it as a slave of {self.old.address}, and run this "
                "command with --back again"
            )
        closed = await self._make_read_only(self.old, under_way)
        raise self._none(f"two masters: {closed}, stop it; ")

    async def _make_read_only(self, broker: AskedBroker, under_way: UnderWay) -> str:
        """Have one that should be no master take no more writes.

        @return: What became of that, in words.
        """
        try:
            await broker.permit(under_way.permission & ~WRITE)
        except RmqhaError as error:
            return f"{broker.address} could not be made read-only ({error})"
        return f"{broker.address} was made read-only"

    def _none(self, first: str = "") -> PairUnfit:
        return PairUnfit(
            f"{first}{self.new.address} became master and may have taken writes: run this command "
            f"without --back to its end, then go back by `rmqha switchover {self.new.address} "
            f"{self.old.address}`"
        )


def _promote(under_way: UnderWay) -> str:
    return f"`rmqha promote STORE --unverified --epoch {under_way.number}`"


NEAR = 64 << 20
"""Bytes that a slave may be behind when a change of roles begins."""


@define(eq=False, kw_only=True)
class Switchover(WayBack):
    """Changes the roles of two brokers, or back.

    @ivar now_ms: Milliseconds since 1970.
    """

    journal: SwitchoverJournal
    now_ms: Callable[[], int]

    async def run(self) -> None:
        """Change the roles, or go on with it.

        @raise SwitchoverError: If that cannot be, or stands still.
        """
        under_way = await self._under_way()
        if under_way is None:
            checked = await self._check()
            if checked is None:
                return
            under_way = checked
        else:
            self.say(f"going on: {under_way.phase.name.lower()} had begun")
        if under_way.phase <= Phase.STOPPING and not await self._stopped(under_way):
            under_way = await self._close(under_way)
        if under_way.phase <= Phase.STOPPING:
            await self._stop(under_way)
        if under_way.phase <= Phase.PROMOTING:
            under_way = await self._promote(under_way)
        lowered = lower_offsets(await self.new.offsets(), under_way.offsets)
        await self._follow(under_way)
        if lowered:
            more = "" if len(lowered) <= 3 else f" and {len(lowered) - 3} more"
            raise SwitchoverError(
                f"{len(lowered)} consumer offsets are lower than the old master's were: "
                f"{'; '.join(lowered[:3])}{more}"
            )

    async def check(self) -> None:
        """Look whether the roles can be changed, and change nothing.

        @raise PairUnfit: If they cannot.
        """
        await self._check()

    async def back(self) -> None:
        """Have the old master be master again.

        @raise SwitchoverError: If that cannot be, or stands still.
        """
        under_way = await self._under_way()
        if under_way is None:
            raise PairUnfit(f"there is no way back, as {self.journal.path} tells of no switchover")
        await self.go(under_way)
        await self.old.permit(under_way.permission)
        self._forget()
        self.say(f"{self.old.address} is master and takes writes, as before")

    # --- the steps ------------------------------------------------------------------

    async def _under_way(self) -> UnderWay | None:
        await self.waiting.until(
            self.hands.busy, "the command that was begun before ends", patient=True
        )
        found = self.journal.read()
        if found and (found.master, found.slave) != (self.old.address, self.new.address):
            raise PairUnfit(
                f"{self.journal.path} tells of another switchover, of {found.master} with "
                f"{found.slave}: end that one first, or give another --journal"
            )
        return found

    async def _check(self) -> UnderWay | None:
        """@return: What is about to begin; C{None} if the roles are changed already."""
        # In this order: the master goes on.
        new, old = await self.new.look(), await self.old.look()
        if new.is_master and not old.is_master:
            self.say(f"nothing to do: {self.new.address} is {new}; {self.old.address} is {old}")
            return None
        unfit = _unfit(old, new)
        if unfit:
            raise PairUnfit(f"{self.old.address} is {old}; {self.new.address} is {new}: {unfit}")
        self.say(f"{self.old.address} is {old}")
        self.say(f"{self.new.address} is {new}, {old.end - new.end} bytes behind")
        self._way_back("nothing was changed")
        permission = old.permission if old.writable else READ | WRITE
        return UnderWay(
            master=self.old.address,
            slave=self.new.address,
            phase=Phase.CLOSING,
            permission=permission,
            closed=self.now_ms(),
            epoch=max(old.epoch, new.epoch),
            refuses=old.ours and new.ours and bool(old.name_servers & new.name_servers),
        )

    async def _stopped(self, under_way: UnderWay) -> bool:
        """Whether the old master was stopped by us, and is."""
        return under_way.phase is Phase.STOPPING and await self.old.gone()

    async def _close(self, under_way: UnderWay) -> UnderWay:
        """Have the old master take no more writes, and wait until the slave has all."""
        old = await self.old.look()
        if not old.is_master:
            raise PairUnfit(f"{self.old.address} was to be stopped as a master, and is {old}")
        under_way = evolve(under_way, phase=Phase.CLOSING)
        self.journal.write(under_way)
        try:
            await self.old.permit(under_way.permission & ~WRITE)
            self.say(f"{self.old.address} refuses writes (code 16); consumers go on there")
            self._way_back("run this command with --back: writes are taken at once")
            return await self._drain(under_way)
        except RmqhaError:
            await self._reopen(under_way)
            raise

    async def _reopen(self, under_way: UnderWay) -> None:
        try:
            await self.old.permit(under_way.permission)
        except RmqhaError as error:
            self.say(f"{self.old.address} is still read-only, run this with --back: {error}")
        else:
            self._forget()
            self.say(f"{self.old.address} takes writes again, as before")

    async def _drain(self, under_way: UnderWay) -> UnderWay:
        """Wait for the last byte, and for the last offsets."""
        held = under_way

        async def all_there() -> str:
            nonlocal held
            old = await self.old.look()
            tables = await self.old.tables()
            new = await self.new.look()
            held = evolve(under_way, end=old.end, offsets=tables.offsets)
            if new.end != old.end:
                return f"it has {new.end} of {old.end} bytes"
            lacks = (await self.new.tables()).lacks(tables)
            return f"{len(lacks)} rows are missing there, such as {lacks[0]}" if lacks else ""

        await self.waiting.until(
            all_there, f"{self.new.address} has all that {self.old.address} has"
        )
        self.say(f"{self.new.address} has the log up to byte {held.end}, and the same offsets")
        return held

    async def _stop(self, under_way: UnderWay) -> None:
        if under_way.phase is Phase.CLOSING:
            self.journal.write(evolve(under_way, phase=Phase.STOPPING))
        self._way_back(
            f"start {self.old.address} as it was, and run this command with --back; if it is a "
            "stock broker, its file says that it is read-only"
        )
        if not await self.old.gone():
            what = f"stop {self.old.address}, and see to it that nothing starts it as a master"
            await self._done(
                under_way, Act.STOP, what, is_gone(self.old), f"{self.old.address} is stopped"
            )
        self.say(f"{self.old.address} is stopped: there is no master now")

    async def _promote(self, under_way: UnderWay) -> UnderWay:
        """Have the slave become master.

        @return: What is under way, with what was seen of it.
        """
        old, new = await self.old.seen(), await self.new.seen()
        if old is not None and old.is_master:
            await self.refuse_two(under_way, served=False)
            raise PairUnfit(
                f"{self.old.address} is {old} again while {self.new.address} is about to be master:"
                " stop it, or run this command with --back"
            )
        if new is not None and not new.is_master:
            # It may have more than it had, and know the number, if the old one was restored before.
            under_way = evolve(
                under_way, end=max(new.end, under_way.end), epoch=max(new.epoch, under_way.epoch)
            )
        if new is None or not new.is_master:
            under_way = evolve(
                under_way,
                phase=Phase.PROMOTING,
                refuses=under_way.refuses and self.hands.numbered(Act.PROMOTE),
            )
            self.journal.write(under_way)
            self._way_back(
                "as long as the new master has not started, run this command with --back, which "
                "says what to start; after its first write, change the roles again"
            )
            what = (
                f"stop {self.new.address}, turn its store into a master's (`rmqha promote STORE "
                f"--tables DIR --epoch {under_way.number}`, unless it is a stock broker), and "
                "start it with brokerId=0 as a master"
            )
            wanted = f"{self.new.address} is a master"
            await self._done(under_way, Act.PROMOTE, what, is_master(self.new), wanted)
        await self._let_write(under_way)
        return under_way

    async def _let_write(self, under_way: UnderWay) -> None:
        """See that the new master takes writes, and has what the old one had."""
        look = await self.new.look()
        if not look.writable:
            # A stock broker that was master before, and was told so then.
            await self.new.permit(under_way.permission)
        if look.end < under_way.end:
            raise PairUnfit(
                f"{self.new.address} is {look}, and had {under_way.end} bytes as a slave"
            )
        self.say(f"{self.new.address} is {await self.new.look()}")
        self.say(f"writes were refused for {(self.now_ms() - under_way.closed) / 1000:.1f} s")

    async def _follow(self, under_way: UnderWay) -> None:
        self.journal.write(evolve(under_way, phase=Phase.FOLLOWING))
        self._way_back(
            f"end this first, then run `rmqha switchover {self.new.address} {self.old.address}`"
        )
        old = await self.old.seen()
        if old is None or old.is_master:
            new = await self.new.look()
            trust = "" if new.ours else ", and haTrustMaster, as a stock master has no epoch"
            what = f"start {self.old.address} as a slave: brokerRole=SLAVE, brokerId=1{trust}"
            if old is not None:
                what = f"two masters: stop {self.old.address} at once, then {what}"
            await self._done(
                under_way,
                Act.FOLLOW,
                what,
                follows(self.old, self.new),
                f"{self.old.address} follows",
            )
        else:
            await self.waiting.until(follows(self.old, self.new), f"{self.old.address} follows")
        # So that it takes writes when it is master again: a stock broker keeps what it was told.
        await self.old.permit(under_way.permission)
        self._forget()
        self.say(f"{self.old.address} is {await self.old.look()}")
        self.say("done")

    async def _done(
        self, under_way: UnderWay, act: Act, what: str, missing: Missing, wanted: str
    ) -> None:
        """Have something done on a machine, and see that it was.

        @param what: It, as a person is told to do it.
        """
        by_command = await self.hands.do(act, what, under_way.number)
        await self.waiting.until(missing, wanted, patient=not by_command)

    def _forget(self) -> None:
        self.journal.remove()
        self.hands.leave()

    def _way_back(self, how: str) -> None:
        self.say(f"  to go back: {how}")


def _unfit(old: BrokerState, new: BrokerState) -> str:
    """Why two brokers cannot change their roles; empty if they can."""
    if old.elected or new.elected:
        return "controllers choose their roles: `rmqha controller elect` has a member elected"
    if not old.is_master or new.is_master:
        return "the first has to be the master, the second its slave"
    if (old.name, old.cluster) != (new.name, new.cluster):
        return f"they are of {old.cluster}/{old.name} and {new.cluster}/{new.name}"
    if old.file_size != new.file_size:
        return f"mappedFileSizeCommitLog is {old.file_size} there and {new.file_size} here"
    if new.end > old.end:
        return f"the slave has {new.end - old.end} bytes more"
    behind = old.end - new.end
    if behind > NEAR:
        return f"the slave is {behind} bytes behind, more than {NEAR}: wait until it is near"
    return ""
