"""A name server, a master and its slave, of ours or stock, and what mqadmin says of them."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from lab.harness.nodes import NameServer, Node, until
from lab.stock.brokers import BOOT, SMALL, Tool, broker_ports
from tests.interop import matrix
from tests.interop.cases import InteropTestCase
from tests.interop.sites import SOONER

#: What all brokers are told.
KEYS: dict[str, object] = {
    **SOONER,
    "brokerClusterName": "interop",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "maxMessageSize": 500_000,
    "fileReservedTime": 72,
    "diskMaxUsedSpaceRatio": 95,
    "haSendHeartbeatInterval": 5000,
}

#: What a 5.3.3 broker needs besides, to delete a topic.
TIMER: dict[str, object] = {"timerWheelEnable": "true", "mappedFileSizeTimerLog": 1 << 20}

#: What differs between two sites that hold the same: ids and times.
DIFFERENT = (
    (re.compile(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?"), "<time>"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "<ms>"),
    (re.compile(r"[\d.]+@[\w#@]+"), "<client>"),
    (re.compile(r"See https?://\S+"), "See <page>"),
)

#: A client's end of a connection.
PEER = re.compile(r"127\.0\.0\.1:\d+")

#: The topics that a stock broker makes for itself.
OWN = re.compile(r"RMQ_SYS_TRANS_(?:OP_)?HALF_TOPIC|rmq_sys_\w+")

#: Properties that 5.3.3 stores besides, and how all of a message's are shown.
BESIDES = {"MSG_REGION", "WAIT", "TRACE_ON"}
PROPERTIES = re.compile(r"(?<=[:=])(\s*)\{(\w+=[^{}]*)\}")

#: 5.3.3 says of a topic that was sent to that a group of the topic's name consumes it.
PHANTOM = re.compile(
    r"(?m)^(?:\S+ +)?Orders +Orders .*\n|MessageTrack \[consumerGroup=Orders,[^]]*\]\s*"
)


@frozen(kw_only=True)
class Said:
    """What a command printed, what it ended with, empty if well, and what it wrote to stderr."""

    printed: str = ""
    error: str = ""
    complained: str = ""

    @property
    def table(self) -> dict[str, str]:
        """Lines of C{name : value} or C{name = value}."""
        found = re.findall(r"(?m)^(\S+?)\s*(?:: |=  )(.*)$", self.printed)
        return {name: value.strip() for name, value in found}


def _properties(found: re.Match[str]) -> str:
    """A message's properties in order, without what only 5.3.3 has."""
    pairs = sorted(found[2].split(", "))
    return f"{{{', '.join(pair for pair in pairs if pair.partition('=')[0] not in BESIDES)}}}"


@define(eq=False)
class Pair:
    """One site.

    @ivar words: What stands for C{{words}} in commands.
    @ivar known: What is only this site's in what commands print, and what it is.
    """

    tool: Tool
    title: str
    names: str
    master: str
    slave: str
    ha: str
    words: dict[str, str] = field(factory=dict)
    known: dict[str, str] = field(factory=dict)
    got: list[Any] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        for name in ("names", "master", "slave", "ha"):
            address = getattr(self, name)
            self.words[name] = address
            self.known[address] = f"<{name}>"

    def do(self, what: str, timeout: float = BOOT, **content: Any) -> Any:
        """Give the helper a command for this site."""
        return self.tool.do(what, timeout, namesrv=self.names, **content)

    def consume(self, topic: str, group: str) -> None:
        """Start a consumer, which stays until L{leave}."""

        def heard(said: dict[str, Any]) -> None:
            if "body" in said:
                self.got.append(said)

        self.tool.ask(
            "consume",
            heard,
            namesrv=self.names,
            topic=topic,
            group=group,
            tags="*",
            name=f"reader of {self.title}",
        )

    def leave(self) -> None:
        self.tool.do("stop", BOOT, name=f"reader of {self.title}")

    def mqadmin(self, line: str, seconds: int = 0) -> Said:
        """Run a command; one that never ends is interrupted."""
        words = [word.format_map(self.words) for word in line.split()]
        said = Said(**self.do("mqadmin", words=words, seconds=seconds))
        for path in re.findall(r"(?m)^Message Body Path:\s+(\S+)$", said.printed):
            Path(path).unlink(missing_ok=True)
        return said

    def lines(self, said: Said, *drop: str) -> list[str]:
        """What a command said, without what differs from site to site, and patterns that do."""
        text = PHANTOM.sub("", f"{said.printed}\n{said.error}")
        for literal, name in self.known.items():
            text = text.replace(literal, name)
        for pattern, name in DIFFERENT:
            text = pattern.sub(name, text)
        text = PROPERTIES.sub(_properties, text)
        text = PEER.sub("<peer>", text)
        for each in drop:
            text = re.sub(each, "<...>", text)
        found = (" ".join(line.split()) for line in text.splitlines())
        return [line for line in found if line]

    def rows(self, said: Said, *drop: str) -> list[str]:
        """The same, in any order and without stock's own topics."""
        return sorted(line for line in self.lines(said, *drop) if not OWN.search(line))


Read = Callable[[Pair, Said], Any]

#: Commands that change nothing, so that they may be given again: what was told to a broker a
#: moment ago is not everywhere yet.
READING = ("topic", "get", "consumer", "query", "print", "producer", "broker", "cluster", "stats")


class PairsTestCase(InteropTestCase):
    """Tests that give the same to a pair of ours and to a stock one, and compare."""

    def setUp(self) -> None:
        super().setUp()
        self.faults: list[str] = []
        self.count = itertools.count()
        self.server = NameServer(self.folder)
        self._processes.append(self.server)
        self.server.start()
        self.both = (self.our_pair(), self.java_pair())
        for pair in self.both:
            self.addCleanup(pair.do, "leave")
            for address in (pair.master, pair.slave):
                self.until_known(pair, address)

    def our_pair(self) -> Pair:
        names = self.server.client_address
        given = {**KEYS, "namesrvAddr": names}
        if self.version < "5":
            given["timerWheelEnable"] = SMALL["timerWheelEnable"]
        master = Node(self.folder, "master", "our-master", **given)
        slave = Node(self.folder, "slave", "our-slave", master=master.address, **given)
        for node in (master, slave):
            node.port = node.keys["listenPort"] = broker_ports()
            self._processes.append(node)
            node.launch()
        self.nodes = (master, slave, self.server)
        addresses = [f"127.0.0.1:{port}" for port in (master.port, slave.port, master.ha_port)]
        return Pair(self.tool, "ours", names, *addresses)

    def java_pair(self) -> Pair:
        given = KEYS if self.version < "5" else {**KEYS, **TIMER}
        master = self.broker("java-master", **given)
        slave = self.broker("java-slave", role="SLAVE", **given)
        for broker in (master, slave):
            broker.launch()
        addresses = (master.client_address, slave.client_address, f"127.0.0.1:{master.port + 1}")
        return Pair(self.tool, "Java", self.tool.names, *addresses)

    def until_known(self, pair: Pair, address: str) -> None:
        """Wait until a broker is known, and can say how it is; 4.9.7 cannot in its first second."""

        def known() -> bool:
            if address not in self.tool.registered(pair.names):
                return False
            return "bootTimestamp" in pair.mqadmin(f"brokerStatus -b {address}").printed

        until(known, f"{pair.title}: {address} is there", BOOT, tell=self.tool.tail, pause=0.2)

    # --- comparing --------------------------------------------------------------------

    def same(
        self,
        line: str,
        *drop: str,
        read: Read | None = None,
        wait: float = 0.0,
        seconds: int = 0,
        has: str = "",
        fails: bool = False,
        how: str = "the same",
        when: str = "",
    ) -> None:
        """A command says the same at both sites.

        @param drop: Patterns of what differs.
        @param read: Makes what is compared of what was said.
        @param wait: Seconds in which it comes to be so; some for what only reads.
        @param seconds: When it is interrupted: it never ends.
        @param has: What it says at both.
        """
        begun = time.monotonic()
        if line.startswith(READING):
            wait = max(wait, 5.0)
        while True:
            said = [pair.mqadmin(line, seconds) for pair in self.both]
            ours, java = (
                read(pair, one) if read else pair.lines(one, *drop)
                for pair, one in zip(self.both, said, strict=True)
            )
            right = all(has in one.printed and bool(one.error) is fails for one in said)
            well = ours == java and right
            if well or time.monotonic() - begun > wait:
                break
            time.sleep(0.3)
        self.tell(line, when, how, well, begun)
        if not well:
            texts = [
                found if isinstance(found, list) else json.dumps(found, indent=1).splitlines()
                for found in (ours, java)
            ]
            diff = "\n".join(difflib.unified_diff(*texts, "ours", "Java", lineterm="", n=1))
            complaints = "\n".join(one.complained[:800] for one in said)
            wrong = f"no {has!r}, or an error: {[one.error for one in said]}"
            self.faults.append(f"{line} {when}\n{diff or wrong}\n{complaints}")

    def tell(self, line: str, when: str, how: str, well: bool, begun: float) -> None:
        name, *words = line.split()
        title = " ".join([name, *(word for word in words if re.match(r"-[a-z]", word))])
        seconds = round(time.monotonic() - begun, 1)
        result = matrix.OK if well else matrix.FAILED
        sys.stdout.write(f"{seconds:6.1f} s  {self.version} {line} {when}: {result}\n")
        sys.stdout.flush()
        matrix.record(
            matrix.Result(
                peer="mqadmin",
                version=self.version,
                roles=how,
                scenario=f"``{title}``, {when}" if when else f"``{title}``",
                result=result,
                seconds=seconds,
                order=next(self.count),
                table="mqadmin",
            )
        )
