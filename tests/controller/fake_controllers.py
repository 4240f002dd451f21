"""Controllers that answer at once, as stock ones do."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed

from rmqha.errors import RemotingTimeout, RemotingUnreachable
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode
from rmqha.wire.remoting.command import Command

Handler = Callable[[Command], Command]


@define(eq=False)
class FakeControllers:
    """A group of controllers, and the client that asks them.

    @ivar leader: Which one leads; empty for none.
    @ivar gone: Those that cannot be reached; C{silent} ones are there, and do not answer.
    @ivar frozen: Those that stand still: what they are asked waits.
    @ivar stale: Who followers say that leads; that is C{leader} unless it is set.
    """

    addresses: tuple[str, ...]
    leader: str
    gone: set[str] = field(factory=set)
    silent: set[str] = field(factory=set)
    frozen: set[str] = field(factory=set)
    stale: str | None = None
    handlers: dict[int, Handler] = field(factory=dict)
    asked: list[tuple[str, Command]] = field(factory=list)

    def codes(self) -> list[tuple[str, int]]:
        """What was asked of whom since the last time."""
        asked, self.asked = self.asked, []
        return [(address, command.code) for address, command in asked]

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        if address in self.gone:
            return fail(RemotingUnreachable(address, "connection refused"))
        self.asked.append((address, command))
        if address in self.frozen:
            return Deferred()
        if address in self.silent:
            return fail(RemotingTimeout(command.code, timeout, address))
        if command.code == Code.GET_METADATA_INFO:
            return succeed(self._metadata(address, command))
        if address != self.leader:
            remark = "The controller is not in leader state"
            return succeed(command.answer(ControllerResponseCode.NOT_LEADER, remark))
        return succeed(self.handlers[command.code](command))

    def oneway(self, address: str, command: Command) -> Deferred[None]:
        if address in self.gone:
            return fail(RemotingUnreachable(address, "connection refused"))
        self.asked.append((address, command))
        return succeed(None)

    def close(self) -> Deferred[None]:
        return succeed(None)

    def _metadata(self, address: str, command: Command) -> Command:
        peers = "".join(f"n{number}:{each};" for number, each in enumerate(self.addresses))
        answer = command.answer()
        answer.ext = {"group": "g", "isLeader": "false", "peers": peers}
        leader = self.leader if self.stale is None else self.stale
        if address == self.leader:
            leader = address
            answer.ext["isLeader"] = "true"
        if leader:
            answer.ext["controllerLeaderId"] = f"n{self.addresses.index(leader)}"
            answer.ext["controllerLeaderAddress"] = leader
        return answer
