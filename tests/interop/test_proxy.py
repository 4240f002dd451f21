"""A stock proxy 5.3.3 in front of a broker, and clients of gRPC behind it."""

from __future__ import annotations

import json
import sys
from unittest import SkipTest

from lab.harness.remote import Remote
from lab.stock import jars
from lab.stock.clients import Client
from lab.stock.grpc import GrpcProxy, outcomes
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
}
"""Each with the kind of message it takes."""

GROUPS = ("g-push", "g-simple", "g-fifo", "g-delay", "g-tx", "g-filter-tag", "g-filter-sql")

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
}


class ProxyTests(SiteTestCase):
    """In cluster mode, in front of ours."""

    version = "5.3.3"

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
        """Make topics and groups."""
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
                attributes=f"+message.type={kind}",
            )
        for group in (*GROUPS, *ONCE_MORE):
            settings = {
                "groupName": group,
                "consumeMessageOrderly": "fifo" in group,
                "retryMaxTimes": 1 if group in ONCE_MORE else 16,
            }
            self.tell(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, settings)

    def test_java(self) -> None:
        """All that the official Java client does."""
        self.prepare()
        proxy = GrpcProxy(self.folder, self.names, "interop")
        self._processes.append(proxy)
        client = Client(proxy, "gRPC, Java 5.2.0", self.names)
        try:
            found = outcomes(proxy.start().port, self.folder / "client-home")
        except jars.Missing as error:
            raise SkipTest(f"gRPC: {error}") from error
        for outcome in found:
            sys.stdout.write(f"{outcome}\n")
            what = f"by a stock proxy: {SCENARIOS[outcome.name]}"
            self.fill(client, what, FAILED if outcome.fault else OK, outcome.seconds)
        self.assertEqual([], [outcome for outcome in found if outcome.fault], proxy.tail())
        self.assertEqual(set(SCENARIOS), {outcome.name for outcome in found})
