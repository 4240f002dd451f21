"""A stock proxy 5.3.3 in front of a broker, and clients of gRPC behind it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import SkipTest

from lab.harness.nodes import until
from lab.harness.remote import Remote, pull
from lab.stock import jars
from lab.stock.clients import Client
from lab.stock.grpc import (
    GrpcProxy,
    Outcome,
    java_client,
    node_client,
    outcomes,
    python_client,
)
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.interop.matrix import FAILED, OK
from tests.interop.sites import SiteTestCase

TOPICS = {
    "normal": "NORMAL",
    "single": "NORMAL",
    "letters": "NORMAL",
    "fifo": "FIFO",
    "ordered": "FIFO",
    "delay": "DELAY",
    "tx": "TRANSACTION",
    "plain": "",
}
"""Each with the kind of message it takes; of the last one nothing is said."""

GROUPS = (
    "g-push",
    "g-simple",
    "g-fifo",
    "g-delay",
    "g-tx",
    "g-filter-tag",
    "g-filter-sql",
    "g-codes",
)

EVERYWHERE = ("normal", "simple", "filters", "fifo", "delay", "transaction", "dead_letter")
"""What both the Java and the Python client do."""

ONCE_MORE = ("g-dlq", "g-fifodlq")
"""Groups that try once more, and then give up."""

SCENARIOS = {
    "normal": "sends, in turn and at once, and pushes: keys, tag, properties, ids",
    "simple": "receives, asks for more time, and is given it again, as attempt 2",
    "filters": "tags and SQL92",
    "fifo": "in order, also what it failed with",
    "delay": "at its time; another one recalled",
    "transaction": "committed, rolled back, and asked about",
    "dead_letter": "given up after the last attempt, in order too",
    "errors": "what is refused: no topic, another kind, too long",
    "codes": "21 calls have the codes that they have with a stock broker",
    "push": "sends and pushes: twenty messages",
    "restart": "goes on when the proxy was killed and started again, with nothing lost",
}


class ProxyTests(SiteTestCase):
    """In cluster mode, in front of ours."""

    version = "5.3.3"
    long = True

    def our_broker(self, **keys: object):  # type: ignore[no-untyped-def]
        """Messages of the usual size, and recalls, are taken."""
        more = {"maxMessageSize": 5_000_000, "recallMessageEnable": "true"}
        node = super().our_broker(**{**keys, **more})
        node.keys["mappedFileSizeCommitLog"] = 64 << 20
        return node

    def tell(self, code: RequestCode, body: object = None, **ext: str) -> None:
        """Ask the broker to make something."""
        raw = b"" if body is None else json.dumps(body).encode()
        with Remote(int(self.address.rpartition(":")[2])) as administrator:
            answer = administrator.ask(Command(code=code, ext=ext, body=raw))
        self.assertEqual(0, answer.code, answer.remark)

    def prepare(self) -> None:
        for topic, kind in TOPICS.items():
            self.tell(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                topic=topic,
                readQueueNums="4",
                writeQueueNums="4",
                perm="6",
                topicFilterType="SINGLE_TAG",
                topicSysFlag="0",
                order="false",
                defaultTopic="TBW102",
                **({"attributes": f"+message.type={kind}"} if kind else {}),
            )
        for group in (*GROUPS, *ONCE_MORE):
            settings = {
                "groupName": group,
                "consumeMessageOrderly": "fifo" in group,
                "retryMaxTimes": 1 if group in ONCE_MORE else 16,
            }
            self.tell(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, settings)

    def proxied(self) -> tuple[GrpcProxy, Path]:
        """A proxy, started, with topics and groups behind it; and a folder for a client."""
        self.prepare()
        proxy = GrpcProxy(self.folder, self.names, "interop")
        self._processes.append(proxy)
        home = self.folder / "client-home"
        home.mkdir()
        try:
            return proxy.start(), home
        except jars.Missing as error:
            raise SkipTest(f"gRPC: {error}") from error

    def told(self, proxy: GrpcProxy, title: str, found: list[Outcome], names: set[str]) -> None:
        """What became of scenarios goes to the table, and all went well."""
        client = Client(proxy, f"gRPC, {title}", self.names)
        for outcome in found:
            sys.stdout.write(f"{outcome}\n")
            what = f"by a stock proxy: {SCENARIOS[outcome.name]}"
            self.fill(client, what, FAILED if outcome.fault else OK, outcome.seconds)
        self.assertEqual([], [outcome for outcome in found if outcome.fault], proxy.tail())
        self.assertEqual(names, {outcome.name for outcome in found})
        self.assert_well()

    def does(self, title: str, command: Callable[[int, Path], list[str]], *names: str) -> None:
        """All that a client does."""
        proxy, home = self.proxied()
        try:
            given = command(proxy.port, home)
        except jars.Missing as error:
            raise SkipTest(f"{title}: {error}") from error
        self.told(proxy, title, outcomes(given, home), set(names))

    def test_java(self) -> None:
        """All that the official Java client does."""
        self.does("Java 5.2.0", java_client, *EVERYWHERE, "errors")

    def test_python(self) -> None:
        """All that the official Python client does."""
        self.does("Python 5.1.2", python_client, *EVERYWHERE, "codes")

    def test_node(self) -> None:
        """All that the official Node client does."""
        self.does("Node 1.0.8", node_client, "simple", "push")

    def test_restart(self) -> None:
        """The proxy is killed while a Java client sends and gets, and started again."""
        proxy, home = self.proxied()
        given = java_client(proxy.port, home, "restart")
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(outcomes, given, home)

            def sent() -> bool:
                with Remote(int(self.address.rpartition(":")[2])) as client:
                    answers = [client.ask(pull("normal", "look", 0, queue)) for queue in range(4)]
                return all(int(answer.ext.get("maxOffset", 0)) > 5 for answer in answers)

            until(sent, "it sends", 60, pause=0.2)
            proxy.kill9()
            proxy.start()
            self.told(proxy, "Java 5.2.0", found.result(), {"restart"})
