"""What a node that follows an elected master learns from it beside the log: under which labels its
bytes are filed, and up to where the set has them.

Nothing of that is believed before this connection has shown that the two logs are one.  From then
on the master's labels are ours as far as our log goes, and readers see the log up to the confirm
offset that was told last, as far as what came with it: no word of a master, true or false, goes for
bytes that it has not sent.  A byte is reported as held when the label under which it lies is
durable: after a crash none that counted is without.

A stock master that was elected where the one before it had written nothing has no label of its own;
its bytes are filed under its epoch here, as the controller tells it.

Source: docs/protocol/controller.rst, Epoch file.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, evolve, field

from rmqha.controller.coordinator import SetState
from rmqha.ha.master_epoch import UNKNOWN, EpochStart, MasterEpochs
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.wire.ha_v2 import EpochLabel, HandshakeAnswer, TransferHeader


@define(eq=False, kw_only=True)
class FollowedSet:
    """Hears an elected master, for the log that follows it.

    @ivar epochs: The journal of that log.
    @ivar confirm: Lets readers see the log up to a physical offset.
    @ivar begun: Called when another connection begins: nothing is confirmed that is not there.
    @ivar kept: Called when labels have become durable, and so more may be reported.
    @ivar state: What was decided of the set; C{None} until that is known.
    @ivar labels: The master's, as far as this connection told.
    @ivar confirmed: The confirm offset that this connection told last; -1 for none.
    """

    epochs: MasterEpochs
    confirm: Callable[[int], None]
    begun: Callable[[], None] = lambda: None
    kept: Callable[[], None] = lambda: None
    state: SetState | None = field(default=None, init=False)
    labels: tuple[EpochLabel, ...] = field(default=(), init=False)
    confirmed: int = field(default=-1, init=False)
    _proven: bool = field(default=False, init=False)
    # Up to where the log is known to be the master's.
    _end: int = field(default=0, init=False)

    # --- what the master says -------------------------------------------------------

    def on_handshake(self, answer: HandshakeAnswer) -> None:
        """A connection begins."""
        self.labels, self.confirmed, self._proven = answer.labels, -1, False
        self.begun()

    def transfer(self, header: TransferHeader) -> None:
        """More of the log, or a sign of life."""
        self.confirmed = header.confirm
        is_new = not self.labels or (
            header.label > self.labels[-1].label and header.start >= self.labels[-1].start
        )
        if is_new and header.label >= 0:
            self.labels = (*self.labels, EpochLabel(header.label, header.start))
        if self._proven:
            end = header.offset + header.size
            self.confirm(min(self.confirmed, end))
            if is_new or self._holds_more(end):
                self._end = max(self._end, end)
                self._file()

    # --- what was compared ----------------------------------------------------------

    def too_low(self, address: str, epoch: int | None) -> str:
        """The controller says who is master, not the master itself."""
        return ""

    def proven(self, address: str, client: str, bounds: MasterBounds | None, end: int) -> None:
        """The logs are one as far as ours goes, up to C{end}."""
        self._proven, self._end = True, end
        self._file()
        self.confirm(min(self.confirmed, end))

    # --- labels ---------------------------------------------------------------------

    def filed(self, end: int) -> int:
        """Up to where the log's labels are on the disk: more of it must not be reported.

        @param end: Where the log ends, as far as may be reported otherwise.
        """
        durable = self.epochs.durable
        if self._proven and durable is self.epochs.journal:
            return end
        known = {(number, one.start) for one in durable.starts for number in (one.epoch, one.label)}
        for each in self.labels:
            if each.start < end and (each.label, each.start) not in known:
                return each.start
        return end

    def _holds_more(self, end: int) -> bool:
        """Whether bytes up to C{end} are the first of a label that was told before."""
        labels = self.labels
        if not labels or labels[-1].start <= self._end:
            return False  # as nearly always
        return any(self._end < label.start <= end for label in labels)

    def _file(self) -> None:
        """The labels of what we hold become ours."""
        if self.state is None or not self.labels:
            return
        known = {(one.epoch, one.start): one for one in self.epochs.journal.starts}
        held = [self._entry(each) for each in self.labels if each.start <= self._end]
        starts = tuple(known.get((one.epoch, one.start), one) for one in held)
        journal = self.epochs.journal
        number = max(self.state.master_epoch, journal.number)
        if (number, starts) != (journal.number, journal.starts):
            self.epochs.become(journal.followed(number, starts)).addCallback(self._kept)

    def _kept(self, _: None) -> None:
        self.kept()

    def _entry(self, label: EpochLabel) -> EpochStart:
        assert self.state is not None, "asked for before"
        entry = EpochStart(label.label, label.start)
        epoch, master = self.state.master_epoch, self.state.master
        if label == self.labels[-1] and label.label <= epoch:
            writer = UNKNOWN if master is None else master.id
            entry = evolve(entry, epoch=epoch, writer=writer, label=label.label)
        return entry
