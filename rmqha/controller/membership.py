"""How a node becomes a member of its set, and stays one: by an id, and by signs of life.

The id is asked for once and belongs to the log.  Two that ask at the same moment race for one; who
loses asks for another.  Signs of life go to every controller over a connection of their own, which
nothing else closes: a controller takes a member whose connection ends for dead, and elects.

Source: docs/protocol/controller.rst, Identity and Requests.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmqha.config.controller_settings import ControllerSettings
from rmqha.controller.coordinator import SetMembership, SetState
from rmqha.controller.group import ControllerGroup
from rmqha.controller.other_members import refuse_twin
from rmqha.errors import ControllerRefused
from rmqha.periodic import Periodic
from rmqha.wire.remoting.headers.controller import NO_EPOCH, MemberHeartbeatRequest


@define(eq=False, kw_only=True)
class Membership(SetMembership):
    """That of a member whose set controllers look after; they give no time for which a master may
    be sure of it, and do not answer signs of life.

    @ivar beats: The same, over connections for signs of life alone.
    """

    group: ControllerGroup
    beats: ControllerGroup
    settings: ControllerSettings
    _beating: Periodic = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._beating = Periodic("signs of life to the controllers", self.clock, self.beat)

    async def join(self) -> SetState:
        """Get an id, if there is none, and say where we are.

        @return: What is decided; without a master if none lives.
        @raise IdentityInvalid: If the store's is one of another set, or cannot be read.
        @raise MemberLivesElsewhere: If our id is alive at another address.
        @raise ControllerRefused: If somebody else got the id first, or the controllers do not know
            ours.
        @raise NoController: If nobody leads; and what else L{ControllerGroup.ask} raises.
        """
        known = await self.in_thread(self.files.read)
        if known is None:
            known = await self._apply()
        else:
            await self._require_single(known.id)
        self.id = known.id
        return await self.group.register(self.id, self.address)

    async def _require_single(self, number: int) -> None:
        """Ask who lives under our id, before its address is taken from it: on a copy of its disk we
        would lead beside it.
        """
        name = self.group.name
        known = (await self.group.sets((name,))).get(name)
        for each in () if known is None else (*known.in_sync_replicas, *known.not_in_sync_replicas):
            where = each.broker_address
            if each.broker_id == number and where != self.address and each.alive:
                await refuse_twin(self.group.client, where, name, number, self.generation())

    async def _apply(self) -> Any:
        applied = await self.in_thread(self.files.applied)
        if applied is None:
            number = await self.group.next_id()
            code = f"{self.address};{self.group.now_ms()}"
            applied = await self.in_thread(self.files.apply, number, code)
        try:
            await self.group.apply(applied.id, applied.check_code)
        except ControllerRefused:
            await self.in_thread(self.files.withdraw)
            raise
        self._log.info("This node has id {id} in its set", id=applied.id)
        return await self.in_thread(self.files.given, applied)

    def start(self) -> None:
        """Begin to give signs of life, at once."""
        self._beating.start(self.settings.heartbeat, now=True)

    def stop(self) -> Deferred[None]:
        """Give none any more."""
        return self._beating.stop().addCallback(lambda _: self.beats.close())

    def beat(self) -> None:
        """Give one."""
        sign = self.sign()
        if sign is None or not self.id:
            return
        self.beats.beat(
            MemberHeartbeatRequest(
                cluster_name=self.group.cluster,
                broker_addr=self.address,
                broker_name=self.group.name,
                broker_id=self.id,
                epoch=NO_EPOCH if sign.epoch is None else sign.epoch,
                max_offset=sign.end,
                confirm_offset=sign.confirm,
                heartbeat_timeout_mills=int(self.settings.heartbeat_timeout * 1000),
                election_priority=self.settings.priority,
            )
        )
