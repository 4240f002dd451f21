"""Stock RocketMQ as processes on loopback: brokers, and a helper of ours that holds a name
server, producers and readers in one JVM a version.

Everything is a L{Process}, so whatever a failing test leaves behind is killed by its
pid when the interpreter ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from attrs import define, field, frozen

from lab.harness.json_child import Asked, Piped
from lab.harness.nodes import Folder, Process, until
from lab.harness.ports import free_port, free_ports
from lab.stock import jars
from rmqha.config.store_settings import StoreSettings
from rmqha.store.offline.client_ledger import Acknowledged

#: A JVM of a broker needs some seconds to start, more on a busy machine.
BOOT = 90.0

#: What makes a stock broker small, and equal to our nodes in file sizes.
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 4000,
    "maxMessageSize": 500_000,
    "flushDiskType": "ASYNC_FLUSH",
    "diskMaxUsedSpaceRatio": 95,
    "timerWheelEnable": "false",
    # A busy machine is no reason to refuse: by default a send that waits 200 ms is.
    "brokerFastFailureEnable": "false",
    # 5.3.3 keeps a processor busy until this long after its start: 3 s by default.
    "transactionMetricFlushInterval": 100,
    "brokerClusterName": "interop",
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
}


def broker_ports() -> int:
    """A port whose neighbours are free: a broker takes the second below, 4.9 the next one too."""
    return free_port(-2, -1, 1)


@frozen
class Row:
    """What is compared of a message that a consumer can reach; half of its body's SHA-256 is."""

    topic: str
    queue: int
    queue_offset: int
    place: int
    body: str
    tags: str | None
    keys: str | None


def rows_of(found: Iterable[list[Any]]) -> list[Row]:
    """Rows as the helper tells them, in the log's order."""
    return sorted((Row(*row) for row in found), key=lambda row: (row.place, row.queue_offset))


@frozen(kw_only=True)
class Sent:
    """One send and what the broker answered.

    @ivar status: RocketMQ's, or the exception's name.
    @ivar places: Physical offsets of what was stored (a batch has several).
    """

    n: int
    status: str
    topic: str = ""
    queue: int = -1
    queueOffset: int = -1
    places: list[int] = field(factory=list)
    bodies: list[str] = field(factory=list)
    error: str = ""

    @property
    def acknowledged(self) -> list[Acknowledged]:
        """For C{rmqha doctor}, by place: the topic of delayed and half messages does not say it."""
        places = self.places if len(self.places) == len(self.bodies) else [None] * len(self.bodies)
        return [
            Acknowledged(offset=place, body_sha256=body)
            for place, body in zip(places, self.bodies, strict=True)
        ]


@define
class Sends:
    """Some sends under way, and those that were told so far."""

    asked: Asked
    sent: list[Sent]

    @property
    def acked(self) -> list[Sent]:
        """Those that kept the broker's whole promise."""
        return [sent for sent in list(self.sent) if sent.status == "SEND_OK"]

    def wait(self, timeout: float = 120.0) -> dict[str, int]:
        """Wait for all, and say how many ended how."""
        found: dict[str, int] = self.asked.wait(timeout)
        return found


class Tool(Piped):
    """The helper's JVM of one version, with a name server in it."""

    jvm: tuple[str, ...] = jars.CLEAR

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(f"tool-{version}", folder / f"tool-{version}.log")
        self.folder = self.cwd = folder
        self.version = version
        (self.names_port,) = free_ports(1)
        self.next = 0

    @property
    def names(self) -> str:
        return f"127.0.0.1:{self.names_port}"

    def start(self) -> Self:
        self.open(jars.java(self.version, "Tool", self.folder, jvm=self.jvm))
        self.until_news("ready", BOOT)
        self.do("namesrv", BOOT, port=self.names_port, folder=str(self.folder))
        return self

    def put(
        self,
        count: int,
        topic: str = "Interop",
        *,
        kind: str = "single",
        size: int = 1000,
        threads: int = 4,
        wait: bool = True,
        tell: bool = True,
        properties: int = 0,
    ) -> Sends:
        """Begin to send with a stock producer.

        @param kind: C{single}, C{big} (noise), C{batch} (five each), C{delay},
            C{transaction} or C{transaction-rollback}.
        @param properties: Length of one property more.
        @param wait: Whether each asks for the broker's whole promise.
        """
        first, self.next = self.next, self.next + count
        sent: list[Sent] = []

        def heard(answer: dict[str, Any]) -> None:
            if "status" in answer:
                sent.append(Sent(**{k: v for k, v in answer.items() if k != "number"}))

        asked = self.ask(
            "put",
            heard,
            namesrv=self.names,
            topic=topic,
            kind=kind,
            size=size,
            count=count,
            first=first,
            threads=threads,
            wait=wait,
            tell=tell,
            properties=properties,
        )
        return Sends(asked, sent)

    def back(self, broker: Broker, group: str, places: list[int]) -> None:
        """Give messages back, as a consumer that failed with them: a second later each is in
        C{%RETRY%} and the group's name, which has at most 120 characters, or 248 with 5.x and its
        longer topics.
        """
        self.do("back", address=broker.client_address, group=group, places=places)

    def enough(self) -> None:
        """Tell the tool to begin no more sends."""
        self.do("enough")

    def register(self, master: tuple[str, int], name: object = SMALL["brokerName"]) -> None:
        """Tell the name server of a master of ours: 5.3.3 slaves learn the HA address from there
        and nowhere else, as they drop their C{haMasterAddress} before their HA client exists.
        """
        self.do(
            "register",
            namesrv=self.names,
            brokerName=name,
            clusterName=SMALL["brokerClusterName"],
            brokerAddr=f"{master[0]}:{master[1] - 1}",
            haServerAddr=f"{master[0]}:{master[1]}",
        )

    def registered(self, names: str) -> list[str]:
        """The client addresses of all brokers that a name server knows."""
        found: list[str] = self.do("registered", namesrv=names)
        return found

    def pull(self, topic: str, names: str = "") -> list[Row]:
        """All that the brokers of a name server serve of a topic."""
        return rows_of(self.do("pull", BOOT, namesrv=names or self.names, topic=topic))

    def read(
        self, store: StoreSettings, topic: str = "", keys: Iterable[str] = ()
    ) -> dict[str, Any]:
        """What C{DefaultMessageStore} reads in a copy of a stopped store: C{min} and C{max} offset,
        C{queues} with their bounds, C{rows}, and the places that the index finds for each of
        C{keys}.
        """
        copy = Folder("interop-copy-")
        root = copy.path / "store"
        shutil.copytree(store.root, root)
        found: dict[str, Any] = self.do(
            "read",
            BOOT,
            root=str(root),
            fileSize=store.file_size,
            queueFileSize=store.queue_file_size,
            slots=store.index_slots,
            entries=store.index_entries,
            port=free_ports(1)[0],
            topic=topic,
            keys=list(keys),
        )
        copy.remove()
        found["rows"] = rows_of(found["rows"])
        return found


class Broker(Process):
    """A stock broker, and its configuration, to be changed between two starts; its JVM has the
    options of its tool's.
    """

    def __init__(
        self,
        folder: Path,
        tool: Tool,
        name: str,
        *,
        role: str = "ASYNC_MASTER",
        root: Path | None = None,
        master: tuple[str, int] | None = None,
        **keys: object,
    ) -> None:
        super().__init__(f"{name}-{tool.version}", folder / f"{name}.log")
        self.folder = folder
        self.tool = tool
        self.version = tool.version
        self.jvm = tool.jvm
        self.conf = folder / f"{name}.conf"
        self.root = folder / name / "store" if root is None else root
        self.port = broker_ports()
        self.keys: dict[str, object] = {
            **SMALL,
            "brokerRole": role,
            "brokerId": 1 if role == "SLAVE" else 0,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": tool.names,
            "storePathRootDir": self.root,
            "storePathCommitLog": self.root / "commitlog",
        }
        if master is not None and self.version < "5":
            self.keys["haMasterAddress"] = f"{master[0]}:{master[1]}"
        self.keys.update(keys)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port + 1

    @property
    def client_address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        lines = [f"{key}={value}" for key, value in self.keys.items()]
        self.conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        home = self.folder / f"{self.name}-home"
        home.mkdir(exist_ok=True)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self.spawn(jars.java(self.version, main, home, "-c", str(self.conf), jvm=self.jvm))

    def start(self) -> Self:
        """Start it, and wait until it serves."""
        self.launch()
        self.until_said("boot success", BOOT)
        self.until_so(self._answers, "it answers", BOOT)
        names = str(self.keys["namesrvAddr"])
        self.until_so(
            lambda: self.client_address in self.tool.registered(names), "it is registered", BOOT
        )
        return self

    def _answers(self) -> bool:
        # 4.9.7 cannot answer in its first second, and 5.3.3 has nothing to say in its first moment.
        try:
            return bool(self.runtime()) and self.max_offset() >= 0
        except AssertionError:
            return False

    def runtime(self) -> dict[str, int]:
        """What it says about itself: log offsets, in bytes, and its boot's time."""
        found: dict[str, int] = self.tool.do("runtime", address=self.client_address)
        return found

    def max_offset(self) -> int:
        """The physical offset where its log ends."""
        return int(self.runtime()["commitLogMaxOffset"])

    def until_max(self, end: int, timeout: float = 60.0) -> None:
        """Wait until its log reaches C{end}."""
        until(
            lambda: self.max_offset() >= end,
            f"{self.name} holds {end} bytes",
            timeout,
            tell=lambda: f"it has {self.max_offset()}\n{self.tail()}",
            pause=0.1,
        )

    def settings(self) -> StoreSettings:
        """What a comparison needs to know of its store."""
        return StoreSettings(
            root=self.root,
            file_size=int(str(self.keys["mappedFileSizeCommitLog"])),
            queue_file_size=int(str(self.keys["mappedFileSizeConsumeQueue"])),
            index_slots=int(str(self.keys["maxHashSlotNum"])),
            index_entries=int(str(self.keys["maxIndexNum"])),
        )

    def stop(self) -> None:
        """Stop it cleanly; a JVM ended by a signal says so in its exit code."""
        code = self.term(BOOT)
        if code not in (0, 143, -15):
            raise AssertionError(f"{self.name} ended with {code}\n{self.tail()}")
