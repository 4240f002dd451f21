"""The consumer groups of a broker: C{config/subscriptionGroup.json}.

Source: docs/protocol/remoting.md, Tables.
"""

from __future__ import annotations

import re

from twisted.logger import Logger

from rmqha.broker.tables.table import ConfigTable
from rmqha.config.broker_settings import BrokerSettings
from rmqha.errors import RequestRefused
from rmqha.wire.log.encode import MAX_TOPIC
from rmqha.wire.names import PRESET_GROUPS, RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rmqha.wire.remoting.bodies.tables import GroupConfig, GroupTable
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.store_layout import SUBSCRIPTION_GROUPS

MAX_GROUP = MAX_TOPIC - len(RETRY_PREFIX)
"""Most characters of a group: its retry topic is a topic too.  Stock brokers do not look."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_name(name: str) -> None:
    """Refuse what cannot be a group's name.

    @raise RequestRefused: Saying why.
    """
    if not name.strip():
        fault = "the specified group is blank"
    elif _NAME.fullmatch(name) is None:
        fault = (
            "the specified group contains illegal characters, "
            f"allowing only ^[%|a-zA-Z0-9_-]+$: {name[:MAX_GROUP]!r}"
        )
    elif len(name) > MAX_GROUP:
        fault = f"the specified group is longer than group max length. {len(name)} > {MAX_GROUP}"
    else:
        return
    raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)


class Groups(ConfigTable[GroupConfig, GroupTable, BrokerSettings]):
    """The table of subscription groups, C{subscriptionGroup.json}."""

    NAME, BODY, ROWS = SUBSCRIPTION_GROUPS, GroupTable, "subscription_group_table"

    _log = Logger()

    def presets(self) -> dict[str, GroupConfig]:
        return {name: GroupConfig(group_name=name) for name in PRESET_GROUPS}

    def find(self, name: str) -> GroupConfig | None:
        """A group; made if there is none, where a client may do that, it can be one's name, and
        there are not too many.
        """
        found = self.get(name)
        if found is not None:
            return found
        if self.full or not (
            self._settings.auto_create_groups or name.startswith(SYSTEM_GROUP_PREFIX)
        ):
            return None
        try:
            check_name(name)
        except RequestRefused:
            return None
        found = GroupConfig(group_name=name)
        self.put(found)
        return found

    def bring_back(self, name: str) -> None:
        """Make a group again that was handed messages, and that the table does not have."""
        if self.get(name) is None:
            self._log.warn(
                "Group {group} was handed messages and is not in {path}: made again",
                group=name,
                path=self.file.path.name,
            )
            self.put(GroupConfig(group_name=name))

    def put(self, config: GroupConfig) -> None:
        """Make a group, or change it."""
        self.set(config.group_name, config)
