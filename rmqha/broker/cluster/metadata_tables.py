"""A slave's copies of its master's tables: what becomes of each answer, and what is kept of it.

Source: docs/protocol/remoting.md, Brokers among themselves; docs/architecture.rst, Metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmqha.broker.cluster import metadata_rules
from rmqha.broker.cluster.metadata_offsets import OffsetSync
from rmqha.broker.cluster.metadata_rules import (
    DELAYS,
    GROUPS,
    MODES,
    OFFSETS,
    TOPICS,
    Last,
    TableChecks,
)
from rmqha.broker.cluster.offsets_owed import Owed, SendRequest
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.persisted import Persisted
from rmqha.broker.tables.pop_order_file import OrderFile
from rmqha.errors import BodyInvalid, StoreError
from rmqha.ha.master_epoch import NEVER_ELECTED
from rmqha.logfiles.published import DeletedTopic
from rmqha.periodic import NodePart
from rmqha.wire.names import PRESET_GROUPS
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.offsets import DelayOffsets
from rmqha.wire.remoting.fields import camel
from rmqha.wire.remoting.json_body import from_json
from rmqha.wire.store_layout import METADATA, OWN_FOLDER

RECORD_INTERVAL = 5.0
"""Most seconds from a commit here to its being noted on the disk, as of offsets themselves."""


class TableState(StrEnum):
    """How the last try with one table went."""

    WAITING = "waiting"
    ADOPTED = "adopted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@define(eq=False, kw_only=True)
class SyncedTable:
    """One table's synchronization.

    @ivar reason: Why it is not adopted.
    @ivar adopted: When the master's state was last known here, in milliseconds since 1970.
    @ivar changes: How often that changed something here.
    @ivar last: What was adopted.
    @ivar body: The answer it was in.
    @ivar epoch: The master epoch in which that was the master's; C{None} if that is not sure.
    """

    state: TableState = TableState.WAITING
    reason: str = ""
    adopted: int | None = None
    changes: int = 0
    last: Last = field(factory=Last)
    body: bytes | None = None
    epoch: int | None = None

    def keep(self, body: bytes, version: DataVersion | None, names: Iterable[str]) -> None:
        """Note what was adopted, to judge the master's next answer by."""
        self.last, self.body = Last(version=version, names=frozenset(names)), body

    def status(self) -> dict[str, Any]:
        """One table of C{metadata} in the status: how it is, what its last version was, and how
        often it changed.
        """
        version = self.last.version
        shown = None
        if version is not None:
            shown = {
                "counter": version.counter,
                "timestamp": version.timestamp,
                "stateVersion": version.state_version,
            }
        return {
            "state": self.state.value,
            "reason": self.reason,
            "adopted": self.adopted,
            "changes": self.changes,
            "dataVersion": shown,
        }


@frozen(kw_only=True)
class SyncRecord:
    """What outlives the process.

    @ivar master: The client address the versions are from.
    @ivar epoch: The master epoch in which the topics were the master's.
    @ivar committed: What the master may not know, as in L{Owed}.
    """

    master: str | None = None
    topics: DataVersion | None = None
    groups: DataVersion | None = None
    modes: DataVersion | None = None
    epoch: int | None = NEVER_ELECTED
    committed: dict[str, dict[int, int]] = field(factory=dict)


AskEpoch = Callable[[], Awaitable[int | None]]
"""Asks in which master epoch the master leads that is followed; C{None} if it may not lead any
more.  Asked after it gave a table, that says whether the table was a master's."""


async def never_elected() -> int:
    """The epoch of a master that nobody elects: it is the same for ever."""
    return NEVER_ELECTED


@define(eq=False)
class Copies(NodePart):
    """The tables of one master, at one address, and ours.

    @ivar delays: Takes the master's delay offsets.
    @ivar forget: Deletes the queues of deleted topics.
    @ivar master: The master's client address; C{""} while it is not known.
    @ivar epoch: Asks in which master epoch that leads.
    @ivar parts: The state of each table.
    """

    state: BrokerState
    offsets: OffsetSync
    orders: OrderFile
    delays: Callable[[DelayOffsets], object]
    forget: Callable[[Mapping[str, DeletedTopic]], Awaitable[None]]
    master: str = field(default="", init=False)
    epoch: AskEpoch = field(default=never_elected, init=False)
    parts: dict[str, SyncedTable] = field(init=False)
    _file: Persisted = field(init=False)
    # C{None} for one that only is not in the master's table any more.
    _deleted: dict[str, DeletedTopic | None] = field(factory=dict, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._new_parts()
        self._file = Persisted(
            self.state.files.root / OWN_FOLDER / METADATA,
            self._record,
            self.state.clock,
            self.state.in_thread,
            RECORD_INTERVAL,
            tables=self.state.files,
        )
        self._file.job.running = False
        self.owed.changed = self._file.dirty

    @property
    def owed(self) -> Owed:
        """What the master is still to be told."""
        return self.offsets.owed

    def load(self) -> None:
        """Read what was given before this process; what cannot be read is no reason not to
        start.
        """
        self._file.job.running = True
        try:
            record = from_json(SyncRecord, self._file.load() or {})
        except (StoreError, BodyInvalid) as error:
            self._log.error(
                "Cannot read {path}; treating the master's tables as new: {error}",
                path=self._file.path,
                error=error,
            )
            return
        self.master = record.master or ""
        self.parts[TOPICS].last = Last(version=record.topics)
        self.parts[TOPICS].epoch = record.epoch
        self.parts[GROUPS].last = Last(version=record.groups)
        self.parts[MODES].last = Last(version=record.modes)
        self.owed.committed.update(record.committed)

    def recall(self, by_clients: Mapping[str, Mapping[int, int]]) -> None:
        """Owe the master what clients committed here shortly before a crash: that is in the journal
        of offsets before it is in the record.

        @param by_clients: Offsets by queue id by C{topic@group}.
        """
        for key, queues in by_clients.items():
            self.owed.committed.setdefault(key, {}).update(queues)
        if by_clients:
            self._file.dirty()

    def stop(self) -> Deferred[None]:
        """Write what is to be kept.

        @return: Fires when that is done, well or not.
        """
        return self._file.stop()

    def on_master_change(self, master: str) -> None:
        """The master is another one, or elsewhere."""
        self.master = master
        self._new_parts()
        self.offsets.on_master_change()
        self._file.dirty()

    @property
    def knows_topics(self) -> bool:
        """Whether this master gave a table of topics that is our broker's."""
        return self.parts[TOPICS].last.version is not None

    @property
    def knows_modes(self) -> bool:
        """Whether this master gave its table of request modes."""
        return self.parts[MODES].last.version is not None

    def status(self) -> dict[str, Any]:
        """C{metadata} of the status: whose tables they are, and each of them."""
        offsets = self.offsets
        return {
            "master": self.master or None,
            **{camel(name, " "): part.status() for name, part in self.parts.items()},
            "resets": offsets.resets,
            "regressions": offsets.regressions,
            "owed": sum(map(len, self.owed.committed.values())),
            "givenBack": self.owed.returned,
        }

    # --- adopting -------------------------------------------------------------------------

    async def adopt_topics(self, body: bytes) -> bool:
        """Take over the answer to request 21.

        @return: Whether that changed anything.
        @raise MetadataRefused: If it is not believed.
        """
        part = self.parts[TOPICS]
        one_reign = await self._in_one_reign(part, body)
        if body == part.body:
            return False
        topics = self.state.topics
        own = frozenset(name for name in topics.names() if not topics.is_system(name))
        held = TableChecks(last=part.last, own=own)
        table = await self.state.in_thread(
            metadata_rules.topics, body, held, self.state.name, self.state.cluster
        )
        deleted = metadata_rules.take_deleted(table)
        names = frozenset(table.topic_config_table)
        given = self._last_names(part, own) if one_reign else frozenset()
        gone = {name for name in given - names if not topics.is_system(name)}
        changed = topics.adopt(table)
        self._keep(part, body, table.data_version, names)
        self._deleted |= dict.fromkeys(gone)
        self._deleted = {
            name: topic for name, topic in self._deleted.items() if topic or name not in names
        }
        if part.epoch is not None:
            self._deleted |= deleted
        else:
            # Whether a master's table says so is for the next round to know.
            part.body = None
        if gone:
            self.state.offsets.remove_topics(gone)
            self._log.info(
                "Removed {count} topics, as master {master} did: {names}",
                count=len(gone),
                master=self.master,
                names=metadata_rules.names_of(gone),
            )
        return changed

    async def adopt_groups(self, body: bytes) -> bool:
        """Take over the answer to request 201, as L{adopt_topics} does."""
        part = self.parts[GROUPS]
        if body == part.body:
            return False
        own = frozenset(self.state.groups.names()).difference(PRESET_GROUPS)
        table = await self.state.in_thread(
            metadata_rules.groups, body, TableChecks(last=part.last, own=own)
        )
        changed = self.state.groups.adopt(table)
        self._keep(part, body, table.data_version, table.subscription_group_table)
        return changed

    async def adopt_modes(self, body: bytes) -> bool:
        """Take over the answer to request 402, as L{adopt_topics} does."""
        part = self.parts[MODES]
        if body == part.body:
            return False
        held = TableChecks(last=part.last, own=frozenset(self.state.modes.names()))
        table = await self.state.in_thread(metadata_rules.modes, body, held)
        changed = self.state.modes.adopt(table)
        self._keep(part, body, table.data_version, table.message_request_mode_map)
        return changed

    async def adopt_delays(self, body: bytes) -> bool:
        """Take over the answer to request 45, as L{adopt_topics} does."""
        part = self.parts[DELAYS]
        table = await self.state.in_thread(metadata_rules.delays, body, bool(part.last.names))
        self.delays(table)
        changed = part.body is not None and body != part.body
        part.keep(body, table.data_version, map(str, table.offset_table))
        return changed

    async def adopt_offsets(self, body: bytes, boot: int | None, ask: SendRequest) -> bool:
        """Take over the answer to request 43, as L{adopt_topics} does, and give back what the
        master does not know.

        @param boot: When its process was started, as in L{OffsetSync.adopt}.
        @param ask: Asks it.
        """
        part, sync = self.parts[OFFSETS], self.offsets
        one_reign = await self._in_one_reign(part, body)
        if body == part.body and not self.owed.committed:
            sync.same(boot)
            return False
        table = await self.state.in_thread(metadata_rules.offsets, body, sync.holds_some)
        ends, orders = metadata_rules.take_ends(table), metadata_rules.take_orders(table)
        if not one_reign:
            sync.on_master_change()
        moved = await sync.adopt(table, boot, self.master)
        if orders is not None:
            self.orders.adopt(orders, whole=True, one_life=sync.one_life)
        part.keep(body, table.data_version, table.offset_table)
        for topic, queue_id, end in ends:
            if self.state.topics.get(topic) is not None:
                self.state.store.queues.begin(topic, queue_id, end, sure=True)
                await deferLater(self.state.clock, 0, lambda: None)
        await self.owed.give_back(table, ask, self.master)
        return bool(moved)

    async def adopt_offset_changes(self, body: bytes) -> bool:
        """Take over what changed in the table of L{adopt_offsets} since.

        @param body: An answer to request 43 that has only that.
        @return: Whether that changed anything.
        @raise MetadataRefused: If it is not believed.
        """
        table = await self.state.in_thread(metadata_rules.offsets, body, False)
        self.orders.adopt(metadata_rules.take_orders(table) or {}, whole=False, one_life=True)
        moved = await self.offsets.adopt_changes(table, self.master)
        # The next whole table is compared with what was given last, not with the last whole one.
        self.parts[OFFSETS].body = None
        return bool(moved)

    async def give_back(self, ask: SendRequest) -> None:
        """Tell the master of what was committed here, in a round that does not fetch its
        offsets.
        """
        if self.owed.committed:
            await self.owed.give_back(self.offsets.last_table, ask, self.master)

    async def forget_deleted(self, end: int) -> None:
        """Delete the queues of topics that were deleted.  A master of ours says up to where; where
        the log is not there yet, what there is goes at once, so that a restart without the master
        knows of it, and the rest when it has come.  Of other masters it is up to where the log was.

        @param end: Where it was, before the master was asked.
        @raise StoreError: If that is not possible now; it is tried again with the next round.
        """
        due = {
            name: topic
            for name, topic in self._deleted.items()
            if topic is None or topic.end <= end
        }
        self._deleted = {name: at for name, at in self._deleted.items() if name not in due}
        so_far = dict.fromkeys(self._deleted, DeletedTopic(end))
        try:
            await self.forget(
                so_far | {name: topic or DeletedTopic(end) for name, topic in due.items()}
            )
        except (StoreError, OSError):
            self._deleted = due | self._deleted
            raise

    async def _in_one_reign(self, part: SyncedTable, body: bytes) -> bool:
        """Whether what was just given, and what was given before, are one master's that led all the
        time: only then what is missing or lower was deleted or set back there.  A member that was
        replaced goes on to answer, with the tables of its own master.  Where all is as it was
        nothing is, and nobody is asked: members in sync ask for tables each second.
        """
        if body == part.body and part.epoch is not None:
            return True
        before, part.epoch = part.epoch, await self.epoch()
        return part.epoch is not None and part.epoch == before

    def _last_names(self, part: SyncedTable, own: frozenset[str]) -> frozenset[str]:
        """The topics that the master gave last.  After a start that is what we have, if it is still
        what the master gave: what was made since, by us as the master or out of the log, it may
        never have had.
        """
        if part.last.names is not None:
            return part.last.names
        return own if self.state.topics.version == part.last.version else frozenset()

    def _keep(
        self, part: SyncedTable, body: bytes, version: DataVersion, names: Iterable[str]
    ) -> None:
        if part.last.version != version:
            self._file.dirty()
        part.keep(body, version, names)

    def _new_parts(self) -> None:
        self.parts = {name: SyncedTable() for name in (TOPICS, GROUPS, MODES, DELAYS, OFFSETS)}

    def _record(self) -> SyncRecord:
        return SyncRecord(
            master=self.master or None,
            topics=self.parts[TOPICS].last.version,
            groups=self.parts[GROUPS].last.version,
            modes=self.parts[MODES].last.version,
            epoch=self.parts[TOPICS].epoch,
            committed={key: dict(queues) for key, queues in self.owed.committed.items()},
        )
