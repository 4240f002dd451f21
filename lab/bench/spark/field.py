"""What the parts of a run measure with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from attrs import define, field

from lab.bench.spark.made import Made, make
from lab.bench.spark.peers import Peer

FILES = 3
PAGE = 4096

PLAIN = ("spark.python.unix.domain.socket.enabled=false",)
"""What a session has that is not made by us."""


@define(slots=False)
class Field:
    """The stores and the sessions of a run.

    @ivar folder: Where all of it lies.
    @ivar total: Bytes of the store that is read.
    @ivar quick: Whether to measure once.
    """

    folder: Path
    total: int
    quick: bool
    _sessions: list[Peer] = field(factory=list)

    def rounds(self, usual: int) -> int:
        """How often something is measured."""
        return 1 if self.quick else usual

    @cached_property
    def store(self) -> Made:
        # Files are full, so that C{cat} reads nothing that is no log.
        size = (self.total // FILES // PAGE + 1) * PAGE
        made = make(self.folder / "store", self.total, file_size=size)
        self.spark.ask("index", store=str(made.root))
        return made

    @cached_property
    def spark(self) -> Peer:
        """A session of ours on two processors; it stays until the run's end."""
        found = self.session("session", 2)
        self._sessions.append(found)
        return found

    def session(
        self,
        name: str,
        cpus: int,
        *settings: str,
        prefix: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Peer:
        """Start a Spark session in a process of its own."""
        return Peer.python(
            "lab.bench.spark.session",
            self.folder / f"{name}.log",
            str(self.folder / name),
            str(cpus),
            *settings,
            prefix=prefix,
            environment=environment,
        )

    @contextmanager
    def another(
        self, name: str, cpus: int, *settings: str, environment: Mapping[str, str] | None = None
    ) -> Iterator[Peer]:
        found = self.session(name, cpus, *settings, environment=environment)
        try:
            yield found
        finally:
            found.end()

    def rate(self, peer: Peer, what: str, **more: object) -> float:
        asked = peer.ask(what, store=str(self.store.root), **more)
        return float(self.store.end / asked["seconds"])

    def end(self) -> None:
        """Stop all processes that still run."""
        for session in self._sessions:
            session.end()
