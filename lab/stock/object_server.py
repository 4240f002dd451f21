"""What servers of objects on loopback have in common: their jars are fetched by Maven once, into
the ignored folder of stock peers, and each is a process that is waited for, and killed.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from lab.harness.nodes import Process
from lab.stock.jars import BRIEF, KEPT, Missing, fetch, say

START_MOST = 180.0
"""Seconds until one has to serve: on a busy machine a name node takes its time."""


class ObjectServer(Process, ABC):
    """One server; the folder of its jars has the C{pom.xml} that names them.

    @cvar target: What C{make} fetches it by.
    @ivar environment: How clients find it, and who they are.
    """

    title: ClassVar[str]
    jars: ClassVar[str]
    target: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        """@param folder: Its own, for what it has and for its settings."""
        if shutil.which("java") is None:
            raise Missing(f"no java on the PATH; {self.title} needs Java 17 or later")
        if not (KEPT / self.jars / ".complete").exists():
            raise Missing(f"{self.title} was not fetched; run make {self.target}")
        super().__init__(self.title, folder / "log")
        self.own = folder
        self.environment: dict[str, str] = {}

    @classmethod
    def fetch(cls) -> int:
        """Fetch its jars, unless they are there: 0, or 1 if that fails, as processes end."""
        try:
            fetch(cls.title, KEPT / cls.jars, f"{cls.jars}/pom.xml")
        except Missing as error:
            say(f"{cls.title}: {error}")
            return 1
        return 0

    @abstractmethod
    def url(self, folder: str) -> str:
        """The URL of a folder in it."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """What its JVM is started with: options of its own, a class, and what that takes."""

    @abstractmethod
    def serves(self) -> bool:
        """Whether it is ready since its last start."""

    def start(self, prefix: Sequence[str] = (), jvm: Sequence[str] = BRIEF) -> None:
        """Start it, and wait until it serves.

        @param prefix: A command that runs it.
        @param jvm: Options of Java; by default it starts fast, and does not become so.
        """
        path = f"{KEPT / self.jars}/*"
        self.spawn([*prefix, "java", *jvm, "-cp", path, *self.arguments()])
        self.until_so(self.serves, "it serves", START_MOST)
