"""
Settings that a name server keeps for others: texts by namespace and key.

It is all of a name server that outlives it.  Where it lies is somebody else's business.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredLock, succeed

from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import KvTable, KvTables

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: C{broker:queues}, semicolons between, by topic."""

Save = Callable[[dict[str | int, Any]], Deferred[None]]
"""Makes a table durable, and fires then."""


@define(eq=False)
class KvConfig:
    """
    The texts.  A change is made when it is durable: who asked for it was told nothing before.

    @ivar save: Takes the content of C{kvConfigPath}.
    """

    save: Save
    _tables: dict[str, dict[str, str]] = field(factory=dict, init=False)
    _turn: DeferredLock = field(factory=DeferredLock, init=False)

    def load(self, saved: Mapping[str | int, Any] | None) -> None:
        """
        Begin with what was saved.

        @raise BodyInvalid: If it is of another shape.
        """
        found = json_body.from_json(KvTables, dict(saved or {}))
        self._tables = {name: dict(table) for name, table in found.config_table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        """
        One text.
        """
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KvTable | None:
        """
        All texts of a namespace; C{None} if it never had any.
        """
        table = self._tables.get(namespace)
        return None if table is None else KvTable(table=dict(table))

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """
        Set a text.
        """
        return self._change(namespace, lambda table: {**table, key: value})

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """
        Forget a text, if there is one.
        """
        return self._change(
            namespace, lambda table: {name: text for name, text in table.items() if name != key}
        )

    def _change(
        self, namespace: str, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> Deferred[None]:
        def begin() -> Deferred[None]:
            before = self._tables.get(namespace, {})
            after = change(before)
            if after == before:
                return succeed(None)
            tables = {**self._tables, namespace: after}

            def done(_: None) -> None:
                self._tables = tables

            return self.save({"configTable": tables}).addCallback(done)

        changed: Deferred[None] = self._turn.run(begin)
        return changed
