"""A name server and a broker for clients, each of ours or stock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from lab.harness.certificates import certificate
from lab.harness.nodes import NameServer, Node, Process, until
from lab.stock import jars
from lab.stock.brokers import BOOT, Broker, broker_ports
from lab.stock.clients import OTHERS, Client, Other, java_client, report_missing
from tests.interop import matrix
from tests.interop.cases import InteropTestCase

T = TypeVar("T")

#: What a broker of these tests is told, ours or stock: checks and retries come soon, and consumers
#: may filter.
SOONER: dict[str, object] = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 1000,
    "messageDelayLevel": " ".join(["1s", "3s", *["1s"] * 16]),
    "traceTopicEnable": "true",
    "defaultTopicQueueNums": 4,
    "enablePropertyFilter": "true",
}


class SiteTestCase(InteropTestCase):
    """Tests of clients at one site, whose name server and broker are C{our} or C{Java}."""

    names_of = "our"
    broker_of = "our"
    certificate: tuple[Path, Path] | None = None

    def setUp(self) -> None:
        super().setUp()
        self.names = self.tool.names
        if self.names_of == "our":
            self.name_server = NameServer(self.folder)
            self.name_server.keys.update(self.certified())
            self._processes.append(self.name_server)
            self.names = self.name_server.start().client_address
        self.roles = f"{self.names_of} name server, {self.broker_of} broker"
        self.addCleanup(self.tool.do, "leave", BOOT, namesrv=self.names)
        self.addCleanup(self.tool.do, "serialize", type="JSON")
        port = broker_ports()
        self.address = f"127.0.0.1:{port}"
        keys = {**SOONER, "listenPort": port, "namesrvAddr": self.names}
        self.serving: Node | Broker
        if self.broker_of == "our":
            self.serving = self.our_broker(**keys)
        else:
            keys["haListenPort"] = port + 1
            self.serving = self.broker("broker", **keys)
            self.serving.port = port
        self.start_broker()

    def our_broker(self, **keys: object) -> Node:
        given = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "maxMessageSize": 500_000}
        node = Node(self.folder, "master", "broker", **{**given, **self.certified(), **keys})
        node.keys["brokerClusterName"] = "interop"
        self._processes.append(node)
        return node

    def certified(self) -> dict[str, object]:
        """Keys of a certificate: clear text and TLS on one port. Stock servers make their own."""
        if not self.certificate:
            self.certificate = certificate(self.folder / "tls")
        key, path = self.certificate
        return {"tlsKeyPath": key, "tlsCertPath": path}

    def start_broker(self) -> None:
        """Start the broker, and wait until the name server knows it."""
        self.serving.start()
        until(
            lambda: self.address in self.tool.registered(self.names),
            "our broker is registered",
            BOOT,
            tell=self.serving.tail,
            pause=0.1,
        )

    def restart_broker(self) -> None:
        """Stop the broker cleanly and start it again."""
        if isinstance(self.serving, Broker):
            self.serving.stop()
        else:
            self.assertIn(self.serving.term(), (0, -15), self.serving.tail())
        self.start_broker()

    def make_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic, and wait until the name server tells of it."""
        self.tool.do("topic", BOOT, address=self.address, topic=topic, queues=queues)

    # --- the clients ----------------------------------------------------------

    def java(self, header: str = "JSON") -> Client:
        return java_client(self.tool, self.names, header)

    def others(self, kinds: Iterable[type[Other]] = OTHERS) -> list[Client]:
        """Clients that are not Java's, started, as far as they can be had."""
        found = []
        for kind in kinds:
            process = kind(self.folder)
            self._processes.append(process)
            try:
                found.append(Client(process.start(), kind.title, self.names))
            except jars.Missing as error:
                report_missing(kind, error)
        return found

    # --- what is tried --------------------------------------------------------

    @contextmanager
    def row(self, client: Client, what: str) -> Iterator[None]:
        begun = time.monotonic()
        result = matrix.FAILED
        try:
            yield
            result = matrix.OK
        finally:
            self.fill(client, what, result, time.monotonic() - begun)

    def fill(self, client: Client, what: str, result: str, seconds: float = 0.0) -> None:
        sys.stdout.write(f"{seconds:6.1f} s  {self.roles} {client.title}: {what}: {result}\n")
        sys.stdout.flush()
        matrix.record(
            matrix.Result(
                peer=client.title,
                version=self.version,
                roles=self.roles,
                scenario=what,
                result=result,
                seconds=round(seconds, 1),
                table="clients",
            )
        )

    def side_by_side(self, what: Callable[[T], object], each: Iterable[T]) -> None:
        """Do something with each at the same time; all that went wrong is told."""
        given = list(each)
        with ThreadPoolExecutor(max_workers=len(given) or 1) as pool:
            futures = [pool.submit(what, one) for one in given]
        errors = [error for error in (future.exception() for future in futures) if error]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise AssertionError(
                "\n\n".join(f"{type(error).__name__}: {error}" for error in errors)
            )

    def assert_well(self) -> None:
        """The nodes of ours said nothing that has no name."""
        ours: list[Process] = [process for process in self._processes if isinstance(process, Node)]
        for node in ours:
            self.assertEqual([], node.complaints(), node.log()[-20_000:])
