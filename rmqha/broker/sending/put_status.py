"""What a client is told about a write.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.errors import MessageIllegal, RequestRefused
from rmqha.ha.master.transfer import PutStatus
from rmqha.store.store import Store
from rmqha.wire.remoting.codes import ResponseCode

STORED = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}
"""
Answers that say where the message is.  What is not here is answered as not available: whether it
outlives a failover cannot be told.
"""


def illegal(error: MessageIllegal, most: int) -> RequestRefused:
    """The store does not take such a message.

    @param most: C{maxMessageSize}, in bytes.
    """
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {most}B, msg properties length limit 32KB. ({error})",
    )


def unavailable(store: Store) -> RequestRefused:
    """No message is taken now."""
    root = store.settings.root
    use = (
        f"CL: {_use(store, store.settings.commitlog)} CQ: {_use(store, root)}"
        f" INDEX: {_use(store, root)}"
    )
    return RequestRefused(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: "
        f"the broker's disk is full [{use}], messages are put to the slave, "
        "message store has been shut down, etc.",
    )


def _use(store: Store, folder: Path) -> str:
    try:
        return f"{store.disk_use(folder):5.2f}"
    except OSError:
        return "?"
