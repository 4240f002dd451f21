"""A live writer: the real master in its own process, told over a pipe what to write.

What was acknowledged is kept on this side, in a L{History} that outlives the process,
so it can be killed at any moment and held to its word afterwards.

    driver = Driver(folder, "master", brokerRole="SYNC_MASTER").start()
    burst = driver.put(1000, size=1024, concurrency=8)
    ...
    burst.wait()
    driver.history.acked
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from lab.harness.json_child import Asked, Piped
from lab.harness.nodes import PATIENCE, Node
from rmqha.store.offline.client_ledger import Acknowledged


@frozen(kw_only=True)
class Write:
    """What was told about one write.

    @ivar n: Its number, of all of a L{History}.
    @ivar status: RocketMQ's; C{REFUSED} if it was not stored, C{FAILED} if the disk failed.
    @ivar begin: Physical offset of its record, -1 if there is none.
    @ivar waited: Whether it was to wait for what the configuration promises.
    """

    n: int
    key: str
    topic: str
    queue: int
    status: str
    waited: bool
    begin: int = -1
    end: int = -1
    message_id: str = ""
    queue_offset: int = -1
    micros: int = 0
    error: str = ""

    @property
    def acknowledged(self) -> Acknowledged:
        """What was told, for C{rmqha doctor}."""
        return Acknowledged(
            offset=self.begin,
            topic=self.topic,
            queue_id=self.queue,
            queue_offset=self.queue_offset,
            msg_id=self.key,
        )


@define
class History:
    """Everything that drivers wrote, in the order in which results were heard."""

    writes: list[Write] = field(factory=list)
    next: int = 0

    def numbers(self, count: int) -> int:
        """Numbers for so many new writes, from the first one given."""
        first, self.next = self.next, self.next + count
        return first

    @property
    def acked(self) -> list[Write]:
        """The writes whose promise was made."""
        return [write for write in self.writes if write.status == "PUT_OK" and write.waited]

    @property
    def statuses(self) -> Counter[str]:
        """The number of writes by their final status."""
        return Counter(write.status for write in self.writes)


class Burst:
    """Some writes under way, and the results so far."""

    def __init__(self, driver: Driver, count: int, *, wait: bool = True, **how: Any) -> None:
        self.count = count
        self.writes: list[Write] = []
        self._history = driver.history
        self._waited = wait
        first = driver.history.numbers(count)
        self._asked: Asked = driver.ask(
            "put", self._heard, first=first, count=count, wait=wait, **how
        )

    def _heard(self, answer: dict[str, Any]) -> None:
        if "status" not in answer:
            return
        told = {name: value for name, value in answer.items() if name != "number"}
        write = Write(waited=self._waited, **told)
        self.writes.append(write)
        self._history.writes.append(write)

    @property
    def done(self) -> bool:
        """Whether all ended, or the driver did."""
        return self._asked.done

    def wait(self, timeout: float = PATIENCE) -> list[Write]:
        """Wait for all, or for the driver's end."""
        self.summary(timeout)
        return self.writes

    def summary(self, timeout: float = PATIENCE) -> dict[str, Any] | None:
        """Wait for all: C{statuses}, C{seconds} from first to last, and C{micros} of each write
        that was stored; or C{None} if the driver ended before.
        """
        found: dict[str, Any] | None = self._asked.wait(timeout)
        return found


class Driver(Piped, Node):
    """A node that writes as it is told, and the history of that.

    @ivar die: Places to die at, from L{lab.harness.kill_points}; used up by one start.
    @ivar synced: Where it keeps a copy of what it made durable, see L{lab.harness.power_cut}.
    """

    def __init__(
        self,
        folder: Path,
        role: str = "master",
        name: str = "",
        *,
        history: History | None = None,
        **keys: Any,
    ) -> None:
        super().__init__(folder, role, name, **keys)
        self.history = history if history is not None else History()
        self.die: list[str] = []
        self.synced: Path | None = None

    def launch(self) -> None:
        command = [sys.executable, "-m", "lab.harness.writer_child"]
        if self.synced is not None:
            command[2:] = ["lab.harness.power_cut", str(self.root), str(self.synced)]
        for place in self.die:
            command += ["--die", place]
        self.die = []
        self.open([*command, *self.write_conf()])

    @property
    def is_ready(self) -> bool:
        """Whether it runs and takes writes."""
        return self.running and any(said.get("news") == "ready" for said in self.news)

    def until_ready(self, timeout: float = PATIENCE) -> None:
        """Wait until it takes writes."""
        self.until_news("ready", timeout)

    def start(self, timeout: float = PATIENCE) -> Driver:
        """Start it, and wait until it takes writes."""
        self.launch()
        self.until_ready(timeout)
        return self

    def put(self, count: int, **how: Any) -> Burst:
        """Begin to write messages with a key of their own each; C{rate} is a second, C{wait} for
        the promise, C{tell} each result, C{properties} the length of one property more.
        """
        return Burst(self, count, **how)

    def enough(self) -> None:
        """Let the writes under way be the last of their bursts."""
        self.do("enough")

    def stop(self, timeout: float = PATIENCE) -> int:
        """Stop it cleanly, through the pipe, and give its exit code."""
        self.do("stop")
        return self.wait(timeout)
