"""Why a message could not be sent."""

from __future__ import annotations

from rmqha.errors import PipelineError


class NoRoute(PipelineError):
    """No name server has a route for a topic."""

    sentence = "no route for topic {topic} from {name_servers}: {reason}"
    topic: str
    name_servers: str
    reason: str


class NoWritableQueue(PipelineError):
    """A topic has no writable queue, or no master that has one."""

    sentence = "topic {topic} has no writable queue on a master"
    topic: str


class QueueUnknown(PipelineError):
    """A message is for a queue that its topic does not have.

    @ivar queues: How many queues the topic has, on all brokers.
    """

    sentence = "topic {topic} has no queue {queue_id}: it has {queues} queues in all"
    topic: str
    queue_id: int
    queues: int


class MessageNotSendable(PipelineError):
    """A message must not be sent, or cannot be sent as what it is.

    @ivar key: Its C{UNIQ_KEY}, or C{""}.
    """

    topic: str
    key: str
    reason: str

    def __str__(self) -> str:
        which = f" {self.key}" if self.key else ""
        return f"message{which} for topic {self.topic!r} cannot be sent: {self.reason}"


class SendFailed(PipelineError):
    """No broker confirmed that it stored a message, after all tries.

    @ivar queue: The queue of the last try, as C{broker:queue id}.
    @ivar key: C{UNIQ_KEY} of the first message.
    @ivar messages: How many there were in the request.
    @ivar code: The last answer's code; C{None} if there was none.
    @ivar remark: What was said about it, or why there was none.
    """

    topic: str
    queue: str
    key: str
    messages: int
    tries: int
    code: int | None
    remark: str | None

    def __str__(self) -> str:
        said = self.remark if self.code is None else f"code {self.code}: {self.remark}"
        more = f" and {self.messages - 1} more" if self.messages > 1 else ""
        return (
            f"message {self.key}{more} for {self.topic} {self.queue} was not confirmed as stored "
            f"after {self.tries} tries: {said}"
        )


class RowUnsendable(PipelineError):
    """A row cannot be sent as a message.

    @ivar row: The row's number in its task, from 0.
    """

    sentence = "row {row} cannot be sent: column {column} {reason}"
    column: str
    row: int
    reason: str
