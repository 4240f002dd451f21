"""How each group consumes each topic, where that was set: C{config/messageRequestMode.json}.

Source: docs/protocol/remoting.md, Consuming by POP.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rmqha.broker.tables.table import ConfigTable
from rmqha.config.broker_settings import PopSettings
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode, RequestModes
from rmqha.wire.store_layout import REQUEST_MODES

GroupModes = dict[str, GroupMode]
"""How groups consume one topic."""


class ModeTable(ConfigTable[GroupModes, RequestModes, PopSettings]):
    """The table of request modes: its rows are those of a topic."""

    NAME, BODY, ROWS = REQUEST_MODES, RequestModes, "message_request_mode_map"

    def mode(self, topic: str, group: str) -> GroupMode:
        """How a group consumes a topic: as was set, else as all groups do.  What comes back to a
        group that pulls is pulled.
        """
        found = (self.get(topic) or {}).get(group)
        if found is not None:
            return found
        if topic.startswith(RETRY_PREFIX):
            return GroupMode(topic=topic, consumer_group=group)
        return GroupMode(
            topic=topic,
            consumer_group=group,
            mode=RequestMode[self._settings.default_mode.name],
            pop_share_queue_num=self._settings.default_share,
        )

    def put(self, mode: GroupMode) -> Deferred[None]:
        """Set how a group consumes a topic.

        @return: Fires when that is durable; fails if it could not be written, which is tried
            again.
        """
        self.set(mode.topic, {**(self.get(mode.topic) or {}), mode.consumer_group: mode})
        return self.file.save_now()

    def forget_group(self, group: str) -> None:
        """A group is deleted."""
        for topic in self.names():
            rest = {name: mode for name, mode in self._table[topic].items() if name != group}
            if not rest:
                self.delete(topic)
            elif len(rest) < len(self._table[topic]):
                self.set(topic, rest)

    def told(self, *, versioned: bool) -> bytes:
        """The whole table for who asks for it.

        @param versioned: Whether with its version, which only brokers of ours look at.
        """
        if versioned:
            return self.text()
        table = json_body.to_json(self.table())
        del table["dataVersion"]
        return fastjson.dumps(table)
