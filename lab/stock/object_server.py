"""What servers of objects on loopback have in common: their jars are fetched by Maven once, into
the ignored folder of stock peers, and each is a process that is waited for, and killed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from lab.stock.jars import BRIEF, HERE, KEPT, Missing, say

START_MOST = 180.0
"""Seconds until one has to serve: on a busy machine a name node takes its time."""


class ObjectServer(ABC):
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
        self.own = folder
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def fetch(cls) -> int:
        """Fetch its jars, unless they are there: 0, or 1 if that fails, as processes end."""
        place = KEPT / cls.jars
        done = place / ".complete"
        if done.exists():
            return 0
        say(f"fetching {cls.title} into {place}")
        shutil.rmtree(place, ignore_errors=True)
        command = ["mvn", "--batch-mode", "--quiet", f"-DoutputDirectory={place}"]
        try:
            subprocess.run(
                [*command, "dependency:copy-dependencies"],
                check=True,
                timeout=900,
                cwd=HERE / cls.jars,
            )
        except FileNotFoundError:
            say(f"no mvn on the PATH; Apache Maven is needed to fetch {cls.title}")
            return 1
        except (OSError, subprocess.SubprocessError) as error:
            say(f"{cls.title}: mvn failed: {error}")
            return 1
        done.touch()
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
        with open(self.own / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*prefix, "java", *jvm, "-cp", f"{KEPT / self.jars}/*", *self.arguments()],
                stdout=log,
                stderr=log,
            )
        limit = time.monotonic() + START_MOST
        while not self.serves():
            if self._process.poll() is not None or time.monotonic() > limit:
                self.stop()
                raise AssertionError(f"{self.title} does not serve")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
