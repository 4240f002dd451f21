"""Settings that a name server keeps for others: texts by namespace and key.

It is all of a name server that outlives it.  Where it lies is the caller's business.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed

from rmqha.net.group_commit import GroupCommit
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import KvTable, KvTables

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: C{broker:queues}, semicolons between, by topic."""

Change = Callable[[dict[str, str]], dict[str, str]]
"""Gives what a namespace's texts become."""

Save = Callable[[dict[str | int, Any]], Deferred[None]]
"""Makes a table durable, and fires then."""


@define(eq=False)
class KvConfig:
    """The texts.  A change is made when it is durable: its sender was told nothing before.

    @ivar save: Takes the content of C{kvConfigPath}.
    """

    save: Save
    _tables: dict[str, dict[str, str]] = field(factory=dict, init=False)
    _changes: list[tuple[str, Change]] = field(factory=list, init=False)
    _commits: GroupCommit = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._commits = GroupCommit(self._save)

    def load(self, saved: Mapping[str | int, Any] | None) -> None:
        """Begin with what was saved.

        @raise BodyInvalid: If it is of another shape.
        """
        found = json_body.from_json(KvTables, dict(saved or {}))
        self._tables = {name: dict(table) for name, table in found.config_table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KvTable | None:
        """All texts of a namespace; C{None} if it never had any."""
        table = self._tables.get(namespace)
        return None if table is None else KvTable(table=dict(table))

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """Set a text.

        @return: Fires when that is durable.
        """
        return self._change(namespace, lambda table: {**table, key: value})

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """Forget a text, if there is one."""
        return self._change(
            namespace, lambda table: {name: text for name, text in table.items() if name != key}
        )

    def _change(self, namespace: str, change: Change) -> Deferred[None]:
        self._changes.append((namespace, change))
        return self._commits.commit()

    def _save(self) -> Deferred[None]:
        """Make all changes that were asked for so far, in their order, durable together."""
        changes, self._changes = self._changes, []
        tables = dict(self._tables)
        for namespace, change in changes:
            before = tables.get(namespace, {})
            after = change(before)
            if after != before:
                tables[namespace] = after
        if tables == self._tables:
            return succeed(None)

        def saved(_: None) -> None:
            self._tables = tables

        return self.save({"configTable": tables}).addCallback(saved)
