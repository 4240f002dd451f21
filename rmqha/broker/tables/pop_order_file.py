"""Keeps what groups pop in order: C{config/consumerOrderInfo.json}, as stock brokers write it, and
between two writes the journal of offsets.

Stock brokers write it every five seconds, and after kill -9 give out what is being consumed.

Source: docs/protocol/remoting.md, Popping in order; docs/protocol/store.rst, The journal of
consumer offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import define, evolve, field
from twisted.logger import Logger

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.pop_order import PopOrder
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.order_table import Told, later, read_orders
from rmqha.store.tables.table_verdict import TableRead
from rmqha.wire.remoting.bodies.pop_order import OrderedBatch, OrderTable
from rmqha.wire.remoting.json_body import to_json
from rmqha.wire.store_layout import POP_ORDER


@define(eq=False)
class OrderFile:
    """Writes the table with each generation of that of offsets.

    @ivar read: How it stood with the file at the start; C{None} before.
    """

    order: PopOrder
    offsets: ConsumerOffsetTable
    tables: CheckedTables
    read: TableRead | None = field(default=None, init=False)
    _rest: OrderTable = field(factory=OrderTable, init=False)
    # How many changes there were, and how many when the file and its .bak were written.
    _changes: int = field(default=0, init=False)
    _written: tuple[int, int] = field(default=(0, 0), init=False)

    _log = Logger()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.tables.path(POP_ORDER)

    def load(self) -> None:
        """Read the file, and let happen again what the journal has.  The offsets are read before.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is a file, and it makes no sense.
        @raise BodyInvalid: If it is no such table.
        """
        found = read_orders(self.tables, own=True)
        self.read = found.file
        if found.table is not None:
            self._rest = evolve(found.table, table={})
            self.order.batches.update(found.table.table)
            # Until both generations are of now, the journal's older files are needed.
            self._changes = 1
        self.offsets.journal.companion = self
        self.order.changed.append(self._on_change)
        if found.replayed:
            self.offsets.file.dirty()
            self._log.info(
                "Replayed the journal: {count} records of what is popped in order are newer than "
                "{path}",
                count=found.replayed,
                path=self.path.name,
            )

    # --- for the journal ----------------------------------------------------------------

    def batch(self, key: str, queue_id: int) -> OrderedBatch | None:
        """What is known of a queue.  Threads ask."""
        return self.order.batches.get(key, {}).get(queue_id)

    def all(self) -> dict[str, dict[int, OrderedBatch]]:
        """What is known of all queues now, which does not change any more."""
        return self.order.table().table

    def generation(self, segment: int) -> Callable[[], int | None]:
        """Take a generation of the table, which is written by what is returned; it is left out
        where neither the file nor its C{.bak} lacks anything.
        """
        count, (_, last) = self._changes, self._written
        if self._written == (count, count):
            return lambda: None
        table = evolve(self._rest, table=self.all())

        def write() -> int | None:
            needed = self.tables.replace(self.path, to_json(table), journal=segment)
            self._written = (last, count)
            return needed

        return write

    def _on_change(self, key: str, queue_id: int) -> None:
        self._changes += 1
        self.offsets.on_order(key, queue_id)

    # --- for slaves -----------------------------------------------------------------------

    def adopt(self, told: Told, *, whole: bool, one_life: bool) -> None:
        """Take over what the master knows.

        @param told: It.
        @param whole: Whether that is all there is.
        @param one_life: Whether it follows what the same process told before: then it counts as it
            stands.  Otherwise the later pop counts: what was restored may be old.
        """
        for key, batches in told.items():
            for queue_id, batch in batches.items():
                if batch is None or one_life:
                    self.order.put(key, queue_id, batch)
                else:
                    self.order.put(key, queue_id, later(self.batch(key, queue_id), batch))
        if not (whole and one_life):
            return
        for key, known in tuple(self.order.batches.items()):
            for queue_id in known.keys() - told.get(key, {}).keys():
                self.order.put(key, queue_id, None)
