"""Deleting old files on request: 306, 316 and 329.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from rmqha.broker.access.needs import CHANGES, Stated
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.store.store import Store
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command


@define(eq=False)
class Cleaning:
    """Has files deleted that would be deleted later."""

    store: Store

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: (CHANGES, self.queues),
            RequestCode.CLEAN_UNUSED_TOPIC: (CHANGES, self.queues),
            RequestCode.DELETE_EXPIRED_COMMITLOG: (CHANGES, self.log),
        }

    def queues(self, connection: RemotingProtocol, command: Command) -> Answer:
        """306 and 316: delete queue files whose messages are gone.  A topic that is deleted has
        none from then on.
        """
        self.store.trimmer.follow(self.store.log.min_offset)
        return None

    def log(self, connection: RemotingProtocol, command: Command) -> Answer:
        """329: delete log files that are old enough, whatever the hour."""
        self.store.retention.demand()
        return None
