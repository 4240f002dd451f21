"""The replicas that a master has had, kept for the start after a crash.

A master that comes up after a crash may have less than its replicas.  To ask them it has to know
where they are, from the run that crashed.  So an address is written down when a replica first
acknowledges what it was sent: rarely, and nothing is written for what it acknowledges later.
A clean stop leaves those that were there in that run; a crash leaves those of earlier runs too.

The HA port sees from where a replica calls, not where it listens.  A slave of ours says that
when it asks for its master's tables; of a stock one nothing is known.

Source: docs/states.rst, A lost tail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.typed_table import Port
from rmqha.net.group_commit import GroupCommit
from rmqha.store.files.allocate import InThread
from rmqha.wire.store_layout import OWN_FOLDER, REPLICAS

MOST_KNOWN = 64
"""Most addresses that are remembered: who connects from more is no replica."""

MOST_PORTS = 8
"""Most HA ports of one address."""


@frozen
class KeptReplicas:
    """What the file holds."""

    replicas: dict[str, list[Port]] = field(factory=dict)


def read(root: Path) -> KeptReplicas | None:
    """Those that a store's file names; C{None} without one.  Blocking.

    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If it makes no sense.
    """
    path = root / OWN_FOLDER / REPLICAS
    return typed_table.read(path, KeptReplicas, "it does not say where replicas listen")


@define(eq=False)
class KnownReplicas:
    """Addresses of replicas, and the HA ports that they have told.

    @ivar path: Where they are kept.
    @ivar in_thread: Writes the file.
    @ivar ports: By address, the HA ports of the slaves there; empty if none was told, 0 for one
        that listens on none.
    """

    path: Path
    in_thread: InThread
    ports: dict[str, list[int]]
    _told: dict[str, list[int]] = field(factory=dict, init=False)
    _seen: set[str] = field(factory=set, init=False)
    _commits: GroupCommit = field(init=False)
    # Fires when all that has changed is written, well or not.
    _saved: Deferred[None] = field(factory=lambda: succeed(None), init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._commits = GroupCommit(self._write)

    @classmethod
    def load(cls, root: Path, in_thread: InThread) -> Self:
        """Those of the runs before.  Blocking.

        @param root: The store's root.
        @raise FileUnreadable: If the system does not let them be read.
        """
        path = root / OWN_FOLDER / REPLICAS
        try:
            known = read(root)
        except TableUnreadable as error:
            cls._log.warn("Cannot read which replicas there were: {error}", error=error)
            known = None
        return cls(path, in_thread, {} if known is None else known.replicas)

    def joined(self, host: str) -> None:
        """A replica at C{host} has acknowledged what it was sent."""
        if host in self._seen or len(self._seen) >= MOST_KNOWN:
            return
        self._seen.add(host)
        if host not in self.ports:
            self.ports[host] = []
            self._save()
        self._take_told(host)

    def listens(self, host: str, port: int) -> None:
        """A slave at C{host} has told its HA port, 0 for none.  It counts when a replica was seen
        there.
        """
        told = self._told.get(host, [])
        if port in told or (host not in self._seen and len(self._told) >= MOST_KNOWN):
            return
        self._told[host] = [*told, port][-MOST_PORTS:]
        if host in self._seen:
            self._take_told(host)

    def _take_told(self, host: str) -> None:
        told = self._told.get(host)
        if told and told != self.ports[host]:
            self.ports[host] = list(told)
            self._save()

    def close(self) -> Deferred[None]:
        """The run ends cleanly: only who was there in it is remembered.

        @return: Fires when that is written, well or not.
        """
        if self._seen and self._seen != set(self.ports):
            self.ports = {host: self.ports[host] for host in self.ports if host in self._seen}
            self._save()
        over: Deferred[None] = Deferred()
        self._saved.addCallback(over.callback)
        return over

    def _save(self) -> None:
        """Write the file soon."""
        self._saved = self._commits.commit()

    def _write(self) -> Deferred[None]:
        table: json_table.Table = {"replicas": {**self.ports}}
        return self.in_thread(self._replace, table).addErrback(self._not_written)

    def _replace(self, table: json_table.Table) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        json_table.replace(self.path, table)

    def _not_written(self, failure: Failure) -> None:
        self._log.warn(
            "Cannot write down the addresses of replicas: {error}", error=failure.getErrorMessage()
        )
