"""The client of C{rmqha demo}: it asks a name server for the master, sends, reads, and keeps what
it was told.
"""

from __future__ import annotations

import time
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, gatherResults

from rmqha.net.remoting.client import UNREACHED, RemotingClient
from rmqha.nodes.find import cluster_of
from rmqha.store.offline.client_ledger import Acknowledged
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import decode
from rmqha.wire.names import TEMPLATE_TOPIC, UNIQUE_KEY
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pull import PullMessageAnswer, PullMessageRequest
from rmqha.wire.remoting.headers.send import SendMessageAnswer, SendMessageV2Request

TOPIC = "Demo"
QUEUES = 4
BROKER = "demo"
"""C{brokerName} of the pair."""

SENDERS = 8
"""Messages on their way at a time."""

_MASTER = 0
_SUBSCRIBES = 4
_MOST = 32


@define(eq=False)
class DemoClient:
    """A producer and a consumer.

    @ivar server: The name server's C{host:port}.
    @ivar ledger: What it was told is stored.
    @ivar refused: Messages that were not acknowledged, each with what was said instead.
    """

    server: str
    reactor: Any
    ledger: list[Acknowledged] = field(factory=list, init=False)
    refused: list[str] = field(factory=list, init=False)
    _client: RemotingClient = field(init=False)
    _last: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._client = RemotingClient(self.reactor)

    def close(self) -> Deferred[None]:
        """Close all connections."""
        return self._client.close()

    async def master(self) -> str:
        """Where the name server says that the master is; C{""} if it knows none."""
        try:
            known = await cluster_of(self.server, self._client)
        except UNREACHED:
            return ""
        broker = known.broker_addr_table.get(BROKER)
        return "" if broker is None else broker.broker_addrs.get(_MASTER, "")

    async def send(self, master: str, count: int) -> None:
        """Send messages until so many more are acknowledged, or one is not."""
        end = len(self.ledger) + count
        bad = len(self.refused)

        async def sender() -> None:
            while len(self.ledger) < end and len(self.refused) == bad:
                await self._send(master)

        await gatherResults([Deferred.fromCoroutine(sender()) for _ in range(SENDERS)])

    async def _send(self, master: str) -> None:
        self._last = number = self._last + 1
        unique, body = f"{number:032X}", f"message {number} of the demo"
        header = SendMessageV2Request(
            producer_group="demo-writers",
            topic=TOPIC,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=QUEUES,
            queue_id=number % QUEUES,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties=encode({UNIQUE_KEY: unique}).decode(),
            reconsume_times=0,
        )
        request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body.encode())
        try:
            answer = await self._client.request(master, request)
        except UNREACHED as error:
            self.refused.append(str(error))
            return
        if answer.code != ResponseCode.SUCCESS:
            self.refused.append(f"answer {answer.code}, {answer.remark}")
            return
        told = answer.custom(SendMessageAnswer)
        row = {
            "offsetMsgId": told.msg_id,
            "topic": TOPIC,
            "queueId": told.queue_id,
            "queueOffset": told.queue_offset,
            "msgId": unique,
            "body": body,
        }
        self.ledger.append(Acknowledged.of_row(row))

    async def read(self, master: str) -> set[str]:
        """Read all queues from their first message to their last.

        @return: The messages' own ids.
        """
        found = set[str]()
        for queue_id in range(QUEUES):
            at = 0
            while True:
                answer = await self._client.request(master, _pull(queue_id, at))
                if answer.code != ResponseCode.SUCCESS:
                    break
                body, place = bytes(answer.body), 0
                while place < len(body):
                    record = decode(body, place, place)
                    found.add(record.properties.get(UNIQUE_KEY, ""))
                    place += record.size
                at = answer.custom(PullMessageAnswer).next_begin_offset
        return found

    @property
    def acknowledged(self) -> set[str]:
        """The ids of the messages in the ledger."""
        return {str(each.msg_id) for each in self.ledger}


def _pull(queue_id: int, at: int) -> Command:
    header = PullMessageRequest(
        consumer_group="demo-readers",
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=at,
        max_msg_nums=_MOST,
        sys_flag=_SUBSCRIBES,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=1,
    )
    return Command.request(RequestCode.PULL_MESSAGE, header)
