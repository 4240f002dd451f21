"""The way back of a change of roles that was interrupted.

What a command of C{--promote} has begun on the new master's machine may go on after all that is
seen from here: behind a connection that broke, detached, or in a thread of somebody's tool.  So the
old master is restored with the number of the change, which the promotion was told too
(L{UnderWay.number<rmqha.switchover.journal.UnderWay>}), and the way back ends only where the new
one follows it with that number.  Where that cannot be, a person has to look.

And of two masters that are seen, one takes no more writes.

Source: docs/guide/switchover.rst.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from rmqha.errors import RmqhaError
from rmqha.switchover.acts import NUMBER, Act, Hands
from rmqha.switchover.asked_broker import AskedBroker
from rmqha.switchover.errors import ActFailed, PairUnfit
from rmqha.switchover.journal import Phase, UnderWay
from rmqha.switchover.waiting import Patience, follows, is_master
from rmqha.wire.remoting.bodies.tables import WRITE


@frozen
class WayBack:
    """Has the old master be master again.

    @ivar old: That one.
    @ivar new: The slave that was to be master.
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
        """What a person is told to do."""
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
            closed = await self._close(self.old, under_way)
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
            closed = await self._close(self.new, under_way)
            raise PairUnfit(
                f"two masters: {self.new.address} became one beside {self.old.address}; {closed}. "
                f"Stop {self.new.address}, start it as a slave of {self.old.address}, and run this "
                "command with --back again"
            )
        closed = await self._close(self.old, under_way)
        raise self._none(f"two masters: {closed}, stop it; ")

    async def _close(self, broker: AskedBroker, under_way: UnderWay) -> str:
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
