"""An elected master on real sockets, with and without the zero-copy path."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from lab.harness.certificates import Authority
from rmqha.config.ha_settings import HASettings
from rmqha.config.settings import TlsMode
from rmqha.controller.other_members import MemberLabels
from rmqha.ha.elected.in_sync import InSyncSet
from rmqha.ha.elected.labelled_log import LabelledLog
from rmqha.ha.elected.members import Proofs
from rmqha.ha.elected.roster import Roster
from rmqha.ha.elected.set_master import SetMaster
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.slave.reconnect import ha_endpoint
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.net.zero_copy_send import listen
from rmqha.wire.ha_frame import BodyPart
from rmqha.wire.ha_v2 import (
    EpochLabel,
    MasterMessages,
    SlaveHandshake,
    TransferHeader,
    encode_handshake,
    encode_report,
)
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, PuppetCoordinator, at
from tests.ha.master.test_tls import identity
from tests.support.sending_log import MemoryLog

reactor: Any = _reactor
LOCAL = "127.0.0.1"
END = 20_000_000


class MemberCopier(Protocol):
    """The smallest member: it keeps a digest of what it gets, and reports each transfer."""

    def __init__(self) -> None:
        self.offset = 0
        self.digest = sha256()
        self.labels: dict[int, int] = {}
        self.confirm = 0
        self.until = -1
        self.reached: Deferred[None] = Deferred()
        self.closed: Deferred[None] = Deferred()
        self._messages = MasterMessages()

    def connectionMade(self) -> None:
        self.transport.write(encode_handshake(SlaveHandshake(id=SLAVE)))

    def dataReceived(self, data: bytes) -> None:
        for event in self._messages.receive(data):
            if isinstance(event, BodyPart):
                assert event.offset == self.offset
                self.offset += len(event.data)
                self.digest.update(event.data)
                if not event.left:
                    self.transport.write(encode_report(self.offset))
            elif isinstance(event, TransferHeader):
                self.labels.setdefault(event.label, event.offset)
                self.confirm = event.confirm
            else:
                self.transport.write(encode_report(0))
        if min(self.offset, self.confirm) == self.until and not self.reached.called:
            self.reached.callback(None)

    def connectionLost(self, reason: Any = None) -> None:
        self.closed.callback(None)


class MemberSocketTests(TestCase):
    timeout = 60

    async def copy(
        self,
        *,
        zero_copy: bool,
        gate: TlsGate = CLEAR_TEXT,
        tls: OutgoingTls = IN_CLEAR_TEXT,
        strangers: Mapping[str, OutgoingTls] | None = None,
    ) -> None:
        """A member copies 20 MB of two epochs, enters the set, and holds SYNC writes of a third,
        while
        C{strangers} are refused.
        """
        log = MemoryLog(file_size=3_000_000)
        log.put(random.Random(1).randbytes(END))
        labels = EpochLabel(1, 0), EpochLabel(2, 7_654_321), EpochLabel(EPOCH, END)
        coordinator = PuppetCoordinator(at(OWN, EPOCH, OWN))
        master = SetMaster(
            labelled=LabelledLog(labels),
            log=log,  # type: ignore[arg-type]
            in_sync=InSyncSet(
                own=OWN,
                state=coordinator.state,
                coordinator=coordinator,
                clock=reactor,
                newest_start=END,
            ),
            proofs=Proofs(
                ours=LabelledLog(labels),
                log=log,
                labels_of=lambda address, token: succeed(MemberLabels(labels, log.end)),
                roster=Roster(
                    own=OWN,
                    ask=lambda: succeed({OWN: "127.0.0.1:1", SLAVE: "127.0.0.1:2"}),
                    clock=reactor,
                ),
                clock=reactor,
            ),
            settings=HASettings(zero_copy=zero_copy),
            clock=reactor,
            feeding=partial(MasterFactory, gate=gate),
        )
        master.start()
        port = listen(reactor, master.factory, 0, LOCAL)
        number = port.getHost().port
        copier = MemberCopier()
        try:
            copier.until = END
            for reason, theirs in (strangers or {}).items():
                stranger = MemberCopier()
                await connectProtocol(ha_endpoint(reactor, LOCAL, number, tls=theirs), stranger)
                await stranger.closed
                self.assertEqual(stranger.offset, 0)
                while not master.factory.closed[reason]:
                    await deferLater(reactor, 0.01)
            await connectProtocol(ha_endpoint(reactor, LOCAL, number, tls=tls), copier)
            await copier.reached
            for size in (1, 300, 70_000, 4_000_000, 5):
                status = await master.transfer.wait(*log.put(random.Random(2).randbytes(size)))
                self.assertEqual(status, PutStatus.PUT_OK)
            self.assertEqual(master.in_sync.state.in_sync, {OWN, SLAVE})
            # Confirm comes by a heartbeat, when there is nothing else to send.
            copier.until, copier.reached = log.end, Deferred()
            if copier.confirm < log.end:
                await copier.reached
        finally:
            await port.stopListening()
            await master.end()
            await copier.closed
        self.assertEqual(copier.digest.hexdigest(), sha256(log.content(0, log.end)).hexdigest())
        self.assertEqual(copier.labels, {each.label: each.start for each in labels})

    def test_zero_copy(self) -> Deferred[None]:
        """Views of the log arrive as the log, cut where files and labels end."""
        return Deferred.fromCoroutine(self.copy(zero_copy=True))

    def test_portable(self) -> Deferred[None]:
        """So do bytes."""
        return Deferred.fromCoroutine(self.copy(zero_copy=False))

    def test_tls(self) -> Deferred[None]:
        """So does TLS between members of one root; others, or clear text, get nothing."""
        ours = Authority(Path(self.mktemp()))
        return Deferred.fromCoroutine(
            self.copy(
                zero_copy=True,
                gate=TlsGate(TlsMode.ENFORCING, identity(ours, "leader"), "haTlsMode"),
                tls=OutgoingTls(identity=identity(ours, "member"), names=True),
                strangers={
                    "tls-no-certificate": OutgoingTls(identity=identity(ours)),
                    "clear-text": IN_CLEAR_TEXT,
                },
            )
        )
