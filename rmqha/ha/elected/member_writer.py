"""The writes of an elected master, which are refused before anything is stored where the set cannot
keep what is promised, or is not led from here any more.

Source: docs/protocol/controller.rst, What a write waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define
from twisted.internet.defer import Deferred

from rmqha.ha.master.put_service import PutResult, Putter
from rmqha.ha.master.transfer import Done
from rmqha.store.log.record_run import RequestRun
from rmqha.wire.log.record import Message


@define(eq=False)
class MemberWriter:
    """Passes writes on, if they may be taken.

    @ivar writer: Takes them.
    @ivar require: Raises L{NotWritable<rmqha.errors.NotWritable>} if they may not.
    """

    writer: Putter
    require: Callable[[], None]

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """Store a message as the writer below does.

        @raise NotWritable: If none is taken now; nothing is stored.
        """
        self.require()
        return self.writer.put(message, batch=batch, wait=wait)

    def put_run(self, run: RequestRun, born_host: bytes, done: Done) -> None:
        """Store the messages of a run as the writer below does.

        @raise NotWritable: If none is taken now; nothing is stored.
        """
        self.require()
        self.writer.put_run(run, born_host, done)
