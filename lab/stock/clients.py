"""Stock clients of several languages as processes that take the same commands."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from attrs import define, field, frozen

from lab.harness.json_child import Asked, Piped
from lab.harness.nodes import until
from lab.stock import jars, packages
from lab.stock.brokers import BOOT, Tool

#: Longest wait for messages: clients sleep 20 s and more after some errors.
SOON = 60.0

#: Tags of messages, in turn.
COLOURS = ("red", "green", "blue")

_names = itertools.count()


@frozen(kw_only=True)
class Got:
    """A message as a client tells it.

    @ivar times: How often it has come back.
    @ivar said: A property that all senders set.
    @ivar born: When it was sent, as C{stored}, in milliseconds since 1970, from clients that tell.
    """

    topic: str
    body: str
    tag: str | None = None
    keys: str | None = None
    queue: int
    offset: int
    times: int = 0
    id: str = ""
    said: str | None = None
    born: int = 0
    stored: int = 0


@frozen(kw_only=True)
class Answer:
    """What came of one send.

    @ivar status: RocketMQ's name for it, C{SENT} where nobody answers, or the error's name.
    @ivar place: The broker's id of it, from clients that tell.
    """

    status: str
    id: str = ""
    place: str = ""
    queue: int = -1
    offset: int = -1
    error: str = ""


@define(eq=False)
class Consumer:
    """A consumer that runs, and what it got so far, in order."""

    client: Client
    name: str
    got: list[Got] = field(factory=list)
    asked: Asked | None = None

    def heard(self, said: dict[str, Any]) -> None:
        """It told something (in the reader's thread)."""
        if "body" in said:
            self.got.append(Got(**{k: v for k, v in said.items() if k != "number"}))

    @property
    def bodies(self) -> list[str]:
        return [got.body for got in list(self.got)]

    def until_got(self, bodies: Sequence[str], timeout: float = SOON) -> list[Got]:
        """Wait until it has got these, and give them as they came."""
        wanted = set(bodies)

        def told() -> str:
            left = sorted(wanted - set(self.bodies))
            return f"missing {left[:5]} of {len(left)}\n{self.client.process.tail()}"

        until(
            lambda: wanted <= set(self.bodies),
            f"{self.client.title}: {self.name} gets {len(wanted)} messages",
            timeout,
            tell=told,
        )
        return [got for got in list(self.got) if got.body in wanted]

    def stop(self) -> None:
        self.client.process.do("stop", SOON, name=self.name)
        if self.asked is not None:
            self.asked.wait(SOON)


@define(eq=False)
class Client:
    """A stock client's process that works with one name server."""

    process: Piped
    title: str
    names: str

    @property
    def slug(self) -> str:
        """Its title in letters that a topic's or a group's name may have."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title)

    def send(
        self, topic: str, bodies: Sequence[str], how: str = "sync", **more: Any
    ) -> list[Answer]:
        """Send each body, its key, tagged with the colours in turn; C{sync} all clients know."""
        colours = itertools.cycle(COLOURS)
        content: dict[str, Any] = {
            "namesrv": self.names,
            "group": f"{self.slug}-senders",
            "topic": topic,
            "bodies": list(bodies),
            "tags": [next(colours) for _ in bodies],
            "keys": list(bodies),
            "how": how,
            **more,
        }
        return [Answer(**told) for told in self.process.do("send", SOON, **content)]

    def send_surely(self, topic: str, bodies: Sequence[str], timeout: float = SOON) -> None:
        """Send each body until the broker takes it: one may be there twice then."""
        left = list(bodies)
        last: list[Answer] = []

        def sent() -> bool:
            last[:] = self.send(topic, left)
            left[:] = [
                body for body, one in zip(left, last, strict=True) if one.status != "SEND_OK"
            ]
            return not left

        until(
            sent,
            f"{self.title}: all sent",
            timeout,
            tell=lambda: f"{last[-1:]}\n{self.process.tail()}",
            pause=0.2,
        )

    def consume(self, topic: str, group: str, tags: str = "*", **more: Any) -> Consumer:
        consumer = Consumer(self, f"{group}-{next(_names)}")
        started = threading.Event()

        def heard(said: dict[str, Any]) -> None:
            consumer.heard(said)
            if "started" in said or said.get("done"):
                started.set()

        asked = self.process.ask(
            "consume",
            heard,
            name=consumer.name,
            namesrv=self.names,
            topic=topic,
            group=group,
            tags=tags,
            **more,
        )
        consumer.asked = asked
        if not started.wait(SOON):
            raise AssertionError(f"{self.title}: no consumer\n{self.process.tail()}")
        if asked.done:
            asked.wait()
            raise AssertionError(f"{self.title}: the consumer ended\n{self.process.tail()}")
        return consumer


class Other(Piped):
    """The process of a client that is not the Java one."""

    title = ""

    def __init__(self, folder: Path) -> None:
        slug = self.title.split(maxsplit=1)[0].lower()
        super().__init__(slug, folder / f"{slug}.log")
        self.folder = folder

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> Self:
        """Start it, and wait until it takes commands."""
        self.open(self.command())
        self.until_news("ready", BOOT)
        return self


class NodeClient(Other):
    """The package C{ali-ons} from the npm registry."""

    title = "ali-ons 3.12.0 (Node)"

    def command(self) -> list[str]:
        return ["node", str(jars.HERE / "node" / "client.js"), str(packages.node())]


class CppClient(Other):
    """The C++ client in the wheel C{rocketmq} from PyPI."""

    title = "rocketmq 0.4.4 (C++)"

    def command(self) -> list[str]:
        """Its command line: its library leaves logs in C{HOME}."""
        script = str(jars.HERE / "python" / "cpp_client.py")
        return ["env", f"HOME={self.folder}", str(packages.python()), script]


class JpypeClient(Other):
    """C{pyrocketmq} from PyPI with the jars of 4.9.7."""

    title = "pyrocketmq 0.3.4"

    def command(self) -> list[str]:
        script = str(jars.HERE / "python" / "jpype_client.py")
        library = f"{jars.HERE / 'home' / 'conf'}:{jars.library('4.9.7')}/*"
        return [str(packages.python()), script, library, str(self.folder)]


#: Those that speak the protocol's 4.x form only, whatever the broker's version.
OTHERS: tuple[type[Other], ...] = (NodeClient, CppClient, JpypeClient)


def java_client(tool: Tool, names: str, header: str = "JSON") -> Client:
    """The Java client in the helper's JVM, with headers in one form from now on."""
    tool.do("serialize", type=header)
    return Client(tool, f"Java {tool.version}, {header}", names)


def report_missing(kind: type[Other], error: jars.Missing) -> None:
    """Say why a client takes no part."""
    sys.stdout.write(f"skipped {kind.title}: {error}\n")
    sys.stdout.flush()
