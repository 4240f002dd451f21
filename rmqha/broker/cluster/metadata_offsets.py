"""Consumers' offsets between a slave and its master: a slave takes the higher ones, and follows the
master where it was told to go back.

A master that lost its newest offsets, and one whose administrator set a group back, show the same
thing: a lower number than before.  The first happens with a restart, the second within one life
of the master's process, which the time of its start tells apart.

Source: docs/protocol/remoting.md, Brokers among themselves; docs/architecture.rst, Metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from attrs import define, evolve, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmqha.broker.cluster.metadata_rules import SHOWN
from rmqha.broker.cluster.offsets_owed import OffsetMove, Owed, in_words
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable

SLICE = 64
"""Groups of a topic that are merged in one reactor turn: some hundred microseconds of work."""

Table = Mapping[str, Mapping[int, int]]
"""Offsets by queue id by C{topic@group}."""


@frozen
class Change:
    """What a master took back between two of its tables.

    @ivar back: The offsets that are lower now.
    @ivar gone: The keys that are there no more.
    """

    back: tuple[OffsetMove, ...] = ()
    gone: tuple[str, ...] = ()


def taken_back(before: Table, after: Table) -> Change:
    """Compare two tables of one master."""
    back, gone = [], []
    for key, queues in before.items():
        now = after.get(key)
        if now is None:
            gone.append(key)
        elif now != queues:
            back += [
                OffsetMove(key, queue_id, offset, now[queue_id])
                for queue_id, offset in queues.items()
                if now.get(queue_id, offset) < offset
            ]
    return Change(tuple(back), tuple(gone))


async def merge(
    offsets: ConsumerOffsetTable, items: Iterable[tuple[str, dict[int, int]]], clock: IReactorTime
) -> int:
    """Take the higher offsets of a table's items, some in each turn of the reactor.

    @return: How many offsets moved.
    """
    moved, rest = 0, iter(items)
    while some := dict(islice(rest, SLICE)):
        moved += offsets.merge_max(OffsetTable(offset_table=some))
        await deferLater(clock, 0, lambda: None)
    return moved


@define(eq=False)
class OffsetSync:
    """A slave's offsets and its master's.

    @ivar owed: What is not to be given back any more when the master is set back.
    @ivar one_life: Whether what the master gave last, and what it gave before, are one process's.
    @ivar resets: How many offsets were set back as the master was.
    @ivar regressions: How many were not.
    """

    state: BrokerState
    owed: Owed
    one_life: bool = field(default=False, init=False)
    resets: int = field(default=0, init=False)
    regressions: int = field(default=0, init=False)
    _last: OffsetTable | None = field(default=None, init=False)
    _boot: int | None = field(default=None, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.state.clock)

    @property
    def holds_some(self) -> bool:
        """Whether the master gave any offsets."""
        return self._last is not None and bool(self._last.offset_table)

    def on_master_change(self) -> None:
        """The master is another one: what the one before gave tells nothing of this one's."""
        self._last = self._boot = None

    def same(self, boot: int | None) -> None:
        """The master gave the same table again.

        @param boot: As in L{adopt}.
        """
        if boot is not None:
            self._boot = boot

    async def adopt(self, table: OffsetTable, boot: int | None, master: str) -> int:
        """Take over the master's offsets.

        @param boot: When the process that gave the table was started, in milliseconds since
            1970; C{None} if it did not say.
        @param master: Its address, for the log.
        @return: How many offsets moved here.
        """
        last, self.one_life = self._last, False
        moved = 0
        if last is not None:
            change = await self.state.in_thread(taken_back, last.offset_table, table.offset_table)
            self.one_life = boot is not None and boot == self._boot and not _older(table, last)
            if self.one_life:
                moved = self._follow(change, master)
            elif change.back:
                self._refuse(change, boot, master)
        moved += await merge(self.state.offsets, table.offset_table.items(), self.state.clock)
        self.state.offsets.rest(evolve(table, offset_table={}))
        if boot is not None or last is None:
            self._last, self._boot = table, boot
        return moved

    @property
    def last_table(self) -> OffsetTable:
        """The table that the master gave last, with what changed since."""
        return self._last or OffsetTable()

    async def adopt_changes(self, table: OffsetTable, master: str) -> int:
        """Take over what changed since L{adopt}, in the same life of the master's process.

        @param table: The offsets that changed.
        @param master: Its address, for the log.
        @return: How many offsets moved here.
        """
        given = self.last_table.offset_table
        before = {key: given[key] for key in table.offset_table if key in given}
        after = {key: {**given.get(key, {}), **now} for key, now in table.offset_table.items()}
        moved = self._follow(taken_back(before, after), master)
        moved += await merge(self.state.offsets, table.offset_table.items(), self.state.clock)
        if self._last is not None:
            self._last.offset_table.update(after)
        return moved

    def _follow(self, change: Change, master: str) -> int:
        """Within one life of a master's process nothing is lost: it was told to go back."""
        for step in change.back:
            topic, _, group = step.key.partition("@")
            self.state.offsets.reset(group, topic, step.queue_id, step.after)
            self.owed.forget(step.key, step.queue_id)
        removed = [key for key in change.gone if not self.state.knows(*key.split("@", 1))]
        for key in removed:
            topic, _, group = key.partition("@")
            self.state.offsets.remove(group, topic)
            self.owed.forget_all(key)
        if change.back:
            self.resets += len(change.back)
            self._log.info(
                "Moved {count} consumer offsets back, as master {master} did: {steps}",
                master=master,
                count=len(change.back),
                steps=in_words(change.back),
            )
        if removed:
            self._log.info(
                "Removed the consumer offsets of {count} topic@group pairs, as master {master} "
                "did: {names}",
                count=len(removed),
                master=master,
                names=", ".join(sorted(removed)[:SHOWN]),
            )
        return len(change.back) + len(removed)

    def _refuse(self, change: Change, boot: int | None, master: str) -> None:
        """A master that was started anew and knows less has lost something."""
        if boot is not None:
            self.regressions += len(change.back)
        self._quiet.warn(
            "regression",
            master,
            "Master {peer} {why} {count} consumer offsets lower than before; keeping ours: {steps}",
            why=(
                "does not tell its start time and gives"
                if boot is None
                else f"was restarted (boot time {self._boot} -> {boot}) and gives"
            ),
            count=len(change.back),
            steps=in_words(change.back),
        )


def _older(table: OffsetTable, last: OffsetTable) -> bool:
    """Whether a master's table says itself that it is not the newer one; those of 4.9 do not."""
    if table.data_version is None or last.data_version is None:
        return False
    return table.data_version.age < last.data_version.age
