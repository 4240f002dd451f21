"""A master whose tables a slave copies, played by a test: it is the slave's client."""

from __future__ import annotations

import json
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime

from rmqha.errors import RemotingTimeout, RemotingUnreachable
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

ADDRESS = "10.0.0.1:10911"


def topic(name: str, **more: Any) -> dict[str, Any]:
    """A topic as a 4.9 broker writes it."""
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    } | more


def group(name: str, **more: Any) -> dict[str, Any]:
    """A group, the same."""
    return {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": name,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    } | more


def mode(topic: str, group: str, **more: Any) -> dict[str, Any]:
    """How a group pops a topic."""
    return {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0} | more


def offsets_body(table: dict[str, dict[int, int]], **more: Any) -> bytes:
    """Offsets as Java writes them: numbers as keys."""
    rows = (
        f"{json.dumps(key)}:{{{','.join(f'{at}:{offset}' for at, offset in queues.items())}}}"
        for key, queues in table.items()
    )
    rest = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in more.items())
    return f'{{"offsetTable":{{{",".join(rows)}}}{rest}}}'.encode()


@define(eq=False)
class PlayedMaster:
    """The client of a slave whose master it is as well.

    @ivar topics: Its topics; it has those of its name and cluster besides.
    @ivar answers: Instead of its tables, by code: a body, an answer's code, or an exception;
        C{None} is no answer.
    @ivar told: The offsets it was given (15).
    @ivar refuses: The code offsets are answered with.
    """

    clock: IReactorTime
    name: str = "broker-a"
    cluster: str = "C"
    topics: dict[str, dict[str, Any]] = field(factory=dict)
    topics_version: dict[str, int] = field(factory=lambda: {"counter": 1, "timestamp": 1000})
    groups: dict[str, dict[str, Any]] = field(factory=dict)
    groups_version: dict[str, int] = field(factory=lambda: {"counter": 1, "timestamp": 1000})
    offsets: dict[str, dict[int, int]] = field(factory=dict)
    delays: dict[int, int] = field(factory=dict)
    modes: dict[str, dict[str, Any]] = field(factory=dict)
    modes_version: dict[str, int] | None = None
    boot: int = 500
    answers: dict[int, Any] = field(factory=dict)
    asked: list[int] = field(factory=list)
    told: list[dict[str, str]] = field(factory=list)
    refuses: int = 0
    here: bool = True
    connections: int = 0
    closed: int = 0

    def change_topics(self, *new: dict[str, Any], gone: tuple[str, ...] = ()) -> None:
        """Make and delete topics as a broker does: each is a version more."""
        for one in new:
            self.topics[one["topicName"]] = one
        for name in gone:
            del self.topics[name]
        self.topics_version = {
            "counter": self.topics_version["counter"] + len(new) + len(gone),
            "timestamp": self.topics_version["timestamp"] + 1,
        }

    # --- the client -----------------------------------------------------------------

    def connect(self, address: str) -> Deferred[Any]:
        """One connection, all of them the same."""
        if not self.here or address != ADDRESS:
            return fail(RemotingUnreachable(address, "refused"))
        self.connections += 1
        return succeed(self)

    def close(self, reason: str = "") -> Deferred[None]:
        """The end of a connection, and of the client."""
        self.closed += bool(reason)
        return succeed(None)

    def request(self, command: Command, timeout: float) -> Deferred[Command]:
        code = command.code
        self.asked.append(code)
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.told.append(dict(command.ext))
            return succeed(command.answer(self.refuses, "no" if self.refuses else None))
        answer = self.answers[code] if code in self.answers else self.body(code)
        if isinstance(answer, Exception):
            return fail(answer)
        if answer is None:
            late: Deferred[Command] = Deferred()

            def give_up(_: object, __: float) -> Command:
                raise RemotingTimeout(code, timeout, ADDRESS)

            return late.addTimeout(timeout, self.clock, give_up)
        if isinstance(answer, int):
            return succeed(command.answer(answer, "refused by the test"))
        return succeed(command.answer(body=answer))

    def body(self, code: int) -> bytes:
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            always = {name: topic(name) for name in (self.name, self.cluster)}
            table = always | self.topics
            return json.dumps(
                {"dataVersion": self.topics_version, "topicConfigTable": table}
            ).encode()
        if code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            table = {"TOOLS_CONSUMER": group("TOOLS_CONSUMER")} | self.groups
            return json.dumps(
                {"dataVersion": self.groups_version, "subscriptionGroupTable": table}
            ).encode()
        if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            return offsets_body(self.offsets)
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            rows = ",".join(f"{level}:{offset}" for level, offset in self.delays.items())
            return f'{{"offsetTable":{{{rows}}}}}'.encode()
        if code == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
            version = {} if self.modes_version is None else {"dataVersion": self.modes_version}
            return json.dumps({"messageRequestModeMap": self.modes} | version).encode()
        runtime = {"bootTimestamp": self.boot, "commitLogMinOffset": 0, "commitLogMaxOffset": 9}
        return json.dumps({"table": {name: str(n) for name, n in runtime.items()}}).encode()
