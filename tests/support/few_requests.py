"""A client that asks a broker a little of everything, so that there is something to be told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import frozen

from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.broker.support import sending

Ask = Callable[[Command], Awaitable[Command]]
"""Asks a broker."""


@frozen
class FewRequests:
    """What it asks for.  All is about queue 0 of a topic, C{T} if none is said, and group C{cg}."""

    ask: Ask

    async def send(self, topic: str = "T", **properties: str) -> None:
        """Send a message with C{UNIQ_KEY} and others, which is not refused, as all of these are."""
        ext = sending(topic, properties=properties)
        await self._must(Command(code=Code.SEND_MESSAGE_V2, ext=ext, body=b"hello"))

    async def pull(self) -> None:
        """Get the first messages of the queue."""
        ext = {
            "consumerGroup": "cg",
            "topic": "T",
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "8",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        }
        await self._must(Command(code=Code.PULL_MESSAGE, ext=ext))

    async def send_back(self) -> None:
        """Give the log's first message back as one that is not to be tried again: a dead letter."""
        ext = {
            "group": "cg",
            "offset": "0",
            "delayLevel": "-1",
            "originMsgId": "x",
            "originTopic": "T",
            "unitMode": "false",
        }
        await self._must(Command(code=Code.CONSUMER_SEND_MSG_BACK, ext=ext))

    async def _must(self, command: Command) -> None:
        answer = await self.ask(command)
        assert answer.code == 0, f"{command.code}: {answer.code} {answer.remark}"
