"""What a consumer makes of the answer to a pop."""

from __future__ import annotations

from lab.harness.remote import records
from rmqha.broker.pop.handles import NORMAL, PopHandle, retry_topic
from rmqha.wire.names import POP_HANDLE
from rmqha.wire.remoting.command import Command


def handed_out(
    answer: Command, topic: str, group: str, broker: str
) -> list[tuple[bytes, PopHandle, str]]:
    """The messages of an answer: body, handle and the topic in which each is.

    @param topic: What was asked for.
    @param broker: The broker's name.
    """
    told, found = answer.ext, []
    starts = dict(part.rsplit(" ", 1) for part in told["startOffsetInfo"].split(";"))
    for record in records(answer):
        text = record.properties.get(POP_HANDLE)
        if text is None:
            start = starts[f"{NORMAL} {record.queue_id}"]
            text = (
                f"{start} {told['popTime']} {told['invisibleTime']} {told['reviveQid']} {NORMAL} "
                f"{broker} {record.queue_id} {record.queue_offset}"
            )
        handle = PopHandle.decode(text, record.queue_id, record.queue_offset)
        place = topic if handle.kind == NORMAL else retry_topic(group, topic, handle.kind)
        found.append((record.body, handle, place))
    return found
