"""
The consumer groups of a broker: C{config/subscriptionGroup.json}.

Source: docs/protocol/remoting.md, Tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.broker.persisted import Persisted
from rmqha.broker.topics import MOST_MADE, RETRY_PREFIX
from rmqha.config.settings import BrokerSettings
from rmqha.errors import RequestRefused
from rmqha.store.allocate import InThread
from rmqha.wire.encode import MAX_TOPIC
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.tables import GroupConfig, GroupTable
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.json_body import from_json

MAX_GROUP = MAX_TOPIC - len(RETRY_PREFIX)
"""Most characters of a group: its retry topic is a topic too.  Stock brokers do not look."""

SYSTEM_PREFIX = "CID_RMQ_SYS_"
"""Of groups brokers consume with; they may always be made."""

PRESETS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
"""Groups that are there from the start."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_name(name: str) -> None:
    """
    Refuse what cannot be a group's name.

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
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, fault)


class Groups:
    """
    The table of groups.
    """

    def __init__(
        self,
        folder: Path,
        settings: BrokerSettings,
        clock: IReactorTime,
        in_thread: InThread,
        now_ms: Callable[[], int],
    ) -> None:
        """
        @param folder: C{config} in the store's folder.
        @param now_ms: Milliseconds since 1970, for the table's version.
        """
        self._auto_create = settings.auto_create_groups
        self._now_ms = now_ms
        self._file = Persisted(folder / "subscriptionGroup.json", self.table, clock, in_thread)
        self._table = {name: GroupConfig(group_name=name) for name in PRESETS}
        self._version = DataVersion()
        self._rest = GroupTable()

    def load(self) -> None:
        """
        Read the file, whose groups win over those that are always there.

        @raise TableUnreadable: If there is one, and it cannot be read.
        @raise BodyInvalid: If it is no table of groups.
        """
        found = self._file.load()
        if found is None:
            return
        table = from_json(GroupTable, found)
        self._rest = evolve(table, subscription_group_table={})
        self._version = table.data_version
        self._table |= table.subscription_group_table

    def stop(self) -> Deferred[None]:
        """
        Write the file.

        @return: Fires when that is done, well or not.
        """
        return self._file.stop()

    def get(self, name: str) -> GroupConfig | None:
        """
        A group, if there is one of that name.
        """
        return self._table.get(name)

    def names(self) -> tuple[str, ...]:
        """
        The names of all.
        """
        return tuple(self._table)

    def find(self, name: str) -> GroupConfig | None:
        """
        A group; made if there is none, where a client may do that, it can be one's name, and
        there are not too many.
        """
        found = self._table.get(name)
        if found is not None:
            return found
        if not (self._auto_create or name.startswith(SYSTEM_PREFIX)):
            return None
        if len(self._table) >= MOST_MADE:
            return None
        try:
            check_name(name)
        except RequestRefused:
            return None
        found = GroupConfig(group_name=name)
        self.put(found)
        return found

    def put(self, config: GroupConfig) -> None:
        """
        Make a group, or change it.
        """
        self._table[config.group_name] = config
        self._bump()

    def delete(self, name: str) -> bool:
        """
        Forget a group.

        @return: Whether there was one.
        """
        if self._table.pop(name, None) is None:
            return False
        self._bump()
        return True

    def adopt(self, table: GroupTable) -> bool:
        """
        Take over another broker's table at once, all of it, with its version.

        @return: Whether that changed anything.
        """
        new = {name: GroupConfig(group_name=name) for name in PRESETS}
        new |= table.subscription_group_table
        rest = evolve(table, subscription_group_table={}, data_version=DataVersion())
        same = new == self._table and rest == evolve(self._rest, data_version=DataVersion())
        self._version = table.data_version
        if same:
            return False
        self._table, self._rest = new, rest
        self._file.dirty()
        return True

    def table(self) -> GroupTable:
        """
        The whole table as it is now; it is not changed any more.
        """
        return evolve(
            self._rest, subscription_group_table=dict(self._table), data_version=self._version
        )

    def _bump(self) -> None:
        now = max(self._now_ms(), self._version.timestamp)
        self._version = self._version.changed(now)
        self._file.dirty()
