"""Clients of real brokers that wait for answers, and a consumer that goes where it is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from attrs import define, evolve, field

from rmqha.pipeline.remoting.peers import BlockingConnection
from rmqha.wire.log.record import Record, decode
from rmqha.wire.names import TEMPLATE_TOPIC
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.admin import CreateTopicRequest
from rmqha.wire.remoting.headers.offsets import (
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from rmqha.wire.remoting.headers.send import SendMessageV2Request

#: Longest wait for an answer, in seconds.
SOON = 20.0

#: Requests on their way at a time, where there are many.
WINDOW = 100


class Remote(BlockingConnection):
    """One connection to a broker or a name server on this machine."""

    def __init__(self, port: int) -> None:
        """@raise OSError: If the port is closed."""
        super().__init__(f"127.0.0.1:{port}", SOON)

    def heard(self, timeout: float = SOON) -> Command:
        """Wait for the next answer."""
        return super().heard(timeout)

    def ask(self, command: Command, timeout: float = SOON) -> Command:
        """Send a request and wait for its answer."""
        return super().ask(command, timeout)

    def ask_all(self, commands: list[Command]) -> list[Command]:
        """Ask many, some at a time; the answers are in the order they came."""
        found = []
        for first in range(0, len(commands), WINDOW):
            some = commands[first : first + WINDOW]
            for command in some:
                self.send(command)
            found += [self.heard() for _ in some]
        return found


def send(topic: str, body: bytes, queue_id: int = 0, *, delay: int = 0, later: int = 0) -> Command:
    """A message to a queue of a topic, which is made by the first; with a delay level, or to come
    after some milliseconds, as 5.x has it.
    """
    told = {"TAGS": "A", "DELAY": str(delay or ""), "TIMER_DELAY_MS": str(later or "")}
    request = SendMessageV2Request(
        producer_group="senders",
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties="".join(f"{name}\x01{text}\x02" for name, text in told.items() if text),
        reconsume_times=0,
    )
    return Command(code=RequestCode.SEND_MESSAGE_V2, ext=to_ext(request), body=body)


def make_topic(topic: str, queues: int = 4) -> Command:
    """An administrator makes a topic."""
    request = CreateTopicRequest(
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
    return Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, request)


def pull(topic: str, group: str, offset: int, queue_id: int = 0, wait: float = 0.0) -> Command:
    """A pull of everything, which may be held for some seconds."""
    request = PullMessageRequest(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4 | (2 if wait else 0),
        commit_offset=0,
        suspend_timeout_millis=int(wait * 1000),
        subscription="*",
        sub_version=1,
    )
    return Command.request(RequestCode.PULL_MESSAGE, request)


def commit(topic: str, group: str, offset: int, queue_id: int = 0) -> Command:
    """A group says how far it is."""
    request = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, request)


def progress(topic: str, group: str, queue_id: int = 0) -> Command:
    """A group asks how far it is."""
    request = QueryConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
    )
    return Command.request(RequestCode.QUERY_CONSUMER_OFFSET, request)


def records(answer: Command) -> list[Record]:
    """Decode the messages of an answer's body."""
    found, body, position = [], bytes(answer.body), 0
    while position < len(body):
        found.append(decode(body, position, position))
        position += found[-1].size
    return found


def bodies(answer: Command) -> list[bytes]:
    """The bodies of an answer's messages."""
    return [record.body for record in records(answer)]


@define(eq=False)
class Follower:
    """A consumer of one queue that does as stock clients do: it pulls from where it was last sent,
    and, if nobody is there, from anybody; it commits to the master, or to whoever is there.

    @ivar ports: The brokers' client ports by their ids.
    @ivar places: The id of the broker that each body came from.
    @ivar which: Where it was sent last.
    """

    ports: Mapping[int, int]
    topic: str
    group: str
    queue: int = 0
    got: list[bytes] = field(init=False, factory=list)
    places: list[int] = field(init=False, factory=list)
    offset: int = field(init=False, default=0)
    which: int = field(init=False, default=0)
    _open: dict[int, Remote] = field(init=False, factory=dict)

    def step(self, wait: float = 0.0) -> int:
        """Pull once, commit what came, and give the answer's code."""
        wanted = pull(self.topic, self.group, self.offset, self.queue, wait)
        broker, answer = self._ask(self.which, wanted)
        if "suggestWhichBrokerId" in answer.ext:
            self.which = int(answer.ext["suggestWhichBrokerId"])
        if answer.code == ResponseCode.SUCCESS:
            found = bodies(answer)
            self.got += found
            self.places += [broker] * len(found)
            self.offset = int(answer.ext["nextBeginOffset"])
            self.commit()
        return answer.code

    def commit(self) -> int:
        """Say how far it is, and give the id of the broker that was told."""
        broker, answer = self._ask(0, commit(self.topic, self.group, self.offset, self.queue))
        if answer.code:
            raise AssertionError(f"a commit at broker {broker} was answered {answer}")
        return broker

    def run(self, until: Callable[[], bool], timeout: float = SOON) -> None:
        deadline = time.monotonic() + timeout
        while not until():
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self.got)} messages after {timeout:g} s")
            self.step(wait=0.2)

    def close(self) -> None:
        for remote in self._open.values():
            remote.close()
        self._open.clear()

    def _ask(self, wanted: int, command: Command) -> tuple[int, Command]:
        order = [wanted, *(broker for broker in self.ports if broker != wanted)]
        for broker in order:
            try:
                if broker not in self._open:
                    self._open[broker] = Remote(self.ports[broker])
                return broker, self._open[broker].ask(evolve(command))
            except OSError:
                lost = self._open.pop(broker, None)
                if lost is not None:
                    lost.close()
        raise AssertionError("no broker is there")
