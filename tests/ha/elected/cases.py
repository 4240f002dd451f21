"""An elected master with a log in memory, a controller by hand, and scripted members."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, evolve, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.controller_settings import ControllerSettings
from rmqha.config.ha_settings import HASettings
from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.epoch_labels import Labels
from rmqha.controller.other_members import MemberLabels
from rmqha.errors import RemotingUnreachable
from rmqha.ha.elected.in_sync import InSyncSet
from rmqha.ha.elected.labelled_log import LabelledLog
from rmqha.ha.elected.members import Proofs
from rmqha.ha.elected.roster import Roster
from rmqha.ha.elected.set_master import SetMaster
from rmqha.ha.master.connection import MasterProtocol
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.ha_frame import BodyPart
from rmqha.wire.ha_v2 import (
    EpochLabel,
    HandshakeAnswer,
    MasterMessages,
    SlaveHandshake,
    TransferHeader,
    encode_handshake,
    encode_report,
)
from tests.support.sending_log import MemoryLog

OWN, SLAVE, THIRD = 1, 2, 3
HOSTS = {OWN: "10.0.0.1", SLAVE: "10.0.0.2", THIRD: "10.0.0.3"}
EPOCH = 7
FILE = 10_000


def at(master: int = OWN, epoch: int = EPOCH, *ids: int, set_epoch: int = 1) -> SetState:
    """What is decided of the set."""
    return SetState(
        master=ElectedMember(master, f"{HOSTS[master]}:10911"),
        master_epoch=epoch,
        in_sync=frozenset(ids or {master}),
        set_epoch=set_epoch,
    )


@define(eq=False)
class PuppetCoordinator:
    """A controller that answers when told to; what C{current} fails with while it is C{down}.

    @ivar patient: Whether changes wait for L{answer}; else they are made at once.
    @ivar waiting: Those that wait, with what they are to be answered to.
    """

    state: SetState
    patient: bool = False
    asked: list[frozenset[int]] = field(factory=list)
    waiting: list[tuple[SetState, frozenset[int], Deferred[SetState]]] = field(factory=list)
    down: Exception | None = None

    def current(self) -> Deferred[SetState]:
        return succeed(self.state) if self.down is None else fail(self.down)

    def elect(self, member: int, *, designated: bool = False) -> Deferred[SetState]:
        raise NotImplementedError

    def alter(self, old: SetState, new: frozenset[int]) -> Deferred[SetState]:
        self.asked.append(new)
        answered: Deferred[SetState] = Deferred()
        self.waiting.append((old, new, answered))
        if not self.patient:
            self.answer()
        return answered

    def made(self, old: SetState, new: frozenset[int]) -> bool:
        """Make a change, if it names what is decided."""
        if old.set_epoch != self.state.set_epoch or new == self.state.in_sync:
            return False
        self.state = evolve(self.state, in_sync=new, set_epoch=old.set_epoch + 1)
        return True

    def answer(self) -> None:
        """Make the oldest change, and say so."""
        old, new, answered = self.waiting.pop(0)
        assert self.made(old, new), "it names what is decided"
        answered.callback(self.state)

    def refuse(self, error: Exception, *, made: bool = False) -> None:
        """Fail the oldest change, which may be made all the same."""
        old, new, answered = self.waiting.pop(0)
        if made:
            self.made(old, new)
        answered.errback(error)


class Told:
    """What a slave would make of a stream."""

    def __init__(self, stream: bytes) -> None:
        self.answers: list[HandshakeAnswer] = []
        self.transfers: list[TransferHeader] = []
        self.heartbeats: list[TransferHeader] = []
        self.headers: list[TransferHeader] = []
        self.body = bytearray()
        for event in MasterMessages().receive(stream):
            if isinstance(event, BodyPart):
                self.body += event.data
            elif isinstance(event, HandshakeAnswer):
                self.answers.append(event)
            else:
                self.headers.append(event)
                (self.transfers if event.size else self.heartbeats).append(event)


class SetCase(SynchronousTestCase):
    """A master of id 1 in a set of three, elected in epoch 7 over a log of 25 000 bytes."""

    def setUp(self) -> None:
        """Nobody is connected, and the master is alone in the set."""
        self.build()

    def build(
        self,
        end: int = 25_000,
        labels: Labels | None = None,
        ids: tuple[int, ...] = (OWN,),
        rules: ControllerSettings | None = None,
        awaited: bool = True,
        min_offset: int = 0,
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.log = MemoryLog(min_offset, min_offset, file_size=FILE)
        self.log.put(random.Random(end).randbytes(end - min_offset))
        self.log.flush()
        self.labels = (EpochLabel(EPOCH, end),) if labels is None else labels
        if labels is None and end > min_offset:
            self.labels = (EpochLabel(1, min_offset), *self.labels)
        self.coordinator = PuppetCoordinator(at(OWN, EPOCH, *ids))
        self.known: dict[int, str] = {number: f"{host}:10911" for number, host in HOSTS.items()}
        self.theirs: dict[str, MemberLabels] = {}
        self.theirs_later: Deferred[MemberLabels] | None = None
        self.tokens: list[int] = []
        self.lookups = 0
        self.superseded = 0
        self.settings, self.rules = HASettings(**settings), rules or ControllerSettings()
        self.port, self.awaited = 40000, awaited
        self.again()

    def again(
        self, asked_before: Iterable[frozenset[int]] = (), confirm_from: int = 0
    ) -> SetMaster:
        """Another epoch of the log begins, as the controller has it; or the same goes on."""
        labelled = LabelledLog(self.labels)
        self.master = SetMaster(
            labelled=labelled,
            log=self.log,
            in_sync=InSyncSet(
                own=OWN,
                state=self.coordinator.state,
                coordinator=self.coordinator,
                clock=self.clock,
                newest_start=labelled.newest_start,
                superseded=self.supersede,
                asked_before=set(asked_before),
                confirm=confirm_from,
            ),
            proofs=Proofs(
                ours=labelled,
                log=self.log,
                labels_of=self.labels_of,
                roster=Roster(
                    own=OWN,
                    ask=self.members,
                    clock=self.clock,
                    any_host=bool(self.settings.allowed_peers),
                ),
                clock=self.clock,
                accept=self.settings.accept_unproven,
            ),
            settings=self.settings,
            clock=self.clock,
            rules=self.rules,
            awaited=self.awaited,
        )
        self.master.start()
        self.factory, self.in_sync = self.master.factory, self.master.in_sync
        return self.master

    def members(self) -> Deferred[Mapping[int, str]]:
        """Who the controllers say that the members are."""
        self.lookups += 1
        return succeed(self.known)

    def labels_of(self, address: str, token: int) -> Deferred[MemberLabels]:
        """What a member says of its log; one that counts has taken over our labels."""
        self.tokens.append(token)
        if self.theirs_later is not None:
            return self.theirs_later
        if address in self.theirs:
            return succeed(self.theirs[address])
        if address in {self.known[number] for number in self.in_sync.claims}:
            return succeed(MemberLabels(self.labels, self.log.end))
        return fail(RemotingUnreachable(address, "connection refused"))

    def supersede(self) -> None:
        self.superseded += 1

    def has(self, number: int, end: int, *labels: EpochLabel) -> None:
        """A member's log is filed so."""
        self.theirs[self.known[number]] = MemberLabels(labels, end)

    def connect(
        self, number: int = SLAVE, host: str = "", transport: StringTransport | None = None
    ) -> tuple[MasterProtocol, Any]:
        self.port += 1
        address = IPv4Address("TCP", host or HOSTS[number], self.port)
        protocol = self.factory.buildProtocol(address)
        assert protocol is not None, "it was refused"
        transport = transport or StringTransport()
        transport.peerAddr = address
        protocol.makeConnection(transport)
        return protocol, transport

    def greeted(
        self, number: int = SLAVE, host: str = "", **said: bool
    ) -> tuple[MasterProtocol, Any]:
        protocol, transport = self.connect(number, host)
        protocol.dataReceived(encode_handshake(SlaveHandshake(id=number, **said)))
        return protocol, transport

    def fed(
        self, number: int = SLAVE, report: int = 0, host: str = "", **said: bool
    ) -> tuple[MasterProtocol, Any]:
        """It reports for the first time."""
        protocol, transport = self.greeted(number, host, **said)
        protocol.dataReceived(encode_report(report))
        return protocol, transport

    def caught_up(self, number: int = SLAVE) -> tuple[MasterProtocol, Any]:
        """An empty one takes all, and acknowledges it."""
        protocol, transport = self.fed(number)
        self.ack(protocol)
        return protocol, transport

    def ack(self, protocol: MasterProtocol, offset: int | None = None) -> None:
        protocol.dataReceived(encode_report(self.log.end if offset is None else offset))

    def lose(self, protocol: MasterProtocol) -> None:
        protocol.connectionLost(Failure(ConnectionDone()))

    def put(self, size: int = 300) -> Deferred[PutStatus]:
        return self.master.transfer.wait(*self.log.put(random.Random(size).randbytes(size)))

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        """Let time pass in steps."""
        self.clock.pump([step] * round(seconds / step))

    def assertClosed(self, transport: Any, reason: str) -> None:
        """A connection was given up for a reason."""
        self.assertTrue(transport.disconnecting)
        self.assertEqual(self.factory.closed, {reason: 1})
