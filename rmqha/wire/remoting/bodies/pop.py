"""Bodies of POP.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.wire.remoting.fields import ext


@frozen(kw_only=True)
class BatchAck:
    """Acks of messages of one check point.

    @ivar topic: The topic that was asked for.
    @ivar kind: Whether they are of that, or of one of its retry topics.
    @ivar bits: In base64, the lowest bit of the first byte first: which are done with, from
        C{start} on.
    """

    group: str = ext("c", "")
    topic: str = ext("t", "")
    kind: str = ext("r", "0")
    start: int = ext("so", 0)
    queue_id: int = ext("q", 0)
    revive_queue: int = ext("rq", 0)
    pop_time: int = ext("pt", 0)
    invisible: int = ext("it", 0)
    bits: str = ext("b", "")


@frozen(kw_only=True)
class BatchAckBody:
    """Request 200151.

    @ivar broker_name: Whom the client means.
    """

    acks: tuple[BatchAck, ...] = ()
    broker_name: str = ""
